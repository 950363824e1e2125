"""Python functions as tools."""

import asyncio
import functools
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

from callsmith.core.errors import UsageError
from callsmith.core.events import ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.functions import Function, Functions, tool

from .contract import ToolsetContract, outcome


class Unit(Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


@dataclass
class Place:
    city: str
    country: str = "DE"


class Guests(BaseModel):
    adults: int
    children: int = 0


NOBODY = Context()


async def call(function: Any, context: Context = NOBODY, **arguments: Any) -> Result:
    toolset = Functions(function)
    (known,) = await toolset.tools()
    return (await outcome(toolset.call(Call(known.name, arguments, "c1"), context)))[1]


def schema_of(function: Any) -> dict[str, Any]:
    return dict(Function.of(function).tool.parameters)


async def count(to: int) -> AsyncIterator[ToolProgress | int]:
    """Count."""
    for current in range(to):
        yield ToolProgress("", current=current, total=to)
    yield to


class TestFunctions(ToolsetContract):
    working = Call("count", {"to": 3}, "c1")

    @pytest.fixture
    def toolset(self) -> Functions:
        def add(a: int, b: int = 2) -> int:
            return a + b

        return Functions(count, add)


@pytest.mark.req("R13")
def test_a_function_becomes_a_tool_with_its_name_docstring_and_schema():
    @tool(side_effects=True, idempotent=True, timeout=5)
    def weather(city: str, days: int = 1, unit: Literal["c", "f"] = "c") -> str:
        """The weather forecast.

        It may be wrong.

        Args:
            city: Where,
                or near where.
            days: How many days ahead.
        """
        return ""

    assert Function.of(weather).tool == Tool(
        name="weather",
        description="The weather forecast.\n\nIt may be wrong.",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where, or near where."},
                "days": {"type": "integer", "default": 1, "description": "How many days ahead."},
                "unit": {"enum": ["c", "f"], "type": "string", "default": "c"},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
        side_effects=True,
        idempotent=True,
        timeout=5,
        source="python",
    )


NUMPY = """Add.

Parameters
----------
a : int
    The first.
"""
SPHINX = """Add.

:param a: The first.
:returns: The sum.
"""
GOOGLE = """Add.

Args:
    a (int): The first.

Returns:
    The sum.
"""


@pytest.mark.parametrize("text", [NUMPY, SPHINX, GOOGLE])
def test_docstrings_of_all_three_styles_are_read(text: str, caplog: pytest.LogCaptureFixture):
    def add(a: int) -> int:
        return a

    add.__doc__ = text
    definition = Function.of(add).tool
    assert definition.description == "Add."
    assert definition.parameters["properties"]["a"]["description"] == "The first."
    assert not caplog.records


def test_a_decorated_function_is_still_the_function():
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    assert add(1, 2) == 3


@pytest.mark.parametrize("function", [sys.exit, print])
def test_even_a_builtin_either_works_or_is_refused_by_name(function: Any):
    try:
        outcome = Function.of(function).tool.name
    except UsageError as error:
        outcome = str(error)
    assert function.__name__ in outcome


async def test_annotated_types_arrive_as_such():
    def book(place: Place, guests: Guests, unit: Unit, on: date, tags: set[str], pair: tuple[int, str] = (1, "a")) -> str:
        assert isinstance(place, Place)
        assert isinstance(guests, Guests)
        assert unit is Unit.CELSIUS
        assert on == date(2026, 11, 1)
        assert tags == {"x"}
        assert pair == (2, "b")
        return place.country

    arguments = {"guests": {"adults": 2}, "unit": "celsius", "on": "2026-11-01", "tags": ["x"], "pair": [2, "b"]}
    assert (await call(book, place={"city": "Bonn"}, **arguments)).content == "DE"


async def test_field_constraints_are_in_the_schema_and_the_parameters_own_words_win():
    def add(a: Annotated[int, Field(gt=0, description="mine")], b: int = Field(3, description="also mine", le=5)) -> int:
        """Add.

        Args:
            a: theirs
            b: theirs
        """
        return a + b

    assert schema_of(add)["properties"] == {
        "a": {"type": "integer", "exclusiveMinimum": 0, "description": "mine"},
        "b": {"type": "integer", "maximum": 5, "default": 3, "description": "also mine"},
    }
    assert (await call(add, a=1)).content == 4


def test_a_text_beside_the_type_describes_the_parameter_unless_a_field_does():
    def add(a: Annotated[int, "the first"], b: Annotated[int, "not this", Field(description="the second")] = 3) -> int:
        """Add.

        Args:
            a: theirs
        """
        return a + b

    properties = schema_of(add)["properties"]
    assert [properties[name]["description"] for name in ("a", "b")] == ["the first", "the second"]


async def test_optional_keyword_only_and_positional_only_parameters_work():
    def join(a: str, /, b: str | None = None, *, c: str) -> str:
        return f"{a}{b}{c}"

    assert schema_of(join)["required"] == ["a", "c"]
    assert (await call(join, a="1", c="3")).content == "1None3"


async def test_parameters_may_have_names_pydantic_keeps_for_itself():
    def odd(schema: str, model_config: int, _hidden: bool, json: str = "j") -> list[object]:
        return [schema, model_config, _hidden, json]

    assert list(schema_of(odd)["properties"]) == ["schema", "model_config", "_hidden", "json"]
    assert (await call(odd, schema="s", model_config=1, _hidden=True)).content == ["s", 1, True, "j"]


async def test_a_function_with_open_keywords_takes_any():
    def anything(a: int, **others: int) -> dict[str, int]:
        return {"a": a, **others}

    assert schema_of(anything)["additionalProperties"] is True
    assert (await call(anything, a=1, b=2)).content == {"a": 1, "b": 2}


def test_star_arguments_are_refused_because_they_have_no_names():
    def many(*numbers: int) -> int:
        return sum(numbers)

    with pytest.raises(UsageError, match="many: \\*numbers"):
        Functions(many)


def test_a_type_without_a_schema_is_refused_when_the_toolset_is_built():
    def bad(lock: threading.Event) -> None: ...

    with pytest.raises(UsageError, match="bad"):
        Functions(bad)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads these from Python 3.12 on")
def test_a_typed_dict_that_cannot_be_read_is_refused_with_the_name_of_the_function():
    class Stop(TypedDict):
        city: str

    def go(stop: Stop) -> None: ...

    with pytest.raises(UsageError, match=r"go: Please use `typing_extensions\.TypedDict`"):
        Functions(go)


def test_two_functions_of_one_name_are_refused():
    def add(a: int) -> int:
        return a

    with pytest.raises(UsageError, match="add"):
        Functions(add, add)


async def test_the_context_is_handed_in_and_hidden_from_the_model():
    def who(context: Context, greeting: str = "hello") -> str:
        return f"{greeting} {context.conversation}"

    assert list(schema_of(who)["properties"]) == ["greeting"]
    assert (await call(who, Context(conversation="42"))).content == "hello 42"


async def test_methods_partials_and_callable_objects_are_functions_too():
    class Counter:
        def __init__(self) -> None:
            self.value = 0

        @tool(name="increase")
        def increase_by(self, by: int) -> int:
            """Count on.

            Args:
                by: How far.
            """
            self.value += by
            return self.value

        async def __call__(self, by: int) -> int:
            return self.value * by

    counter = Counter()
    definition = Function.of(counter.increase_by).tool
    assert (definition.name, definition.parameters["properties"]["by"]["description"]) == ("increase", "How far.")
    assert (await call(counter.increase_by, by=2)).content == 2

    function = tool(name="product")(counter)
    assert (await call(function, by=4)).content == 8

    partial = functools.partial(counter.increase_by, 1)
    with pytest.raises(UsageError, match="tool name"):
        Functions(partial)
    assert (await call(tool(name="next")(partial))).content == 3


async def test_sync_functions_run_beside_the_loop_and_keep_its_context_variables():
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    variable.set("set")
    here = threading.get_ident()

    def look() -> list[object]:
        return [variable.get(), threading.get_ident() != here]

    assert (await call(look)).content == ["set", True]


async def test_many_hanging_functions_do_not_hold_up_the_next():
    gate = threading.Event()

    def hang() -> None:
        gate.wait(60)

    def quick() -> str:
        return "done"

    hanging = [asyncio.create_task(call(hang)) for _ in range(40)]
    await asyncio.sleep(0)
    try:
        assert (await call(quick)).content == "done"
        assert not any(task.done() for task in hanging)
    finally:
        gate.set()
        await asyncio.gather(*hanging)


async def test_what_a_function_returns_becomes_json():
    def things() -> list[object]:
        return [Place("Bonn"), Guests(adults=1), Unit.CELSIUS, date(2026, 1, 2), {1: "a"}, float("inf"), object]

    content = (await call(things)).content
    assert content[:6] == [
        {"city": "Bonn", "country": "DE"},
        {"adults": 1, "children": 0},
        "celsius",
        "2026-01-02",
        {"1": "a"},
        "Infinity",
    ]
    assert isinstance(content[6], str)


async def test_arguments_pydantic_refuses_are_a_bad_request_that_names_the_place():
    def on(day: date) -> None: ...

    result = await call(on, day="not a day")
    assert (result.ok, result.code) == (False, "bad_request")
    assert result.text.startswith("invalid_arguments: at /day: ")


async def test_a_function_may_decide_for_itself_that_it_failed():
    def lookup() -> Result:
        return Result("", "", "nothing there", ok=False, code="not_found")

    assert await call(lookup) == Result("c1", "lookup", "nothing there", ok=False, code="not_found")


async def test_what_a_function_raises_is_raised():
    def broken() -> None:
        raise ValueError("no")

    def empty() -> None:
        next(iter(()))

    with pytest.raises(ValueError, match="no"):
        await call(broken)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await call(empty)


@pytest.mark.req("R217")
async def test_a_generator_tells_progress_and_then_its_value():
    async def steps() -> AsyncIterator[object]:
        yield ToolProgress("", current=1, total=2)
        yield "half way"
        yield {"done": True}

    progress, result = await outcome(Functions(steps).call(Call("steps", {}, "c7"), Context()))
    assert progress == [ToolProgress("c7", current=1, total=2), ToolProgress("c7", text="half way")]
    assert result == Result("c7", "steps", {"done": True})


async def test_a_sync_generator_does_the_same_and_may_return_its_value():
    def steps() -> Iterator[object]:
        yield ToolProgress("", text="one")
        return "end"

    progress, result = await outcome(Functions(steps).call(Call("steps", {}, "c7"), Context()))
    assert progress == [ToolProgress("c7", text="one")]
    assert result.content == "end"


async def test_closing_a_call_closes_the_generator_behind_it():
    closed: list[bool] = []

    async def steps() -> AsyncIterator[ToolProgress]:
        try:
            while True:
                yield ToolProgress("")
        finally:
            closed.append(True)

    items = Functions(steps).call(Call("steps", {}, "c7"), Context())
    await anext(aiter(items))
    await items.aclose()  # type: ignore[attr-defined]
    assert closed == [True]
