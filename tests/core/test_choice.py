"""The choice policy: one pure function of the request and the model's own policy."""

from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.choice import apply_policy, is_first_hop, policy_named
from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.values import Call, Choice, Message, Output, Request, Result, Tool

CALL = Call("now", id="c1")
USER = Message.user("What time is it?")
CALLED, RESULT = Message.assistant(calls=[CALL]), Message.tool(Result("c1", "now", "noon"))
FIRST = (USER,)
SECOND = (USER, CALLED, RESULT)
NEXT_TURN = (*SECOND, Message.assistant("Noon."), Message.user("And now?"))
ASK = Request(FIRST, (Tool("now"),))
REQUIRED = Choice("required")


@pytest.mark.parametrize(
    ("policy", "messages", "choice"),
    [
        pytest.param("auto", FIRST, Choice(), marks=pytest.mark.req("R33")),
        pytest.param("auto", SECOND, Choice(), marks=pytest.mark.req("R33")),
        pytest.param("required_first_hop", FIRST, REQUIRED, marks=pytest.mark.req("R34")),
        pytest.param("required_first_hop", SECOND, Choice(), marks=pytest.mark.req("R34")),
        pytest.param("required_first_hop", NEXT_TURN, REQUIRED, marks=pytest.mark.req("R34")),
        pytest.param("required_always", FIRST, REQUIRED, marks=pytest.mark.req("R35")),
        pytest.param("required_always", SECOND, REQUIRED, marks=pytest.mark.req("R35")),
    ],
)
def test_a_policy_decides_by_what_the_history_holds(policy: Any, messages: tuple[Message, ...], choice: Choice):
    assert apply_policy(replace(ASK, messages=messages), policy) == choice
    assert apply_policy(replace(ASK, messages=messages, policy=policy), "auto") == choice


def test_the_requests_own_policy_wins_over_the_models():
    assert apply_policy(replace(ASK, policy="auto"), "required_always") == Choice()


@pytest.mark.parametrize("choice", [Choice("none"), REQUIRED, Choice.only("now")])
def test_a_choice_that_is_made_wins_over_every_policy(choice: Choice):
    for policy in ("auto", "required_first_hop", "required_always"):
        assert apply_policy(replace(ASK, choice=choice), policy) == choice


def test_a_policy_keeps_to_the_tools_that_are_allowed_and_requires_nothing_where_there_are_none():
    assert apply_policy(replace(ASK, choice=Choice("auto", ("now",))), "required_always") == Choice.only("now")
    assert apply_policy(replace(ASK, tools=()), "required_always") == Choice()


def test_the_first_hop_is_the_one_before_any_result():
    assert is_first_hop(())
    assert is_first_hop((Message.system("Be brief."), USER, CALLED))
    assert not is_first_hop((*SECOND, Message.system("Hurry.")))


def test_a_policy_nobody_knows_is_an_error():
    with pytest.raises(UnknownName, match="required_first_hop"):
        policy_named("required_first_hops")


@pytest.mark.parametrize("fields", [{}, {"schema": {}, "pattern": "a"}, {"choices": ("a",), "grammar": "start: A"}])
def test_an_output_is_given_in_exactly_one_way(fields: dict[str, Any]):
    with pytest.raises(UsageError, match="exactly one"):
        Output(**fields)
    with pytest.raises(UsageError, match="empty"):
        Output(choices=("a", ""))
