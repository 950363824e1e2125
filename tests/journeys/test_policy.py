"""Choice policies through the whole run: what is asked of the engine on every hop."""

from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.events import TurnEnded
from callsmith.core.values import Choice, ChoicePolicy, Message, Request
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel, Traits
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run
from callsmith.tools.functions import Functions, tool

CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
ASK = Request((Message.user("What time is it?"),))


@tool
def now() -> str:
    """The time."""
    return "noon"


async def hops(policy: ChoicePolicy, *replies: str, request: Request = ASK, **limits: Any) -> tuple[list[bool], TurnEnded]:
    """Whether a call was required, hop by hop, and how it ended."""
    engine = Scripted(replies)
    model = LocalModel(engine, format_named("hermes"), Template(CHATML), Traits(policy=policy))
    events = [event async for event in run(model, Functions(now), request, limits=Limits(**limits))]
    assert isinstance(events[-1], TurnEnded)
    return [request.grammar is not None for request in engine.asked], events[-1]


@pytest.mark.req("R33")
async def test_under_auto_no_hop_is_constrained():
    assert (await hops("auto", CALL, "Noon."))[0] == [False, False]


@pytest.mark.req("R34")
async def test_under_required_first_hop_a_call_must_come_first_and_then_the_model_may_answer():
    required, ended = await hops("required_first_hop", CALL, CALL, "Noon.")
    assert required == [True, False, False]
    assert ended.messages[-1].content == "Noon."


@pytest.mark.req("R34")
async def test_the_next_thing_the_user_says_begins_with_a_first_hop_again():
    _, first = await hops("required_first_hop", CALL, "Noon.")
    request = Request((*ASK.messages, *first.messages, Message.user("And now?")))
    assert (await hops("required_first_hop", CALL, "Still noon.", request=request))[0] == [True, False]


@pytest.mark.req("R35")
async def test_under_required_always_only_the_limit_ends_the_calls():
    required, ended = await hops("required_always", CALL, CALL, CALL, "Noon.", iterations=2)
    assert required == [True, True, True, False]
    assert ended.messages[-1].content == "Noon."


async def test_a_call_that_is_demanded_is_demanded_once_also_under_a_policy():
    request = replace(ASK, choice=Choice("required"))
    assert (await hops("required_first_hop", CALL, "Noon.", request=request))[0] == [True, False]


async def test_a_request_may_bring_its_own_policy():
    request = replace(ASK, policy="required_first_hop")
    assert (await hops("auto", CALL, "Noon.", request=request))[0] == [True, False]
