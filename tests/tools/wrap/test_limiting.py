"""Timed, Limited: how long and how many."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from callsmith.core.events import ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Tool
from callsmith.tools.functions import Functions
from callsmith.tools.wrap import Limited, Rate, Timed
from tests.fakes import Recording
from tests.tools.contract import outcome
from tests.tools.wrap.recording import NOBODY, items
from tests.virtual_time import virtual_time


@virtual_time
async def test_what_takes_too_long_is_stopped():
    inner = Recording(Tool("slow"), run=lambda _: asyncio.sleep(30))
    progress, last = await outcome(Timed(inner, 0.05).call(Call("slow", {}, "c1"), NOBODY))
    assert (len(progress), last.code, last.text) == (1, "timeout", "timeout: slow gave no answer within 0.05 s")
    assert inner.closed == 1


@virtual_time
async def test_progress_does_not_prolong_the_time():
    async def forever() -> AsyncIterator[ToolProgress]:
        while True:
            await asyncio.sleep(0.02)
            yield ToolProgress("")

    progress, last = await outcome(Timed(Functions(forever), 0.1).call(Call("forever", {}, "c1"), NOBODY))
    assert len(progress) == 4
    assert last.code == "timeout"


@virtual_time
async def test_a_reader_who_takes_his_time_is_not_the_tools_fault():
    inner = Recording(Tool("quick"))
    async for item in Timed(inner, 0.1).call(Call("quick", {}, "c1"), NOBODY):
        if isinstance(item, ToolProgress):
            await asyncio.sleep(0.2)
    assert item.content == "quick done"


async def test_a_timeout_inside_the_tool_is_not_ours():
    async def run(_: Call) -> str:
        raise TimeoutError("the database")

    with pytest.raises(TimeoutError, match="the database"):
        await items(Timed(Recording(Tool("x"), run=run), 5), Call("x", {}, "c1"))


@pytest.mark.req("R95")
def test_only_so_many_run_at_a_time_in_every_event_loop():
    running = most = 0

    async def run(_: Call) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return "ok"

    limited = Limited(Recording(Tool("x"), run=run), parallel=2)

    async def crowd() -> None:
        await asyncio.gather(*(items(limited, Call("x", {}, f"c{number}")) for number in range(6)))

    asyncio.run(crowd())
    asyncio.run(crowd())
    assert most == 2


async def test_a_budget_is_a_conversations_own():
    limited = Limited(Recording(Tool("search_web"), Tool("add")), budgets={"search_*": 2})
    call = Call("search_web", {}, "c1")
    for number in range(3):
        last = (await items(limited, call, Context("one")))[-1]
        assert last.ok == (number < 2)
    assert (last.code, last.text) == ("limit_reached", "limit_reached: the 2 calls this conversation has for search_* are spent")
    assert (await items(limited, call, Context("two")))[-1].ok
    assert (await items(limited, replace(call, name="add"), Context("one")))[-1].ok


@virtual_time
async def test_too_many_calls_in_a_span_are_refused_until_it_is_over():
    limited = Limited(Recording(Tool("x")), rate=Rate(2, 0.2))
    call = Call("x", {}, "c1")
    results = [(await items(limited, call))[-1] for _ in range(3)]
    assert [result.ok for result in results] == [True, True, False]
    assert "no more than 2 calls in 0.2 s; again in" in results[2].text
    await asyncio.sleep(0.21)
    assert (await items(limited, call))[-1].ok


@virtual_time
async def test_a_refused_call_costs_neither_the_rate_nor_a_budget():
    limited = Limited(Recording(Tool("x")), budgets={"x": 1}, rate=Rate(2, 0.2))
    mine, yours = Context(conversation="mine"), Context(conversation="yours")
    call = Call("x", {}, "c1")
    codes = [(await items(limited, call, whose))[-1].code for whose in (mine, mine, mine, yours)]
    assert codes == ["", "limit_reached", "limit_reached", ""]
    theirs = Context(conversation="theirs")
    assert (await items(limited, call, theirs))[-1].code == "limit_reached"  # by the rate
    await asyncio.sleep(0.25)
    assert (await items(limited, call, theirs))[-1].ok
