"""What the adapters to agent frameworks share, without any of the frameworks."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest

from callsmith import Confirmed, Functions, tool
from callsmith.adapters.frameworks.asking import AskedModel
from callsmith.adapters.frameworks.blocking import iterate, wait_for
from callsmith.adapters.frameworks.toolsets import callable_tools
from callsmith.core.approval import Approved, ConfirmationRequired
from callsmith.core.errors import MissingExtra, TimedOut, UsageError
from callsmith.core.events import Text, ToolFinished
from callsmith.core.values import Tool
from callsmith.runtime.execute import Limits
from tests.fakes import FakeModel

PACKAGES = {"crewai": "crewai", "langchain": "langchain_core", "llamaindex": "llama_index"}
NUMBER: ContextVar[int] = ContextVar("number")


@tool
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@tool(side_effects=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def numbers(until: int, ended: list[int] | None = None) -> AsyncIterator[int]:
    try:
        for number in range(until):
            await asyncio.sleep(0)
            yield number
    finally:
        if ended is not None:
            ended.append(until)


# --- blocking -------------------------------------------------------------------------------------------------------------------


def test_items_come_one_by_one_and_whoever_stops_early_stops_the_iterator():
    ended: list[int] = []
    assert list(iterate(numbers(3, ended))) == [0, 1, 2]
    some = iterate(numbers(1_000_000_000, ended))
    assert [next(some), next(some)] == [0, 1]
    some.close()
    for _ in range(100):  # it ends in its own thread
        wait_for(asyncio.sleep(0.001))
        if len(ended) == 2:
            break
    assert ended == [3, 1_000_000_000]


def test_what_the_work_raises_is_raised_here():
    async def failing() -> AsyncIterator[int]:
        yield 1
        raise ValueError("no more")

    items = iterate(failing())
    assert next(items) == 1
    with pytest.raises(ValueError, match="no more"):
        next(items)


def test_the_work_sees_the_context_variables_of_the_caller():
    async def seen() -> int:
        return NUMBER.get()

    NUMBER.set(7)
    assert wait_for(seen()) == 7


async def test_it_works_inside_a_running_loop_and_is_refused_in_its_own():
    async def inner() -> int:
        return wait_for(asyncio.sleep(0, 1))

    assert wait_for(asyncio.sleep(0, 5)) == 5
    with pytest.raises(UsageError, match="await it instead"):
        wait_for(inner())


def test_many_threads_share_one_loop():
    def loop_of_one() -> None:
        loops.append(wait_for(running()))

    async def running() -> int:
        return id(asyncio.get_running_loop())

    loops: list[int] = []
    threads = [threading.Thread(target=loop_of_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loops) == 8
    assert len(set(loops)) == 1


OPEN_AT_THE_END = """
import asyncio
from callsmith.adapters.frameworks.blocking import iterate, wait_for

async def kept():
    try:
        yield 1
    finally:
        print("closed")

async def first():
    return await anext(connection)

async def endless():
    try:
        yield 1
        await asyncio.sleep(3600)
    finally:
        print("cancelled")

connection, items = kept(), iterate(endless())
print(wait_for(first()), next(items))
"""


def test_what_is_open_when_the_program_ends_is_closed():
    done = subprocess.run([sys.executable, "-c", OPEN_AT_THE_END], capture_output=True, text=True, check=True, timeout=60)
    assert sorted(done.stdout.split()) == ["1", "1", "cancelled", "closed"]
    assert done.stderr == ""


# --- asking ---------------------------------------------------------------------------------------------------------------------

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


async def said(lazy_model: AskedModel, **more: object) -> str:
    events = [event async for event in lazy_model.stream({**HELLO, **more})]  # pyright: ignore
    return "".join(event.text for event in events if isinstance(event, Text))


async def test_a_spec_is_opened_once_and_a_request_may_name_another():
    model = AskedModel("scripted:Hi.")
    assert model.name == "scripted:Hi."
    assert [await said(model), await said(model, model="scripted:Bye.")] == ["Hi.", "Bye."]
    await model.close()


async def test_a_body_that_is_wrong_is_refused_by_the_name_of_the_field():
    with pytest.raises(UsageError, match="temperature"):
        await said(AskedModel("scripted:Hi."), temperature="hot")
    with pytest.raises(UsageError, match="model: expected a Model or a str"):
        AskedModel(5)  # pyright: ignore


async def test_an_answer_that_takes_too_long_is_a_timeout():
    class Slow:
        async def stream(self, request: object) -> AsyncIterator[Text]:
            yield Text("so ")
            await asyncio.sleep(60)

    with pytest.raises(TimedOut, match=r"not answered within 0\.01 s"):
        async for _ in AskedModel(Slow()).stream(HELLO, seconds=0.01):  # pyright: ignore
            pass


async def test_a_model_that_cannot_count_says_so():
    with pytest.raises(UsageError, match="cannot count"):
        await AskedModel(FakeModel([])).count(HELLO)


# --- toolsets -------------------------------------------------------------------------------------------------------------------


async def test_tools_are_called_as_in_a_run():
    (doubled,) = callable_tools(Functions(double), limits=Limits(result_characters=3))
    assert (await doubled.run({"number": 4})).content == 8
    wrong = await doubled.run({"number": "four"})
    assert (wrong.ok, wrong.code) == (False, "bad_request")
    assert doubled.text(wrong).startswith("inv\n[Cut here")


async def test_a_decision_counts_only_for_the_tool_as_it_was_shown():
    toolset = Confirmed(Functions(pay))
    (paying,) = callable_tools(toolset)
    call = paying.call({"amount": 5})
    with pytest.raises(ConfirmationRequired):
        [event async for event in paying.events(call)]
    (ran,) = [event async for event in paying.events(call, Approved()) if isinstance(event, ToolFinished)]
    assert ran.result.content == "paid 5"
    (callable_tool,) = callable_tools(toolset, [Tool("pay", "Harmless.")])
    with pytest.raises(ConfirmationRequired, match="not the tool that was asked about"):
        [event async for event in callable_tool.events(callable_tool.call({"amount": 5}), Approved())]


# --- what is not installed ------------------------------------------------------------------------------------------------------


@pytest.mark.req("R149")
@pytest.mark.parametrize("adapter", PACKAGES)
def test_an_adapter_whose_package_is_missing_names_the_extra(adapter: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, PACKAGES[adapter], None)
    for name in [module for module in sys.modules if module.startswith(f"callsmith.adapters.{adapter}")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=rf"pip install 'callsmith\[{adapter}\]'"):
        __import__(f"callsmith.adapters.{adapter}")


@pytest.mark.req("R149")
def test_importing_callsmith_imports_no_framework():
    program = f"import sys, callsmith, callsmith.adapters; print(*{{*{[*PACKAGES.values()]}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
