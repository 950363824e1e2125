"""Which calls are tried again by themselves: those that only read, or may be made twice, after what may pass."""

import asyncio
from typing import Any

import pytest

from callsmith.core.errors import StoreUnavailable, Unavailable
from callsmith.core.events import ToolProgress, ToolStarted
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.dispatch import Dispatcher
from callsmith.runtime.execute import Limits
from callsmith.wire.capability.errors import BusError
from tests.fakes import FakeModel, Recording, calls, everything, finished, says
from tests.tools.wrap.recording import TIMEOUT, failing
from tests.virtual_time import now, virtual_time

GONE = Result("c1", "x", "unavailable: gone", ok=False, code="unavailable")
TOGETHER = ExceptionGroup("a task group", [ConnectionError("gone"), ExceptionGroup("another", [TimeoutError("slow")])])
PASSING = [TOGETHER, ConnectionError("gone"), TimeoutError("slow"), Unavailable("down", retryable=True), TIMEOUT, GONE]


async def tried(tool: Tool, failure: Any, times: int = 2, limits: Limits = Limits()) -> tuple[Result, Recording, list[Any]]:
    inner = Recording(tool, run=failing(times, failure))
    events = await everything(FakeModel(calls(Call("x", {}, "c1")), says("So.")), inner, limits=limits)
    return finished(events)[0], inner, events


@pytest.mark.req("R16")
@pytest.mark.parametrize("failure", PASSING, ids=lambda error: getattr(error, "code", "") or type(error).__name__)
@virtual_time
async def test_a_read_is_tried_again_by_default_where_what_went_wrong_may_pass(failure: Any):
    began = now()
    result, inner, events = await tried(Tool("x"), failure)
    assert (result.text, len(inner.calls), inner.closed) == ("at last", 3, 3)
    assert [event.text.partition(":")[0] for event in events if isinstance(event, ToolProgress) and "attempt" in event.text] == [
        "attempt 1 of 3 failed",
        "attempt 2 of 3 failed",
    ]
    assert sum(isinstance(event, ToolStarted) for event in events) <= 1
    assert now() - began < 1, "the pauses are short"


@pytest.mark.req("R16")
@pytest.mark.parametrize("failure", PASSING, ids=lambda error: getattr(error, "code", "") or type(error).__name__)
async def test_what_has_side_effects_is_never_tried_again(failure: Any):
    result, inner, _ = await tried(Tool("x", side_effects=True), failure)
    assert (result.ok, len(inner.calls)) == (False, 1)


@pytest.mark.req("R16")
@virtual_time
async def test_what_has_side_effects_and_is_idempotent_is_tried_again_under_the_same_id():
    result, inner, _ = await tried(Tool("x", side_effects=True, idempotent=True), ConnectionError("gone"))
    assert (result.text, [call.id for call in inner.calls]) == ("at last", ["c1"] * 3)


@virtual_time
async def test_the_last_failure_is_told():
    result, inner, _ = await tried(Tool("x"), ConnectionError("gone"), times=9)
    assert (result.code, "gone" in result.text, len(inner.calls)) == ("internal_error", True, 3)


@pytest.mark.parametrize(
    "failure", [ValueError("no"), FileNotFoundError("no"), BusError("bad_request", "no"), Result("c1", "x", "no", ok=False)]
)
async def test_what_will_not_pass_is_not_tried_again(failure: Any):
    result, inner, _ = await tried(Tool("x"), failure)
    assert (result.ok, len(inner.calls)) == (False, 1)


async def test_the_operator_may_do_without():
    _, inner, _ = await tried(Tool("x"), ConnectionError("gone"), limits=Limits(retries=0))
    assert len(inner.calls) == 1


@virtual_time
async def test_all_attempts_together_have_the_time_of_one_call():
    async def slow(call: Call) -> str:
        await asyncio.sleep(0.3)
        raise ConnectionError("gone")

    inner, began = Recording(Tool("x", timeout=0.7), run=slow), now()
    result = await Dispatcher(inner).dispatch(Call("x", {}, "c1"))
    assert (result.code, len(inner.calls), now() - began) == ("timeout", 2, pytest.approx(0.7))


@virtual_time
async def test_what_an_operator_can_do_is_not_what_the_model_reads():
    result, *_ = await tried(
        Tool("x"), StoreUnavailable("the store is unreachable", hint="Connect call failed ('10.0.0.7', 5432)"), 9
    )
    assert (result.code, result.text) == ("internal_error", "internal_error: the store is unreachable")


async def test_what_is_raised_in_a_task_group_is_what_the_model_reads():
    mixed = ExceptionGroup(
        "unhandled errors in a TaskGroup", [ConnectionError("gone"), ValueError("name another city"), KeyError()]
    )
    result, inner, _ = await tried(Tool("x"), mixed)
    assert (result.text, len(inner.calls)) == ("internal_error: gone; name another city; KeyError", 1)
