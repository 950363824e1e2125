"""Confirmed: calls a person is asked about."""

from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.approval import Approved, Denied, Policy, Rule
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.wrap import Confirmed
from tests.conftest import Clock
from tests.fakes import Recording
from tests.tools.wrap.recording import items, result

ANY = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = (Tool("look", parameters=ANY), Tool("wipe", parameters=ANY, side_effects=True))
WIPE = Call("wipe", {"path": "/tmp"}, "c1")


@pytest.fixture
def inner() -> Recording:
    return Recording(*TOOLS)


@pytest.mark.req("R93")
async def test_side_effects_are_asked_about_and_nothing_runs(inner: Recording):
    (question,) = await items(Confirmed(inner), WIPE)
    assert question == ConfirmationNeeded(question.id, WIPE, "wipe has side effects", tool=TOOLS[1])
    assert inner.calls == []
    assert (await items(Confirmed(inner), replace(WIPE, name="look")))[-1].ok


async def test_a_tool_that_is_not_shown_does_not_run_unasked(inner: Recording):
    refusal = await result(Confirmed(inner), replace(WIPE, name="hidden"))
    assert (refusal.code, inner.calls) == ("bad_request", [])
    assert refusal.text == "bad_request: there is no tool 'hidden'. The tools are: look, wipe"


@pytest.mark.req("R94")
async def test_after_a_yes_the_call_runs(inner: Recording):
    assert (await items(Confirmed(inner), WIPE, Context(decisions={"c1": Approved()})))[-1].content == "wipe done"
    assert inner.calls == [WIPE]


@pytest.mark.req("R94")
async def test_after_a_no_the_model_is_told(inner: Recording):
    (refusal,) = await items(Confirmed(inner), WIPE, Context(decisions={"c1": Denied("not that folder")}))
    assert refusal == Result("c1", "wipe", "denied: not that folder", ok=False, code="denied")
    assert inner.calls == []


async def test_a_no_counts_also_where_nobody_had_to_ask(inner: Recording):
    context = Context(decisions={"c1": Denied()}, granted=frozenset(tool.grant for tool in TOOLS))
    for name in ("look", "wipe"):
        assert (await result(Confirmed(inner), replace(WIPE, name=name), context)).code == "denied"


async def test_nobody_can_work_out_the_id_of_a_question(inner: Recording):
    toolset = Confirmed(inner)
    ids = {(await items(toolset, WIPE))[0].id for _ in range(3)}
    assert len(ids) == 3
    assert all(len(id) == len("confirm_") + 24 for id in ids)


async def test_a_question_may_expire(inner: Recording, clock: Clock):
    (question,) = await items(Confirmed(inner, expires=60), WIPE)
    assert question.expires == clock.now + 60


async def test_what_is_granted_is_not_asked_about_again(inner: Recording):
    assert (await items(Confirmed(inner), WIPE, Context(granted=frozenset({TOOLS[1].grant}))))[-1].ok


async def test_what_is_forbidden_stays_so_whatever_a_person_says(inner: Recording):
    policy = Policy((Rule("deny", tools="w*", reason="never here"),))
    context = Context(decisions={"c1": Approved()}, granted=frozenset({TOOLS[1].grant}))
    outcome = await result(Confirmed(inner, policy), WIPE, context)
    assert (outcome.code, outcome.text) == ("denied", "denied: never here")


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
    last = (await items(Confirmed(inner), WIPE, context))[-1]
    assert inner.calls == [Call("wipe", {"path": "/tmp/x"}, "c1")]
    assert last.text == 'wipe done\n(A person changed the arguments before the call ran: {"path": "/tmp/x"})'
    same = Context(decisions={"c1": Approved({"path": "/tmp"})})
    assert (await items(Confirmed(inner), WIPE, same))[-1].text == "wipe done"


async def test_changed_arguments_must_fit_and_must_not_be_forbidden(inner: Recording):
    policy = Policy((Rule("deny", when=lambda arguments: arguments["path"] == "/", reason="not the root"),))
    refusal = await result(Confirmed(inner, policy), WIPE, Context(decisions={"c1": Approved({"path": 5})}))
    assert refusal.code == "bad_request"
    assert "5 is not of type" in refusal.text
    refusal = await result(Confirmed(inner, policy), WIPE, Context(decisions={"c1": Approved({"path": "/"})}))
    assert (refusal.code, refusal.text) == ("denied", "denied: not the root")
    assert inner.calls == []


async def test_a_rule_that_fails_leaves_it_to_a_person_and_loosens_nothing(inner: Recording):
    policy = Policy((Rule("auto", when=lambda arguments: arguments["nothing"] == 1),))
    (question,) = await items(Confirmed(inner, policy), replace(WIPE, name="look"))
    assert question.reason == "a rule for look failed: 'nothing'"
    forbidden = Context(tighten=Policy((Rule("deny"),)))
    assert (await result(Confirmed(inner, policy), WIPE, forbidden)).code == "denied"
