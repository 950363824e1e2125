"""Toolsets around toolsets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.approval import Approved, Denied, Policy, Rule
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded, ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Cached, Confirmed, Filtered, Limited, Merged, Rate, Renamed, Retried, Timed, fitting

from .contract import ToolsetContract, outcome

NOBODY = Context()


@tool(idempotent=True)
async def count(to: int) -> AsyncIterator[ToolProgress | int]:
    """Count."""
    for current in range(to):
        yield ToolProgress("", current=current, total=to)
    yield to


@tool(side_effects=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


class Recording:
    """A toolset that runs one coroutine for every call, remembers calls and contexts, and counts how often it was closed."""

    def __init__(self, *tools: Tool, run: Any = None) -> None:
        self._tools = tools
        self._run = run
        self.calls: list[Call] = []
        self.contexts: list[Context] = []
        self.closed = 0

    async def tools(self) -> Sequence[Tool]:
        return self._tools

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        self.calls.append(call)
        self.contexts.append(context)
        try:
            yield ToolProgress(call.id, "working")
            content = await self._run(call) if self._run else f"{call.name} done"
            yield content if isinstance(content, Result) else Result(call.id, call.name, content)
        finally:
            self.closed += 1


async def items(toolset: Toolset, call: Call, context: Context = NOBODY) -> list[Any]:
    return [item async for item in toolset.call(call, context)]


async def result(toolset: Toolset, call: Call, context: Context = NOBODY) -> Result:
    return (await outcome(toolset.call(call, context)))[1]


async def names(toolset: Toolset) -> list[str]:
    return [tool.name for tool in await toolset.tools()]


WRAPPERS = {
    "merged": lambda inner: Merged(inner, Functions(delete)),
    "prefixed": lambda inner: Merged(("a", inner), prefix="always"),
    "renamed": lambda inner: Renamed(inner, {"count": "a_count"}),
    "filtered": lambda inner: Filtered(inner, allow="c*"),
    "confirmed": lambda inner: Confirmed(inner, Policy()),
    "timed": lambda inner: Timed(inner, 5),
    "cached": lambda inner: Cached(inner, 60, 10),
    "retried": lambda inner: Retried(inner, 2, 0),
    "limited": lambda inner: Limited(inner, parallel=2, budgets={"*": 9}, rate=Rate(9, 60)),
}


class TestEveryWrapper(ToolsetContract):
    working = Call("count", {"to": 2}, "c1")

    @pytest.fixture(params=WRAPPERS)
    def toolset(self, request: pytest.FixtureRequest) -> Toolset:
        if request.param in ("prefixed", "renamed"):
            self.working = replace(self.working, name="a_count")
        return WRAPPERS[request.param](Functions(count))

    async def test_progress_comes_through(self, toolset: Toolset):
        progress, last = await outcome(toolset.call(self.working, NOBODY))
        assert [one.current for one in progress] == [0, 1]
        assert last.content == 2


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_what_is_not_read_to_its_end_is_closed(wrap):
    inner = Recording(Tool("count", idempotent=True))
    toolset = wrap(inner)
    reading = toolset.call(Call((await names(toolset))[0], {}, "c1"), NOBODY)
    assert isinstance(await anext(reading), ToolProgress)
    await reading.aclose()
    assert inner.closed == 1


@pytest.mark.req("R97")
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_the_caller_is_the_same_inside(wrap):
    inner = Recording(Tool("count", idempotent=True))
    toolset = wrap(inner)
    context = Context("talk", "ada", 2, tighten=Policy())
    await items(toolset, Call((await names(toolset))[0], {}, "c1"), context)
    assert inner.contexts == [context]


# Merged, Renamed, Filtered


@pytest.mark.req("R155")
async def test_merged_tools_keep_their_names_unless_two_have_the_same():
    files, web = Recording(Tool("read"), Tool("search")), Recording(Tool("search"))
    both = Merged(("files", files), ("my web", web))
    assert await names(both) == ["read", "files_search", "my_web_search"]
    answer = await result(both, Call("my_web_search", {}, "c1"))
    assert (answer.name, answer.content) == ("my_web_search", "search done")
    assert [call.name for call in web.calls] == ["search"]
    assert files.calls == []


async def test_merged_tools_are_all_prefixed_on_demand():
    assert await names(Merged(("a", Recording(Tool("x"))), Recording(Tool("y", source="b:c")), prefix="always")) == [
        "a_x",
        "b_c_y",
    ]


@pytest.mark.parametrize(
    "merged",
    [
        Merged(("a", Recording(Tool("x"))), ("b", Recording(Tool("x"))), prefix="never"),
        Merged(Recording(Tool("x", source="s")), Recording(Tool("x", source="s"))),
        Merged(("a", Recording(Tool("x"), Tool("a_x"))), ("b", Recording(Tool("x")))),
    ],
)
async def test_a_collision_that_remains_is_an_error(merged: Merged):
    with pytest.raises(UsageError, match="two tools are called"):
        await merged.tools()


async def test_a_name_hidden_by_its_prefix_is_unknown():
    merged = Merged(("a", Recording(Tool("x"))), ("b", Recording(Tool("x"))))
    answer = await result(merged, Call("x", {}, "c1"))
    assert (answer.code, answer.text) == ("not_found", "not_found: no tool 'x'; tools: a_x, b_x")


@pytest.mark.req("R97")
async def test_what_is_granted_for_one_toolset_is_not_granted_for_its_neighbour():
    parts = [Confirmed(Recording(Tool("wipe", side_effects=True))) for _ in range(2)]
    merged = Merged(("a", parts[0]), ("b", parts[1]))
    granted = Context(granted=frozenset({"a_wipe", "wipe"}))
    assert (await items(merged, Call("a_wipe", {}, "c1"), granted))[-1].content == "wipe done"
    (asked,) = await items(merged, Call("b_wipe", {}, "c1"), granted)
    assert (type(asked), asked.call.name) == (ConfirmationNeeded, "b_wipe")


async def test_dotted_and_long_names_become_fit_and_lead_back():
    long = "server/" + "very." * 20 + "long"
    inner = Recording(Tool("rag.query"), Tool(long), Tool("plain-one_2"))
    renamed = Renamed(inner)
    dotted, short, plain = await names(renamed)
    assert (dotted, plain) == ("rag_query", "plain-one_2")
    assert len(short) == 64
    assert short.startswith("server_very_very")
    for name in (dotted, short, plain):
        assert (await result(renamed, Call(name, {}, "c1"))).name == name
    assert [call.name for call in inner.calls] == ["rag.query", long, "plain-one_2"]


async def test_names_that_would_become_the_same_are_told_apart_whatever_their_order():
    first = await names(Renamed(Recording(Tool("a.b"), Tool("a_b"), Tool("a:b"))))
    second = await names(Renamed(Recording(Tool("a:b"), Tool("a.b"), Tool("a_b"))))
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 3
    assert "a_b" in first
    assert all(fitting(name) == name for name in first)


async def test_a_rule_of_ones_own_renames_and_a_table_that_collides_is_an_error():
    assert await names(Renamed(Recording(Tool("a"), Tool("b")), str.upper)) == ["A", "B"]
    with pytest.raises(UsageError, match="two tools would be called 'b'"):
        await Renamed(Recording(Tool("a"), Tool("b")), {"a": "b"}).tools()


@pytest.mark.parametrize(
    ("which", "left"),
    [
        ({}, ["read", "write", "read_all"]),
        ({"allow": "read*"}, ["read", "read_all"]),
        ({"allow": ["read", "write"], "deny": "w*"}, ["read"]),
        ({"deny": lambda tool: tool.side_effects}, ["read", "read_all"]),
        ({"allow": lambda tool: tool.name == "write"}, ["write"]),
    ],
)
async def test_only_tools_that_are_allowed_and_not_denied_exist(which: dict[str, Any], left: list[str]):
    inner = Recording(Tool("read"), Tool("write", side_effects=True), Tool("read_all"))
    filtered = Filtered(inner, **which)
    assert await names(filtered) == left
    for name in ("read", "write", "read_all"):
        assert (await items(filtered, Call(name, {}, "c")))[-1].code == ("" if name in left else "not_found")


# Confirmed

ANY = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = (Tool("look", parameters=ANY), Tool("wipe", parameters=ANY, side_effects=True))
WIPE = Call("wipe", {"path": "/tmp"}, "c1")


@pytest.fixture
def inner() -> Recording:
    return Recording(*TOOLS)


@pytest.mark.req("R93")
async def test_side_effects_are_asked_about_and_nothing_runs(inner: Recording):
    (asked,) = await items(Confirmed(inner), WIPE)
    assert asked == ConfirmationNeeded(asked.id, WIPE, "wipe has side effects")
    assert inner.calls == []
    assert (await items(Confirmed(inner), replace(WIPE, name="look")))[-1].ok


@pytest.mark.req("R94")
async def test_after_a_yes_the_call_runs(inner: Recording):
    assert (await items(Confirmed(inner), WIPE, Context(decisions={"c1": Approved()})))[-1].content == "wipe done"
    assert inner.calls == [WIPE]


@pytest.mark.req("R94")
async def test_after_a_no_the_model_is_told(inner: Recording):
    (told,) = await items(Confirmed(inner), WIPE, Context(decisions={"c1": Denied("not that folder")}))
    assert told == Result("c1", "wipe", "denied: not that folder", ok=False, code="denied")
    assert inner.calls == []


async def test_a_no_counts_also_where_nobody_had_to_ask(inner: Recording):
    context = Context(decisions={"c1": Denied()}, granted=frozenset({"wipe", "look"}))
    for name in ("look", "wipe"):
        assert (await result(Confirmed(inner), replace(WIPE, name=name), context)).code == "denied"


async def test_the_question_has_the_same_id_whenever_it_is_asked_and_another_for_another_call(inner: Recording):
    async def asked(call: Call, context: Context = NOBODY) -> str:
        return (await items(Confirmed(inner), call, context))[0].id

    assert await asked(WIPE) == await asked(Call("wipe", {"path": "/tmp"}, "c1", text='{ "path": "/tmp" }'))
    others = [replace(WIPE, id="c2"), replace(WIPE, arguments={"path": "/"})]
    ids = [await asked(WIPE), *[await asked(call) for call in others], await asked(WIPE, Context("other"))]
    assert len(set(ids)) == 4


async def test_a_question_may_expire(inner: Recording):
    import time

    (asked,) = await items(Confirmed(inner, expires=60), WIPE)
    assert time.time() + 50 < asked.expires <= time.time() + 60


async def test_what_is_granted_is_not_asked_about_again(inner: Recording):
    assert (await items(Confirmed(inner), WIPE, Context(granted=frozenset({"wipe"}))))[-1].ok


async def test_what_is_forbidden_stays_so_whatever_a_person_says(inner: Recording):
    policy = Policy((Rule("deny", tools="w*", reason="never here"),))
    context = Context(decisions={"c1": Approved()}, granted=frozenset({"wipe"}))
    told = await result(Confirmed(inner, policy), WIPE, context)
    assert (told.code, told.text) == ("denied", "denied: never here")


@pytest.mark.req("R97")
@pytest.mark.parametrize(
    ("own", "tighten", "verdict"),
    [
        ("auto", "ask", "ask"),
        ("ask", "auto", "ask"),
        ("deny", "auto", "deny"),
        ("auto", "deny", "deny"),
        ("auto", "auto", "auto"),
    ],
)
async def test_a_request_can_tighten_the_policy_and_not_loosen_it(inner: Recording, own: Any, tighten: Any, verdict: str):
    context = Context(tighten=Policy((Rule(tighten),)))
    *_, last = await items(Confirmed(inner, Policy((Rule(own),))), WIPE, context)
    became = "ask" if isinstance(last, ConfirmationNeeded) else "auto" if last.ok else "deny"
    assert became == verdict


async def test_a_person_may_change_the_arguments_and_the_model_is_told(inner: Recording):
    context = Context(decisions={"c1": Approved({"path": "/tmp/x"})})
    told = (await items(Confirmed(inner), WIPE, context))[-1]
    assert inner.calls == [Call("wipe", {"path": "/tmp/x"}, "c1")]
    assert told.text == 'wipe done\n(A person changed the arguments before the call ran: {"path": "/tmp/x"})'
    same = Context(decisions={"c1": Approved({"path": "/tmp"})})
    assert (await items(Confirmed(inner), WIPE, same))[-1].text == "wipe done"


async def test_changed_arguments_must_fit_and_must_not_be_forbidden(inner: Recording):
    policy = Policy((Rule("deny", when=lambda given: given["path"] == "/", reason="not the root"),))
    told = await result(Confirmed(inner, policy), WIPE, Context(decisions={"c1": Approved({"path": 5})}))
    assert told.code == "bad_request"
    assert "5 is not of type" in told.text
    told = await result(Confirmed(inner, policy), WIPE, Context(decisions={"c1": Approved({"path": "/"})}))
    assert (told.code, told.text) == ("denied", "denied: not the root")
    assert inner.calls == []


async def test_a_rule_that_fails_leaves_it_to_a_person_and_loosens_nothing(inner: Recording):
    policy = Policy((Rule("auto", when=lambda given: given["nothing"] == 1),))
    (asked,) = await items(Confirmed(inner, policy), replace(WIPE, name="look"))
    assert asked.reason == "a rule for look failed: 'nothing'"
    forbidden = Context(tighten=Policy((Rule("deny"),)))
    assert (await result(Confirmed(inner, policy), WIPE, forbidden)).code == "denied"


# Timed, Retried, Limited


async def test_what_takes_too_long_is_stopped():
    inner = Recording(Tool("slow"), run=lambda _: asyncio.sleep(30))
    progress, told = await outcome(Timed(inner, 0.05).call(Call("slow", {}, "c1"), NOBODY))
    assert (len(progress), told.code, told.text) == (1, "timeout", "timeout: slow gave no answer within 0.05 s")
    assert inner.closed == 1


async def test_progress_does_not_prolong_the_time():
    async def forever() -> AsyncIterator[ToolProgress]:
        while True:
            await asyncio.sleep(0.02)
            yield ToolProgress("")

    progress, told = await outcome(Timed(Functions(forever), 0.1).call(Call("forever", {}, "c1"), NOBODY))
    assert 0 < len(progress) < 6
    assert told.code == "timeout"


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


def failing(times: int, failure: Exception | Result):
    left = times

    async def run(call: Call) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            return "at last"
        if isinstance(failure, Result):
            return failure
        raise failure

    return run


TIMEOUT = Result("c1", "x", "timeout: slow", ok=False, code="timeout")


@pytest.mark.parametrize("failure", [ConnectionError("gone"), TIMEOUT])
async def test_a_passing_failure_is_tried_again_if_that_does_no_harm(failure: Any):
    inner = Recording(Tool("x", idempotent=True), run=failing(2, failure))
    progress, told = await outcome(Retried(inner, 3, 0).call(Call("x", {}, "c1"), NOBODY))
    assert told.content == "at last"
    assert [one.text for one in progress if "attempt" in one.text] == [
        f"attempt {number} of 3 failed: {failure.text if isinstance(failure, Result) else failure}" for number in (1, 2)
    ]
    assert inner.closed == 3


async def test_a_tool_that_is_not_idempotent_is_tried_once():
    inner = Recording(Tool("x"), run=failing(1, ConnectionError("gone")))
    with pytest.raises(ConnectionError):
        await items(Retried(inner, 3, 0), Call("x", {}, "c1"))
    assert len(inner.calls) == 1


async def test_the_last_failure_is_the_callers():
    with pytest.raises(ConnectionError):
        await items(Retried(Recording(Tool("x", idempotent=True), run=failing(9, ConnectionError())), 2, 0), Call("x", {}, "c1"))
    told = (await items(Retried(Recording(Tool("x", idempotent=True), run=failing(9, TIMEOUT)), 2, 0), Call("x", {}, "c1")))[-1]
    assert told == TIMEOUT


async def test_a_failure_that_will_not_pass_is_not_tried_again():
    wrong = Result("c1", "x", "bad_request: no", ok=False, code="bad_request")
    inner = Recording(Tool("x", idempotent=True), run=failing(9, wrong))
    assert (await items(Retried(inner, 3, 0), Call("x", {}, "c1")))[-1] == wrong
    assert len(inner.calls) == 1


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
        told = (await items(limited, call, Context("one")))[-1]
        assert told.ok == (number < 2)
    assert (told.code, told.text) == (
        "limit_reached",
        "limit_reached: the 2 calls this conversation has for search_* are spent",
    )
    assert (await items(limited, call, Context("two")))[-1].ok
    assert (await items(limited, replace(call, name="add"), Context("one")))[-1].ok


async def test_too_many_calls_in_a_span_are_refused_until_it_is_over():
    limited = Limited(Recording(Tool("x")), rate=Rate(2, 0.2))
    call = Call("x", {}, "c1")
    told = [(await items(limited, call))[-1] for _ in range(3)]
    assert [one.ok for one in told] == [True, True, False]
    assert "no more than 2 calls in 0.2 s; again in" in told[2].text
    await asyncio.sleep(0.21)
    assert (await items(limited, call))[-1].ok


# Cached

PURE = Tool("x", idempotent=True)
ASK = Call("x", {"a": 1, "b": 2}, "c1")


async def test_the_same_call_is_answered_from_the_cache_and_says_so():
    inner = Recording(PURE)
    cached = Cached(inner)
    await items(cached, ASK)
    progress, told = await outcome(cached.call(Call("x", {"b": 2, "a": 1}, "c2"), NOBODY))
    assert told == Result("c2", "x", "x done")
    assert [one.text for one in progress] == ["from the cache, 0 s old"]
    assert len(inner.calls) == 1


@pytest.mark.req("R97")
@pytest.mark.parametrize(
    ("first", "second", "runs"),
    [
        (Context(subject="ada"), Context(subject="bob"), 2),
        (Context("a"), Context("b"), 2),
        (Context("a", subject="ada"), Context("b", subject="ada"), 1),
        (Context("ada"), Context(subject="ada"), 2),
    ],
)
async def test_callers_never_share(first: Context, second: Context, runs: int):
    inner = Recording(PURE)
    cached = Cached(inner)
    await items(cached, ASK, first)
    await items(cached, ASK, second)
    assert len(inner.calls) == runs


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
    assert [str(one) for one in both] == ["no", "no"]
    assert (await items(cached, ASK))[-1].content == "at last"
    assert len(inner.calls) == 2


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


async def test_when_the_last_caller_leaves_the_call_is_given_up():
    inner = Recording(PURE, run=lambda _: asyncio.sleep(30))
    cached = Cached(inner)
    leaving = [asyncio.create_task(items(cached, ASK)) for _ in range(2)]
    await asyncio.sleep(0.01)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    assert (len(inner.calls), inner.closed) == (1, 1)


async def test_each_caller_is_told_that_the_tool_starts_and_one_who_left_cannot_stop_it_for_the_others():
    go, told, looked = asyncio.Event(), list[str](), list[bool]()

    @tool(idempotent=True)
    async def look(context: Context) -> str:
        await go.wait()
        looked.append(context.cancelled())
        return "seen"

    def caller(name: str) -> Context:
        async def starting() -> None:
            told.append(name)
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
    assert (told, looked) == (["leaves", "stays", "late"], [False])
    await items(cached, Call("look", {}, "c4"), caller("later"))
    assert told[-1] == "later"


async def test_a_question_inside_a_cache_is_asked_for_each_call():
    cached = Cached(Confirmed(Recording(PURE), Policy((Rule("ask"),))))
    first, second = await asyncio.gather(items(cached, ASK), items(cached, replace(ASK, id="c2")))
    assert [one.call.id for one in (*first, *second)] == ["c1", "c2"]
    assert first[0].id != second[0].id
