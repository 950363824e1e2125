"""Conversations with tools that do everything wrong: each call gets its one result, nothing is stuck, nothing leaks."""

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.events import ConfirmationNeeded, ToolFinished, ToolProgress, TurnEnded
from callsmith.core.ports import Context
from callsmith.core.values import Call, Message, Result, Tool
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from tests.fakes import ASKED, FakeModel, calls, says

LIMITS = Limits(seconds=0.3, silence=0.1, result_characters=1000, iterations=3, deadline=20)
HUGE = 50_000_000


async def fine(n: int = 0) -> int:
    """Answers."""
    return n


async def hangs() -> None:
    """Never answers."""
    await asyncio.sleep(3600)


async def clings() -> None:
    """Never answers, and does not want to be cancelled."""
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)


def hangs_in_a_thread(context: Context) -> str:
    """Never answers, but looks up now and then."""
    while not context.cancelled():
        time.sleep(0.01)
    return "too late"


async def raises() -> None:
    """Fails."""
    raise ValueError("no")


def exits() -> None:
    """Wants to end the program."""
    sys.exit(3)


async def cancels_itself() -> None:
    """Is cancelled from inside."""
    raise asyncio.CancelledError


async def rambles():
    """Tells its progress for ever."""
    while True:
        yield ToolProgress("", text="…")
        await asyncio.sleep(0.005)


async def huge() -> str:
    """Answers at length."""
    return "x" * HUGE


@tool(side_effects=True)
async def acts(n: int = 0) -> int:
    """Needs a person's word."""
    return n


async def is_killed() -> str:
    """Runs a program that is killed from outside."""
    program = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        os.kill(program.pid, signal.SIGKILL)
        return f"ended with {await program.wait()}"
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


async def hangs_in_a_program() -> None:
    """Runs a program that never ends."""
    program = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        await program.wait()
    finally:
        program.kill()
        await program.wait()


class Garbage:
    """A toolset that keeps to no rule."""

    async def tools(self) -> list[Tool]:
        return [Tool(name) for name in ("nothing", "nonsense", "no_json", "twice", "surrogate")]

    async def call(self, call: Call, context: Context) -> AsyncIterator[Any]:
        match call.name:
            case "nothing":
                return
            case "nonsense":
                yield {"result": 5}
            case "no_json":
                yield Result(call.id, call.name, {1, 2})
            case "twice":
                yield Result("another", "name", 1)
                yield Result(call.id, call.name, 2)
            case _:
                yield Result(call.id, call.name, "\ud800")


class Both:
    """Good tools and garbage."""

    def __init__(self) -> None:
        functions = (fine, hangs, clings, hangs_in_a_thread, raises, exits, cancels_itself, rambles, huge, acts)
        self._parts = [Confirmed(Functions(*functions, is_killed, hangs_in_a_program)), Garbage()]

    async def tools(self) -> list[Tool]:
        return [tool for part in self._parts for tool in await part.tools()]

    async def call(self, call: Call, context: Context) -> AsyncIterator[Any]:
        part = self._parts[call.name in {tool.name for tool in await Garbage().tools()}]
        async for item in part.call(call, context):
            yield item


QUICK = (
    *("fine", "fine", "fine", "raises", "cancels_itself", "exits", "acts", "no_such_tool"),
    *("nothing", "nonsense", "no_json", "twice", "surrogate"),
)
SLOW = ("hangs", "clings", "hangs_in_a_thread", "rambles")
RARE = ("is_killed", "hangs_in_a_program")


def conversation(chance: random.Random, number: int) -> FakeModel:
    """A model that makes one to six calls, once or for ever, and then answers."""
    names = chance.choices(QUICK, k=chance.randint(1, 6))
    if number % 4 == 0:
        names.append(chance.choice(SLOW))
    if number % 20 == 0:
        names.append(chance.choice(RARE))
    if number % 100 == 50:
        names.append("huge")
    chance.shuffle(names)
    arguments, ids = ({}, {"n": 1}, {"n": "x"}), ("", "same", "another")
    tool_calls = [
        Call(name, chance.choice(arguments if name in ("fine", "acts") else arguments[:1]), chance.choice(ids)) for name in names
    ]
    return FakeModel(calls(*tool_calls)) if number % 10 == 5 else FakeModel(calls(*tool_calls), says("done"))


def each_call_has_its_one_result(messages: Sequence[Message], waiting: list[str]) -> bool:
    for at, message in enumerate(messages):
        if message.calls:
            answers = [reply.call_id for reply in takewhile(lambda reply: reply.role == "tool", messages[at + 1 :])]
            last = at + 1 + len(answers) == len(messages)
            ids = [call.id for call in message.calls]
            if len(set(ids)) < len(ids) or sorted(answers + (waiting if last else [])) != sorted(ids):
                return False
    return True


async def held(number: int, toolset: Both) -> str:
    """Hold one conversation, see that every call has its result, and say how it ended."""
    chance = random.Random(number)
    finished: list[Result] = []
    waiting: list[str] = []
    ended: list[TurnEnded] = []

    async def listen() -> None:
        async for event in run(conversation(chance, number), toolset, ASKED, limits=LIMITS):
            match event:
                case ToolFinished(result):
                    finished.append(result)
                case ConfirmationNeeded(call=call):
                    waiting.append(call.id)
                case TurnEnded():
                    ended.append(event)
                case _:
                    pass

    task = asyncio.create_task(listen())
    if number % 9 == 0:
        await asyncio.sleep(chance.random() * 0.2)
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    if not ended:
        return "cut off"
    (turn,) = ended
    assert each_call_has_its_one_result(turn.messages, waiting), number
    assert len(finished) == sum(message.role == "tool" for message in turn.messages), number
    assert bool(waiting) == (turn.reason == "confirmation"), number
    return turn.reason


def _resident() -> int:
    """Bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _quiet() -> tuple[int, int]:
    """The tasks and threads there are, once what was left behind has had time to end."""
    for _ in range(40):
        tasks = len(asyncio.all_tasks())
        threads = sum(thread.name == "callsmith-tool" for thread in threading.enumerate())
        if tasks == 1 and not threads:
            break
        await asyncio.sleep(0.1)
    return tasks, threads


async def soak(first: int, last: int, *, at_once: int) -> list[str]:
    toolset, gate = Both(), asyncio.Semaphore(at_once)

    async def one(number: int) -> str:
        async with gate:
            return await asyncio.wait_for(held(number, toolset), 60)

    return list(await asyncio.gather(*(one(number) for number in range(first, last))))


def _children() -> list[str]:
    file = Path(f"/proc/self/task/{os.getpid()}/children")
    return file.read_text().split() if file.exists() else []


async def soaked(count: int) -> None:
    logging.getLogger("callsmith.runtime.execute").addFilter(lambda record: False)  # pytest keeps what is logged, frames and all
    children = _children()  # other tests in this process may have some
    await soak(0, 50, at_once=25)
    assert await _quiet() == (1, 0)
    gc.collect()
    tracemalloc.start()
    before, resident = tracemalloc.get_traced_memory()[0], _resident()
    ends = await soak(50, 50 + count, at_once=25)
    assert await _quiet() == (1, 0)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(ends) == count
    assert {"stop", "confirmation", "cut off"} <= set(ends)
    assert grown < 2_000_000 + 200 * count
    assert _resident() - resident < 4 * HUGE
    assert _children() == children


pytestmark = [
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="counts processes and memory as Linux does"),
]


async def test_two_hundred_conversations_leave_nothing_behind():
    await soaked(200)


@pytest.mark.slow
async def test_two_thousand_conversations_leave_nothing_behind():
    await soaked(2000)
