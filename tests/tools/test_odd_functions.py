"""Functions that are legal and not what one expects: strict types, decorators in any order, texts that are no UTF-8."""

import contextvars
import enum
import functools
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded, ToolFinished
from callsmith.core.ports import Context
from callsmith.core.values import Call
from callsmith.runtime.loop import run
from callsmith.tools.functions import Function, Functions, tool
from callsmith.tools.wrap import Confirmed
from tests.fakes import FakeModel, calls, says

from .contract import outcome


async def ran(function: Any, **arguments: Any) -> Any:
    functions = Functions(function)
    (listed,) = await functions.tools()
    _, result = await outcome(functions.call(Call(listed.name, arguments, "c1"), Context()))
    return result.content


class Disk:
    @tool(side_effects=True, name="wipe_disk")
    @staticmethod
    def wipe(disk: str) -> str:
        """Wipe a disk."""
        return "wiped"

    def spin(self) -> None: ...


async def test_what_is_said_above_a_staticmethod_counts():
    assert Function.of(Disk.wipe).tool.side_effects
    model = FakeModel(calls(Call("wipe_disk", {"disk": "sda"}, "c1")), says("done"))
    events = [event async for event in run(model, Confirmed([Disk.wipe]), "go")]
    assert not [event for event in events if isinstance(event, ToolFinished)]
    assert any(isinstance(event, ConfirmationNeeded) for event in events)


def test_what_cannot_be_marked_is_refused_with_the_way_out():
    with pytest.raises(UsageError, match="put @tool on the function itself"):
        tool(Disk().spin)


class Color(enum.Enum):
    RED = "red"


class Booking(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    color: Color
    tags: set[str] = set()


async def test_strict_types_take_what_their_schema_says_and_complain_of_the_rest():
    def book(booking: Booking) -> str:
        """Book."""
        return f"{booking.day:%d.%m.} {booking.color.name} {sorted(booking.tags)}"

    right = {"day": "2026-12-24", "color": "red", "tags": ["a"]}
    assert await ran(book, booking=right) == "24.12. RED ['a']"
    wrong = await ran(book, booking={**right, "color": "blue"})
    assert "/booking/color" in wrong and "/booking/day" not in wrong and "/booking/tags" not in wrong


async def test_an_async_generator_in_a_decorator_is_one():
    async def count() -> Any:
        """Count."""
        yield 1
        yield 2

    @functools.wraps(count)
    def decorated() -> Any:
        return count()

    assert await ran(decorated) == 2


async def test_the_steps_of_a_generator_share_their_context_variables():
    who = contextvars.ContextVar("who", default="nobody")

    def look() -> Iterator[str]:
        """Look."""
        token = who.set("Ada")
        yield "looking"
        name = who.get()
        who.reset(token)
        yield name

    assert await ran(look) == "Ada"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (["caf\udce9.txt"], ["caf\udce9.txt"]),
        ({"name": "\ud800"}, {"name": "\ud800"}),
        ([b"\xff\xfe"], ["__4="]),
        ([b"text"], ["text"]),
    ],
)
async def test_texts_and_bytes_that_are_no_utf_8_do_not_fail_a_call(value: Any, shown: Any):
    def names() -> Any:
        """Names of files."""
        return value

    assert await ran(names) == shown


def test_what_a_docstring_warns_of_is_told_to_the_model():
    def sell(item: str) -> None:
        """Sell something.

        Important:
            Only to adults.

        Args:
            item: What.
        """

    described = Function.of(sell).tool
    assert "Sell something." in described.description and "Only to adults." in described.description
    assert described.parameters["properties"]["item"]["description"] == "What."


def test_an_annotation_that_is_no_expression_is_refused_with_the_name_of_the_function():
    def look(city: "the city") -> None:  # type: ignore[valid-type] # noqa: F722
        """Look."""

    with pytest.raises(UsageError, match="look: an annotation cannot be resolved"):
        Function.of(look)


async def test_a_context_is_injected_into_strict_models_too():
    def book(booking: Booking, context: Context) -> str:
        """Book."""
        return type(context).__name__

    assert await ran(book, booking={"day": "2026-12-24", "color": "red"}) == "Context"
