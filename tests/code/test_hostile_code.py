"""What code cannot do: run for ever, fill the memory, reach files or the network, fill the journal."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

pytest.importorskip("pydantic_monty")

from callsmith.core.events import CallEvent
from callsmith.core.ports import Checkpoint, Context
from callsmith.core.values import Call, Result, Tool
from tests.code.code_runs import QUICK, Fixed, run_code


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("while True: pass", "TimeoutError"),
        ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "TimeoutError"),
        ("x = [0]\nwhile True: x = x + x", "MemoryError"),
        ("'a' * 10**12", "MemoryError"),
        ("10 ** 10 ** 9", "MemoryError"),
        ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
        ("(" * 5000 + "1" + ")" * 5000, "SyntaxError"),
        ("import subprocess", "ModuleNotFoundError"),
        ("import socket", "ModuleNotFoundError"),
        ("import os\nos.listdir('/')", "PermissionError"),
        ("import os\nos.environ['HOME']", "RuntimeError"),
        ("open('/etc/passwd').read()", "PermissionError"),
        ("().__class__.__bases__[0].__subclasses__()", "AttributeError"),
        ("add.__globals__", "AttributeError"),
        ("while True: print('x' * 1000)", "more characters were printed"),
        ("n = 0\nwhile True:\n    n += 1\n    add(n)", "the code makes more than 100 calls"),
        ("n = 0\nwhile True:\n    try:\n        add(n)\n    except BaseException: pass", "the code makes more than 100 calls"),
        ("import asyncio\nawait asyncio.gather(*[add(n) for n in range(10000)])", "the code makes more than 100 calls"),
        ("while True:\n    try:\n        missing()\n    except NameError: pass", "Error"),
        ("add('x' * 1000000)", "takes at most 100,000 characters"),
        ("10 ** 5000", "digits"),
        ("#" * 20_001, "at most 20,000 are run"),
        ("x = []\nx.append(x)\nx", ""),
    ],
)
async def test_hostile_code_is_stopped_with_a_word(code: str, text: str):
    limits = replace(QUICK, seconds=15.0) if text == "MemoryError" else QUICK  # on a busy machine time would be over first
    async with asyncio.timeout(20):
        result = await run_code(code, limits=limits)
    assert text in result.text
    assert len(result.text) < 30_000
    assert not result.ok or not text


async def test_code_that_sleeps_does_not_wait():
    async with asyncio.timeout(5):
        assert (await run_code("import time\ntime.sleep(1000)\n'up'")).text == "up"


async def test_long_output_is_cut():
    result = await run_code("print('x' * 50000)\n'y' * 50000")
    assert result.ok
    assert "(30,001 more characters were printed)" in result.text
    assert len(result.text) < 41_000


async def test_a_result_that_is_too_long_is_an_error_for_the_code():
    result = await run_code("read()", Fixed(Tool("read"), "x" * 200_000))
    assert "limit_reached: read gave 200,002 characters" in result.text


async def test_all_results_together_are_bounded_and_so_is_the_journal():
    saved = list[str]()

    async def save(value: str) -> None:
        saved.append(value)

    code = "for n in range(100):\n    read()"
    context = Context(checkpoint=Checkpoint("", save))
    result = await run_code(code, Fixed(Tool("read", side_effects=False), "x" * 90_000), context)
    assert "code reads at most 100,000 of a result and 1,000,000 of all: ask for less" in result.text
    assert "not undone: read (11 times)" in result.text
    assert max(map(len, saved)) < 1_100_000
    assert len(saved) < 20  # one for each result: a call that may be made again need not be entered before it runs


async def test_calls_at_a_time_are_bounded_too():
    read = Fixed(Tool("read"), "x" * 90_000)
    code = "import asyncio\nawait asyncio.gather(*[read() for n in range(100)])"
    assert "1,000,000 of all: ask for less" in (await run_code(code, read)).text
    code = "import asyncio\nawait asyncio.gather(*[add('x' * 90_000) for n in range(100)])"
    assert "the code passes more than 1,000,000 characters to its calls" in (await run_code(code)).text


async def test_long_errors_of_tools_are_cut():
    class Failing(Fixed):
        async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
            yield Result(call.id, call.name, self.content, ok=False)

    failing = Failing(Tool("read"), "y" * 200_000)
    result = await run_code("try:\n    read()\nexcept RuntimeError as error:\n    print(len(str(error)))", failing)
    assert int(result.text) < 3_000
