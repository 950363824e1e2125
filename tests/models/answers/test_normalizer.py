from typing import Any

import pytest

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text, Thought, Unreadable
from callsmith.core.values import Call, Message, Tool
from callsmith.models.answers.grounding import CallJudge
from callsmith.models.answers.normalizer import AnswerNormalizer

ADD = Call("add", {"a": 1})


def normalizer(**options: Any) -> AnswerNormalizer:
    return AnswerNormalizer(**{"may_call": True, "parallel": True, **options})


def events_of(index: int, id: str = "") -> list[ModelEvent]:
    return [CallStarted(index, "add", id), CallArguments(index, ADD.text), CallReady(index, ADD)]


def test_every_call_gets_one_id_for_all_its_events():
    answer = normalizer(id_pattern="[a-z0-9]{9}")
    filtered = list(answer.filter([*events_of(0), *events_of(1, "own"), *events_of(2, "own")]))
    started = [event.id for event in filtered if isinstance(event, CallStarted)]
    assert [event.call.id for event in filtered if isinstance(event, CallReady)] == started
    assert len(started[0]) == 9 and started[1] == "own" and len(set(started)) == 3


@pytest.mark.parametrize("reads_on", [False, True])
def test_what_is_said_behind_calls_is_left_out_and_ends_the_answer_unless_calls_may_follow(reads_on: bool):
    answer = normalizer(reads_on=reads_on)
    filtered = list(answer.filter([Text("So: "), *events_of(0), Text("]"), Thought("hm"), *events_of(1), Stopped("stop")]))
    assert [event for event in filtered if isinstance(event, Text | Thought)] == [Text("So: ")]
    assert len(answer.calls) == (2 if reads_on else 1) and answer.is_complete is not reads_on
    assert filtered[-1] == Stopped("calls")


def test_of_several_calls_the_first_stays_where_one_is_allowed_and_none_where_none_is():
    both = [CallStarted(0, "add"), CallStarted(1, "add"), *events_of(1)[1:], *events_of(0)[1:]]
    one, none = normalizer(parallel=False), normalizer(may_call=False)
    assert [getattr(event, "index", None) for event in one.filter(both)] == [0, 0, 0]
    assert list(none.filter([*both, Text("Hi"), Stopped("calls")])) == [Text("Hi"), Stopped("stop")]


def test_a_call_that_cannot_be_read_leaves_nothing_of_it_withheld():
    answer = normalizer(judge=CallJudge([Tool("add")], [Message.user("Add 1, please.")], 9.0))
    assert list(answer.filter([CallStarted(0, "add")])) == []
    broken = Unreadable("{", "truncated", 0)
    assert list(answer.filter([broken])) == [broken]
    assert [event.index for event in answer.filter(events_of(1)) if isinstance(event, CallStarted)] == [1]
    assert not answer.is_calling
