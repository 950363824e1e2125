"""Runs inside tools: how deep they may go, and what they take over from the run around them."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from callsmith.core.approval import Approved, Policy, Rule
from callsmith.core.events import ConfirmationNeeded, ToolFinished, TurnEnded
from callsmith.core.ports import Context
from callsmith.core.values import Call, Message, Request
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run
from callsmith.runtime.sync import run_sync
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from tests.fakes import ASKED, FakeModel, calls, ended, everything, finished, says


def asks_itself(seen: list[Context], way: str) -> Functions:
    """A tool that runs a conversation with itself as the tool, in one way or another."""

    def model() -> FakeModel:
        return FakeModel(calls(Call("ask", {}, "c1")), says("asked"))

    async def ask(context: Context) -> str:
        seen.append(context)
        events = [event async for event in run(model(), toolset, ASKED)]
        return "; ".join(result.text for result in finished(events))

    def ask_in_a_thread(context: Context) -> str:
        seen.append(context)
        turn = run_sync(model(), toolset, ASKED)
        return "; ".join(message.content for message in turn.messages if message.role == "tool")

    ways: dict[str, Callable[..., Any]] = {"task": ask, "thread": ask_in_a_thread}
    toolset = Functions(tool(name="ask")(ways[way]))
    return toolset


@pytest.mark.req("R193")
@pytest.mark.req("R96")
@pytest.mark.parametrize("most", [2, 6, 10])
@pytest.mark.parametrize("way", ["task", "thread"])
async def test_recursive_tool_call_limited_by_max_iterations(way: str, most: int):
    """Of the outermost run: those inside it have the limits of their own that everybody has."""
    seen: list[Context] = []
    model = FakeModel(calls(Call("ask", {}, "c1")), says("done"))
    events = await everything(model, asks_itself(seen, way), limits=Limits(iterations=most))
    assert [context.depth for context in seen] == list(range(1, most + 1))
    (result,) = finished(events)
    assert result.text == f"limit_reached: tools that run tools are nested {most} deep, which is the limit"
    assert ended(events).messages[-1].content == "done"


async def test_the_limit_of_depth_reaches_the_model_around_it_as_a_failure():
    async def strict() -> None:
        await everything(FakeModel(says("never")), Functions(), limits=Limits(depth=1))

    (result,) = finished(await everything(FakeModel(calls(Call("strict", {}, "c1")), says("done")), Functions(strict)))
    assert (result.ok, result.code) == (False, "limit_reached")


async def test_a_run_beside_others_is_not_inside_them():
    seen: list[int] = []

    async def look(context: Context) -> None:
        seen.append(context.depth)
        await asyncio.sleep(0.01)

    model = FakeModel(calls(Call("look", {}, "a"), Call("look", {}, "b")), calls(Call("look", {}, "c")), says("done"))
    await asyncio.gather(*(everything(model_, Functions(look)) for model_ in (model, FakeModel(*model.answers))))
    await everything(FakeModel(calls(Call("look", {}, "a")), says("done")), Functions(look))
    assert set(seen) == {1}


@tool(side_effects=True)
async def pay(euros: int) -> str:
    """Send money."""
    return f"paid {euros}"


@pytest.mark.req("R97")
@pytest.mark.parametrize("passed_on", [False, True])
async def test_a_run_inside_a_tool_keeps_its_callers_policy_and_has_no_claim_to_its_decisions(passed_on: bool):
    inside: list[Any] = []

    async def agent(context: Context) -> str:
        options = {"context": context} if passed_on else {}
        inner = FakeModel(calls(Call("rate", {}, "r"), Call("pay", {"euros": 9}, "c1")), says("done"))
        inside.extend(await everything(inner, Confirmed(Functions(pay, rate)), **options))
        return context.subject

    async def rate() -> int:
        return 7

    outer = Confirmed(Functions(tool(side_effects=True)(agent), pay))
    context = Context(subject="ada", decisions={"c1": Approved()}, granted=frozenset({"pay"}), tighten=Policy(otherwise="ask"))
    history = Request((*ASKED.messages, Message.assistant(calls=[Call("agent", {}, "c1")])))
    events = await everything(FakeModel(says("done")), outer, history, context=context)
    assert [(result.ok, result.content) for result in finished(events)] == [(True, "ada")]
    names = [event.call.name for event in inside if isinstance(event, ConfirmationNeeded)]
    assert names == ["rate", "pay"]
    assert [event.reason for event in inside if isinstance(event, TurnEnded)] == ["confirmation"]
    assert not any(isinstance(event, ToolFinished) for event in inside)


@pytest.mark.req("R97")
@pytest.mark.parametrize(("outside", "seen"), [("ada", "ada"), ("", "bob")])
async def test_a_run_inside_a_tool_is_made_for_the_same_caller_whoever_it_says_it_is_for(outside: str, seen: str):
    async def who(context: Context) -> str:
        return context.subject

    async def agent() -> str:
        inner = FakeModel(calls(Call("who", {}, "c1")), says("done"))
        (result,) = finished(await everything(inner, Functions(who), context=Context(subject="bob")))
        return result.text

    model = FakeModel(calls(Call("agent", {}, "c1")), says("done"))
    (result,) = finished(await everything(model, Functions(agent), context=Context(subject=outside)))
    assert result.content == seen


async def test_a_tool_inside_a_run_that_was_given_up_is_told_that_nobody_waits():
    was_stopped = threading.Event()

    def watch(context: Context) -> None:
        for _ in range(300):
            if context.cancelled():
                was_stopped.set()
                return
            time.sleep(0.01)

    def agent() -> str:
        return run_sync(FakeModel(calls(Call("watch", {}, "c1")), says("done")), Functions(watch), ASKED).reason

    model = FakeModel(calls(Call("agent", {}, "c1")), says("done"))
    (result,) = finished(await everything(model, Functions(agent), limits=Limits(seconds=0.1)))
    assert result.code == "timeout"
    assert await asyncio.to_thread(was_stopped.wait, 3)


async def test_a_run_in_a_thread_that_was_given_up_makes_no_further_call():
    started: list[str] = []
    over = threading.Event()

    def agent() -> str:
        inner = FakeModel(calls(Call("slow", {}, "c1")), calls(Call("act", {}, "c2")), says("done"))
        try:
            return run_sync(inner, Functions(slow, act), ASKED).reason
        finally:
            over.set()

    def slow() -> None:
        started.append("slow")
        time.sleep(0.3)

    def act() -> None:
        started.append("act")

    model = FakeModel(calls(Call("agent", {}, "c1")), says("done"))
    (result,) = finished(await everything(model, Functions(agent), limits=Limits(seconds=0.1)))
    assert result.code == "timeout"
    assert await asyncio.to_thread(over.wait, 3)
    assert started == ["slow"]


@pytest.mark.req("R97")
async def test_a_run_inside_a_tool_is_held_to_its_callers_rules_and_to_its_own():
    inside: list[tuple[str, str]] = []

    async def look() -> str:
        return "seen"

    async def rate() -> int:
        return 7

    async def agent() -> str:
        inner = FakeModel(calls(Call("look", {}, "a"), Call("rate", {}, "b"), Call("pay", {"euros": 9}, "c")), says("done"))
        own = Context(tighten=Policy((Rule("deny", tools="rate"),), side_effects="auto"))
        events = await everything(inner, Confirmed(Functions(look, rate, pay), Policy(side_effects="auto")), context=own)
        inside.extend((result.name, result.code) for result in finished(events))
        return "done"

    callers = Context(tighten=Policy((Rule("deny", tools="pay"),)))
    await everything(FakeModel(calls(Call("agent", {}, "c1")), says("done")), Functions(agent), context=callers)
    assert sorted(inside) == [("look", ""), ("pay", "denied"), ("rate", "denied")]
