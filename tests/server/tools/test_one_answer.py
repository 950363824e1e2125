"""A run shown as one answer."""

import pytest

from callsmith.core.events import ConfirmationNeeded, Report, RunEvent, Started, Stopped, Text, TurnEnded
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Call, Tool, Usage
from callsmith.server.tools.one_answer import OneAnswer


def test_an_answer_begins_once_however_often_the_model_is_asked():
    answer = OneAnswer()
    rounds: list[RunEvent] = [Started(Usage(7)), Stopped("calls", Usage(7, 2)), Started(Usage(20)), Text("so")]
    events = [event for happened in [*rounds, TurnEnded((), "stop", Usage(27, 4))] for event in answer.add(happened)]
    assert events == [Started(Usage(7)), Text("so"), Stopped("stop", Usage(27, 4))]


def test_an_answer_has_the_first_decision_of_its_rounds():
    first, later = CallDecision(True, 1.3, -1.5), CallDecision(False, -2.0, -1.5)
    begun: list[RunEvent] = [Started(Usage(7), first), Stopped("calls", report=Report(retries=1))]
    ended: list[RunEvent] = [Started(Usage(9), later), Stopped("stop", report=Report(decision=later)), TurnEnded((), "stop")]
    answer = OneAnswer()
    events = [event for happened in [*begun, *ended] for event in answer.add(happened)]
    assert events[-1] == Stopped("stop", report=Report(retries=1, decision=first))


@pytest.mark.parametrize(("tool", "is_named"), [(None, False), (Tool("pay"), False), (Tool("pay", source="mcp:bank"), True)])
def test_who_runs_a_call_at_once_is_only_said_of_mcp_servers(tool: Tool | None, is_named: bool):
    question = ConfirmationNeeded("confirm_1", Call("pay", {}, "c1"), "it pays", tool=tool)
    (text,) = (event.text for event in OneAnswer().add(question) if isinstance(event, Text))
    assert "confirm_1" in text and ("--mcp-allow=pay" in text) == is_named
