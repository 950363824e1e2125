"""A round of calls: side by side, in time, in order, and each with its one outcome."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsmith.core.approval import Approved, Denied
from callsmith.core.closing import closing
from callsmith.core.events import ConfirmationNeeded, Notice, ToolFinished, ToolProgress, ToolStarted
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.execute import Limits, Round, ToolEvent
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from tests.fakes import FakeModel, Handlers, calls, everything, finished, says
from tests.virtual_time import now, virtual_time


async def attended(
    toolset: Any, *calls: Call, limits: Limits = Limits(), context: Context = Context()
) -> tuple[Round, list[ToolEvent]]:
    work = Round(calls, {tool.name: tool for tool in await toolset.tools()}, toolset, limits)
    return work, [event async for event in work.run(context)]


@pytest.mark.req("R95")
@pytest.mark.req("R16")
@virtual_time
async def test_calls_with_side_effects_run_one_after_another_in_order_while_others_run_beside_them():
    at_work: set[str] = set()
    together: list[frozenset[str]] = []
    order: list[str] = []

    async def work(call: Call) -> None:
        at_work.add(call.id)
        together.append(frozenset(at_work))
        order.append(call.id)
        await asyncio.sleep(0.03 if call.id == "w0" else 0.01)
        at_work.discard(call.id)

    toolset = Handlers(Tool("write", side_effects=True), Tool("read"), write=work, read=work)
    tool_calls = [
        Call("write", {}, "w0"),
        Call("read", {}, "r0"),
        Call("write", {}, "w1"),
        Call("write", {}, "w2"),
        Call("read", {}, "r1"),
    ]
    done, _ = await attended(toolset, *tool_calls)
    assert [call for call in order if call[0] == "w"] == ["w0", "w1", "w2"]
    assert all(sum(call[0] == "w" for call in some) <= 1 for some in together)
    assert {"w0", "r0", "r1"} in together
    assert [result.call_id for result in done.results] == [call.id for call in tool_calls]


async def test_one_at_a_time_means_the_order_of_the_calls():
    order: list[str] = []

    async def work(call: Call) -> None:
        order.append(call.id)

    toolset = Handlers(Tool("write", side_effects=True), Tool("read"), write=work, read=work)
    tool_calls = [Call("read", {}, "a"), Call("write", {}, "b"), Call("read", {}, "c"), Call("write", {}, "d")]
    await attended(toolset, *tool_calls, limits=Limits(parallel=1))
    assert order == ["a", "b", "c", "d"]


@virtual_time
async def test_progress_is_a_sign_of_life():
    async def lively():
        for step in range(6):
            await asyncio.sleep(0.05)
            yield ToolProgress("", current=step)
        yield "done"

    done, events = await attended(Functions(lively), Call("lively", {}, "c"), limits=Limits(silence=0.15))
    assert done.results == [Result("c", "lively", "done")]
    assert sum(isinstance(event, ToolProgress) for event in events) == 6


@pytest.mark.req("R167")
@pytest.mark.req("R217")
@pytest.mark.req("R160")
@virtual_time
async def test_however_lively_a_tool_may_not_go_on_for_ever():
    async def chatty():
        while True:
            await asyncio.sleep(0.01)
            yield ToolProgress("", text="soon")

    began = now()
    done, _ = await attended(Functions(chatty), Call("chatty", {}, "c"), limits=Limits(seconds=0.3, silence=0.1))
    assert [(result.code, result.text) for result in done.results] == [("timeout", "timeout: chatty gave no answer within 0.3 s")]
    assert now() - began == pytest.approx(0.3)


async def test_a_tool_that_never_waits_while_it_tells_its_progress_starves_nobody():
    async def flood():
        while True:
            yield ToolProgress("", text="x")

    async def calm() -> str:
        await asyncio.sleep(0.02)
        return "calm"

    tool_calls = (Call("flood", {}, "f"), Call("calm", {}, "c"))
    done, _ = await attended(Functions(flood, calm), *tool_calls, limits=Limits(seconds=0.2))
    assert [(result.call_id, result.code) for result in done.results] == [("f", "timeout"), ("c", "")]


async def test_whoever_does_not_look_misses_progress_but_no_result():
    async def flood():
        for _ in range(5000):
            yield ToolProgress("", text="x")
        over.set()
        yield "done"

    over = asyncio.Event()

    toolset = Functions(flood)
    work = Round([Call("flood", {}, "c")], {tool.name: tool for tool in await toolset.tools()}, toolset, Limits())
    async with closing(work.run(Context())) as items:
        seen = [await anext(items), await anext(items)]
        await over.wait()
        seen += [event async for event in items]
    assert len(seen) < 1100
    assert seen[-1] == ToolFinished(Result("c", "flood", "done"))


@virtual_time
async def test_waiting_for_a_turn_counts_towards_no_deadline():
    async def slow(call: Call) -> str:
        await asyncio.sleep(0.06)
        return call.id

    tool_calls = [Call("slow", {}, f"c{n}") for n in range(5)]
    done, _ = await attended(Handlers(slow=slow), *tool_calls, limits=Limits(parallel=1, seconds=0.2))
    assert [result.ok for result in done.results] == [True] * 5


@virtual_time
async def test_a_tool_does_not_start_before_whoever_watches_knows_and_their_time_is_not_its_own():
    ran: list[str] = []

    async def act(call: Call) -> str:
        ran.append(call.id)
        return "done"

    toolset = Handlers(Tool("act", side_effects=True), act=act)
    work = Round([Call("act", {}, "c")], {"act": Tool("act", side_effects=True)}, toolset, Limits(seconds=0.05))
    async with closing(work.run(Context())) as events:
        assert isinstance(await anext(events), ToolStarted)
        await asyncio.sleep(0.2)
        assert ran == []
        assert await anext(events) == ToolFinished(Result("c", "act", "done"))
    assert ran == ["c"]


@virtual_time
async def test_whoever_stops_watching_when_told_of_a_start_has_prevented_it():
    ran: list[str] = []

    async def act(call: Call) -> None:
        ran.append(call.id)

    work = Round([Call("act", {}, "c")], {"act": Tool("act")}, Handlers(act=act), Limits())
    async with closing(work.run(Context())) as events:
        assert isinstance(await anext(events), ToolStarted)
    await asyncio.sleep(0.01)
    assert ran == []


@virtual_time
async def test_a_tool_with_side_effects_that_timed_out_may_have_acted_and_the_model_is_told_so():
    async def hang(call: Call) -> None:
        await asyncio.sleep(30)

    toolset = Handlers(Tool("pay", side_effects=True), pay=hang)
    done, _ = await attended(toolset, Call("pay", {}, "c"), limits=Limits(seconds=0.02))
    assert done.results[0].text.endswith("it may have taken effect all the same")


async def test_cancelling_reaches_a_thread_in_time_and_its_late_result_is_dropped():
    began, over = threading.Event(), threading.Event()

    def stubborn(context: Context) -> str:
        began.set()
        while not context.cancelled():
            time.sleep(0.005)
        over.set()
        return "too late"

    toolset = Functions(stubborn)
    work = Round([Call("stubborn", {}, "c")], {tool.name: tool for tool in await toolset.tools()}, toolset, Limits())

    async def watch() -> None:
        async for _ in work.run(Context()):
            pass

    task = asyncio.create_task(watch())
    assert await asyncio.to_thread(began.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(over.wait, 60)
    assert [result.text for result in work.results] == ["internal_error: stubborn was cancelled"]


async def test_a_thread_that_timed_out_is_left_behind_and_notices():
    noticed = threading.Event()

    def hang(context: Context) -> str:
        while not context.cancelled():
            time.sleep(0.005)
        noticed.set()
        return "too late"

    done, events = await attended(Functions(hang), Call("hang", {}, "c"), limits=Limits(seconds=0.05))
    assert await asyncio.to_thread(noticed.wait, 60)
    assert [result.code for result in done.results] == ["timeout"]
    assert sum(isinstance(event, ToolFinished) for event in events) == 1


@virtual_time
async def test_a_result_stands_even_if_its_tool_hangs_while_tidying_up():
    class Untidy(Handlers):
        async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
            try:
                yield Result(call.id, call.name, "done")
            finally:
                await asyncio.sleep(30)

    began = now()
    tool_calls = [Call("hello", {}, f"c{n}") for n in range(6)]
    done, _ = await attended(Untidy(hello=None), *tool_calls, limits=Limits(parallel=2))  # type: ignore[arg-type]
    assert [result.content for result in done.results] == ["done"] * 6
    assert now() - began < 30


@pytest.mark.parametrize("content", [object(), {"a": {1, 2}}, b"bytes", {("a", "b"): 1}])
async def test_a_result_that_is_no_json_is_a_failure(content: object):
    class Garbage(Handlers):
        async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
            yield Result(call.id, call.name, content)

    done, _ = await attended(Garbage(hello=None), Call("hello", {}, "c"))  # type: ignore[arg-type]
    assert [(result.ok, result.code) for result in done.results] == [(False, "internal_error")]
    assert "no JSON" in done.messages[0].content


@pytest.mark.parametrize("item", [None, "text", 7])
async def test_what_is_neither_progress_nor_result_is_a_failure(item: object):
    class Garbage(Handlers):
        async def call(self, call: Call, context: Context) -> AsyncIterator[Any]:
            yield item

    done, _ = await attended(Garbage(hello=None), Call("hello", {}, "c"))  # type: ignore[arg-type]
    assert [(result.ok, result.code) for result in done.results] == [(False, "internal_error")]


async def test_an_error_that_cannot_even_be_written_is_named():
    class Nasty(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    async def broken(call: Call) -> None:
        raise Nasty

    done, _ = await attended(Handlers(broken=broken), Call("broken", {}, "c"))
    assert done.results[0].text == "internal_error: Nasty"


async def test_half_a_surrogate_pair_does_not_reach_the_model():
    async def broken(call: Call) -> str:
        return "a\ud800b 😀"

    done, _ = await attended(Handlers(broken=broken), Call("broken", {}, "c"))
    assert done.messages[0].content == "a\ufffdb 😀"


async def test_a_result_too_long_for_the_model_is_cut_and_that_is_said_to_model_and_person():
    async def big(call: Call) -> dict[str, str]:
        return {"text": "x" * 100_000}

    done, events = await attended(Handlers(big=big), Call("big", {}, "c"), limits=Limits(result_characters=1000))
    assert len(done.results[0].content["text"]) == 100_000
    (message,) = done.messages
    assert message.content.startswith('{"text": "xxx')
    assert message.content.endswith("\n[Cut here: 99,012 of 100,012 characters are missing.]")
    assert len(message.content) < 1100
    assert [event.text for event in events if isinstance(event, Notice)] == [
        "the result of big is too long: the model does not read 99,012 characters of it"
    ]


@tool(side_effects=True)
async def pay(euros: int) -> str:
    """Send money."""
    return f"paid {euros}"


async def rate() -> int:
    """The exchange rate."""
    return 7


@pytest.mark.req("R94")
async def test_a_call_that_waits_for_a_word_has_no_result_never_started_and_holds_up_no_other():
    tool_calls = (Call("pay", {"euros": 5}, "p"), Call("rate", {}, "r"), Call("pay", {"euros": 6}, "q"))
    done, events = await attended(Confirmed(Functions(pay, rate)), *tool_calls)
    assert [(needed.call, needed.reason) for needed in done.waiting] == [
        (tool_calls[0], "pay has side effects"),
        (tool_calls[2], "pay has side effects"),
    ]
    assert done.results == [Result("r", "rate", 7)]
    assert [event.call.id for event in events if isinstance(event, ToolStarted)] == ["r"]
    assert [event.call.id for event in events if isinstance(event, ConfirmationNeeded)] == ["p", "q"]


async def test_with_a_decision_a_call_runs_is_refused_or_runs_with_other_arguments():
    tool_calls = [Call("pay", {"euros": n}, f"c{n}") for n in range(3)]
    decisions = {"c0": Approved(), "c1": Denied("not today"), "c2": Approved({"euros": 1})}
    done, events = await attended(Confirmed(Functions(pay, rate)), *tool_calls, context=Context(decisions=decisions))
    assert [result.ok for result in done.results] == [True, False, True]
    assert [result.text.split("\n")[0] for result in done.results] == ["paid 0", "denied: not today", "paid 1"]
    assert [event.call.id for event in events if isinstance(event, ToolStarted)] == ["c0", "c2"]


async def test_thousands_of_calls_in_one_answer_are_no_problem():
    tool_calls = [Call("rate" if n % 2 else "nothing", {}, f"c{n}") for n in range(3000)]
    done, _ = await attended(Functions(rate), *tool_calls)
    assert [result.call_id for result in done.results] == [call.id for call in tool_calls]
    assert sum(result.ok for result in done.results) == 1500


@virtual_time
async def test_what_runs_ends_when_the_run_is_out_of_time():
    async def hang(call: Call) -> None:
        await asyncio.sleep(30)

    async def quick(call: Call) -> str:
        return "quick"

    toolset = Handlers(hang=hang, quick=quick)
    tool_calls = [Call("quick", {}, "q"), *(Call("hang", {}, f"h{n}") for n in range(6))]
    work = Round(tool_calls, {tool.name: tool for tool in await toolset.tools()}, toolset, Limits())
    began = now()
    events = [event async for event in work.run(Context(), until=began + 0.05)]
    assert now() - began == pytest.approx(0.05)
    assert [result.code for result in work.results] == ["", *["limit_reached"] * 6]
    assert sum(isinstance(event, ToolFinished) for event in events) == 7


async def test_what_a_tool_raises_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture):
    async def divide(_: Call) -> str:
        return str(1 / 0)

    (result,) = finished(await everything(FakeModel(calls(Call("divide", {}, "c1")), says("oh")), Handlers(divide=divide)))
    assert result.code == "internal_error"
    (record,) = caplog.records
    assert record.getMessage() == "the tool divide raised ZeroDivisionError"
    assert "return str(1 / 0)" in caplog.text


async def test_a_round_that_is_over_leaves_nothing_to_the_garbage_collector():
    """Cycles would keep each call's values until the next collection, which costs more than the call."""

    async def add(a: int, b: int) -> int:
        return a + b

    gc.disable()
    try:
        work, events = await attended(Functions(add), *(Call("add", {"a": 1, "b": number}, f"c{number}") for number in range(3)))
        over = weakref.ref(work)
        del work, events
        await asyncio.sleep(0)
        assert over() is None
    finally:
        gc.enable()


async def test_a_tool_that_ends_in_a_way_that_cannot_be_caught_is_answered_for():
    class Leaving(BaseException):
        pass

    async def leave() -> None:
        raise Leaving("gone for good")

    work, _ = await attended(Functions(leave), Call("leave", {}, "c"))
    assert [result.text for result in work.results] == ["internal_error: gone for good"]
