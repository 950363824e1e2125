"""Turns to watch, and what is recorded of them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from callsmith.core.events import ModelEvent
from callsmith.core.values import Call, Request, Tool
from callsmith.runtime.loop import run
from callsmith.runtime.telemetry.trace import Trace
from callsmith.runtime.telemetry.turns import TurnInfo, TurnRecord, record_turn
from tests.fakes import ASKED, FakeModel

SECRET = "hunter2-Ada-Lovelace"
GREET = Tool("greet", "Greet somebody.", {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]})
WAVE = Tool("wave")


async def broken(call: Call) -> str:
    raise RuntimeError(f"no such thing as {SECRET}")


async def traced(model: FakeModel, toolset: Any, request: Request = ASKED, *, show: bool = False, **options: Any) -> TurnRecord:
    """What is recorded of a run."""
    trace = Trace()
    turn_info = TurnInfo("parrot", await toolset.tools(), request.choice)
    async for _ in record_turn(run(model, toolset, request, **options), trace, turn_info, show_arguments=show):
        pass
    (turn,) = trace.turns()
    return turn


async def answered(events: Sequence[ModelEvent], *tools: Tool) -> TurnRecord:
    """What is recorded of an answer whose calls go back to whoever asked."""
    trace = Trace()
    async for _ in record_turn(given(*events), trace, TurnInfo("parrot", tools, external=True)):
        pass
    (turn,) = trace.turns()
    return turn


async def given(*events: Any) -> AsyncIterator[Any]:
    for event in events:
        if isinstance(event, BaseException):
            raise event
        yield event
