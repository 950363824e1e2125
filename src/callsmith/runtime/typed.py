"""Answers as values of Python types: pydantic models, dataclasses, typed dictionaries, lists of them.

    @dataclass
    class Person:
        name: str
        born: int

    ada = await run_typed(model, Person, "Who wrote the first program?")
    async for person in stream_typed(model, Person, "Who wrote the first program?"):
        print(person.name, person.born)  # None as long as it has not come; the last one is whole and validated

Where the model runs here, it can write nothing that the type does not allow. `tools` may be called before the answer.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TypedDict, TypeVar, Unpack

from callsmith.core.approval import ConfirmationRequired
from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded, Started, Stopped, Text, TurnEnded
from callsmith.core.ports import Context, Model
from callsmith.core.types.partial import parse_partial
from callsmith.core.values import Message, Output, Request
from callsmith.runtime.deferred import GivenTools
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run
from callsmith.runtime.sync import collect

T = TypeVar("T")


class RunOptions(TypedDict, total=False):
    """How a run is bounded, for whom it is, and which guards the model has: as `run` takes them."""

    limits: Limits
    context: Context
    guards: tuple[str, ...] | None


async def run_typed(
    model: Model, kind: type[T], request: Request | str, *, tools: GivenTools | None = None, **options: Unpack[RunOptions]
) -> T:
    """The model's answer as a value of that type. A ModelError says what does not fit, where the model could not be held to it.

    A call that needs a person's approval ends it with ConfirmationRequired; a `Conversation` with an `Output` asks and goes on.
    """
    async with closing(_values(model, kind, request, tools, options, partial=False)) as values:
        return [value async for value in values][-1]


def run_typed_sync(
    model: Model, kind: type[T], request: Request | str, *, tools: GivenTools | None = None, **options: Unpack[RunOptions]
) -> T:
    """`run_typed`, in a program that has no event loop."""
    return collect(_values(model, kind, request, tools, options, partial=False))[-1]


def stream_typed(
    model: Model, kind: type[T], request: Request | str, *, tools: GivenTools | None = None, **options: Unpack[RunOptions]
) -> AsyncIterator[T]:
    """The answer as it fills in: what has not come yet is None, and nothing is validated but the last value, which is whole."""
    return _values(model, kind, request, tools, options, partial=True)


async def _values(
    model: Model, kind: type[T], request: Request | str, tools: GivenTools | None, options: RunOptions, *, partial: bool
) -> AsyncIterator[T]:
    question = Request((Message.user(request),)) if isinstance(request, str) else request
    if question.output is not None:
        raise UsageError("the request has an output of its own; the type is the output here", field="request.output")
    question, text, before = replace(question, output=Output(kind)), "", None
    async with closing(run(model, tools, question, **options)) as events:
        async for event in events:
            match event:
                case Started() | Stopped():
                    text = ""  # the next step of the run
                case Text(piece) if partial:
                    text += piece
                    value = parse_partial(kind, text)
                    if value is not None and value != before:
                        before = value
                        yield value
                case ConfirmationNeeded():
                    raise ConfirmationRequired(event)
                case TurnEnded():
                    yield event.value
                case _:
                    pass
