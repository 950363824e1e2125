"""Cached: calls that are not made twice."""

import asyncio
from dataclasses import replace

import pytest

from callsmith.core.approval import Policy, Rule
from callsmith.core.capability.authority import Authority
from callsmith.core.errors import UsageError
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Cached, Confirmed
from tests.fakes import Recording
from tests.tools.contract import outcome
from tests.tools.wrap.recording import NOBODY, TIMEOUT, failing, items
from tests.virtual_time import virtual_time

PURE = Tool("x", idempotent=True)
ASK = Call("x", {"a": 1, "b": 2}, "c1")


@pytest.mark.req("R218")
async def test_the_same_call_is_answered_from_the_cache_and_says_so():
    inner = Recording(PURE)
    cached = Cached(inner)
    await items(cached, ASK)
    progress, last = await outcome(cached.call(Call("x", {"b": 2, "a": 1}, "c2"), NOBODY))
    assert last == Result("c2", "x", "x done", code="cached")
    assert [item.text for item in progress] == ["from the cache, 0 s old"]
    assert len(inner.calls) == 1


@pytest.mark.req("R218")
@pytest.mark.req("R97")
@pytest.mark.parametrize(
    ("first", "second", "runs"),
    [
        (Context(subject="ada"), Context(subject="bob"), 2),
        (Context("a"), Context("b"), 2),
        (Context("a", subject="ada"), Context("b", subject="ada"), 2),
        (Context("a", subject="ada"), Context("a", subject="ada"), 1),
        (Context("a", authority=Authority("ada", token="wide")), Context("a", authority=Authority("ada", token="narrow")), 2),
        (Context("a", authority=Authority("ada", trace_id="1")), Context("a", authority=Authority("ada", trace_id="2")), 1),
        (Context("ada"), Context(subject="ada"), 2),
    ],
)
async def test_callers_never_share(first: Context, second: Context, runs: int):
    inner = Recording(PURE)
    cached = Cached(inner)
    await items(cached, ASK, first)
    await items(cached, ASK, second)
    assert len(inner.calls) == runs


@pytest.mark.req("R218")
@pytest.mark.parametrize("tool", [Tool("x"), Tool("x", idempotent=True, side_effects=True)])
async def test_tools_that_do_something_are_never_cached(tool: Tool):
    inner = Recording(tool)
    cached = Cached(inner)
    await items(cached, ASK)
    await items(cached, ASK)
    assert len(inner.calls) == 2


async def test_another_schema_is_another_tool():
    inner = Recording(PURE)
    cached = Cached(inner)
    await items(cached, ASK)
    inner._tools = (replace(PURE, parameters={"type": "object"}),)
    await items(cached, ASK)
    assert len(inner.calls) == 2


@virtual_time
async def test_failures_and_what_is_too_old_or_too_much_are_not_kept():
    inner = Recording(PURE, run=failing(1, TIMEOUT))
    cached = Cached(inner, ttl=0.05, size=1)
    assert not (await items(cached, ASK))[-1].ok
    assert (await items(cached, ASK))[-1].content == "at last"
    await items(cached, replace(ASK, arguments={}))  # takes the only place
    await items(cached, ASK)
    assert len(inner.calls) == 4
    await asyncio.sleep(0.06)
    await items(cached, ASK)
    await items(cached, ASK)
    assert len(inner.calls) == 5


async def test_what_the_tool_raises_all_who_asked_get_to_hear():
    inner = Recording(PURE, run=failing(1, ValueError("no")))
    cached = Cached(inner)
    both = await asyncio.gather(items(cached, ASK), items(cached, ASK), return_exceptions=True)
    assert [str(item) for item in both] == ["no", "no"]
    assert (await items(cached, ASK))[-1].content == "at last"
    assert len(inner.calls) == 2


@pytest.mark.req("R218")
@virtual_time
async def test_the_same_call_twice_at_once_runs_once_though_one_caller_leaves():
    go = asyncio.Event()

    async def run(_: Call) -> str:
        await go.wait()
        return "done"

    inner = Recording(PURE, run=run)
    cached = Cached(inner)
    leaving = asyncio.create_task(items(cached, ASK))
    staying = asyncio.create_task(items(cached, replace(ASK, id="c2")))
    await asyncio.sleep(0.01)
    leaving.cancel()
    await asyncio.sleep(0.01)
    go.set()
    assert (await staying)[-1] == Result("c2", "x", "done")
    assert len(inner.calls) == 1


