"""A run shown as one answer."""

from callsmith.core.events import RunEvent, Started, Stopped, Text, TurnEnded
from callsmith.core.values import Usage
from callsmith.server.tools.one_answer import OneAnswer


def test_an_answer_begins_once_however_often_the_model_is_asked():
    answer = OneAnswer()
    rounds: list[RunEvent] = [Started(Usage(7)), Stopped("calls", Usage(7, 2)), Started(Usage(20)), Text("so")]
    shown = [event for happened in [*rounds, TurnEnded((), "stop", Usage(27, 4))] for event in answer.add(happened)]
    assert shown == [Started(Usage(7)), Text("so"), Stopped("stop", Usage(27, 4))]