@virtual_time
async def test_when_the_last_caller_leaves_the_call_is_given_up():
    inner = Recording(PURE, run=lambda _: asyncio.sleep(30))
    cached = Cached(inner)
    leaving = [asyncio.create_task(items(cached, ASK)) for _ in range(2)]
    await asyncio.sleep(0.01)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    assert (len(inner.calls), inner.closed) == (1, 1)


@virtual_time
async def test_each_caller_is_told_that_the_tool_starts_and_one_who_left_cannot_stop_it_for_the_others():
    go, results, looked = asyncio.Event(), list[str](), list[bool]()

    @tool(idempotent=True)
    async def look(context: Context) -> str:
        await go.wait()
        looked.append(context.cancelled())
        return "seen"

    def caller(name: str) -> Context:
        async def starting() -> None:
            results.append(name)
            if name == "leaves":
                await asyncio.sleep(30)

        return Context(starting=starting, cancelled=lambda: name == "leaves")

    cached = Cached(Functions(look))
    leaving, staying = (asyncio.create_task(items(cached, Call("look", {}, "c1"), caller(name))) for name in ("leaves", "stays"))
    await asyncio.sleep(0.01)
    late = asyncio.create_task(items(cached, Call("look", {}, "c3"), caller("late")))
    await asyncio.sleep(0.01)
    leaving.cancel()
    go.set()
    assert [(await task)[-1].content for task in (staying, late)] == ["seen", "seen"]
    assert (results, looked) == (["leaves", "stays", "late"], [False])
    await items(cached, Call("look", {}, "c4"), caller("later"))
    assert results[-1] == "later"


async def test_a_question_inside_a_cache_is_asked_for_each_call():
    cached = Cached(Confirmed(Recording(PURE), Policy((Rule("ask"),))))
    first, second = await asyncio.gather(items(cached, ASK), items(cached, replace(ASK, id="c2")))
    assert [item.call.id for item in (*first, *second)] == ["c1", "c2"]
    assert first[0].id != second[0].id


@pytest.mark.req("R218")
@virtual_time
async def test_a_tool_says_itself_how_long_its_results_are_cached():
    inner = Recording(replace(PURE, cache_seconds=10.0))
    cached = Cached(inner, ttl=0)
    await items(cached, ASK)
    await asyncio.sleep(9)
    assert (await items(cached, ASK))[-1].code == "cached"
    await asyncio.sleep(2)
    assert (await items(cached, ASK))[-1].code == ""
    never = Recording(replace(PURE, cache_seconds=0.0))
    for _ in range(2):
        assert (await items(Cached(never), ASK))[-1].code == ""


def test_what_has_side_effects_cannot_be_declared_as_cached():
    with pytest.raises(UsageError, match="idempotent and has no side effects"):
        Tool("pay", idempotent=True, side_effects=True, cache_seconds=5.0)
    with pytest.raises(UsageError, match="idempotent and has no side effects"):
        Functions(tool(name="clock", cache_seconds=5.0)(lambda: 1))


@pytest.mark.req("R218")
@virtual_time
async def test_a_call_with_side_effects_ends_what_is_cached_for_its_conversation_and_no_other():
    async def run(call: Call) -> str:
        await asyncio.sleep(1 if call.arguments.get("slow") else 0)
        return "done"

    inner = Recording(PURE, Tool("write", side_effects=True), run=run)
    cached, slow = Cached(inner), Call("x", {"slow": True}, "c9")
    for conversation in ("a", "b"):
        await items(cached, ASK, Context(conversation))
    being_read = asyncio.create_task(items(cached, slow, Context("a")))
    await asyncio.sleep(0.5)
    await items(cached, Call("write", {}, "w"), Context("a"))
    await being_read
    codes = [(await items(cached, call, Context(where)))[-1].code for call, where in ((ASK, "a"), (slow, "a"), (ASK, "b"))]
    assert codes == ["", "", "cached"]
