"""`call_bias` in requests and decisions in answers: read and written alike in all dialects."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given

from callsmith.core.errors import UsageError
from callsmith.core.events import Report, Started, Stopped
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Choice, Message, Request, Tool, Usage
from callsmith.wire.anthropic import messages
from callsmith.wire.capability.chat import read_chat, write_chat
from callsmith.wire.capability.chat_frames import ChatFrameReader, ChatFrameWriter
from callsmith.wire.extensions import write_report
from callsmith.wire.ollama import requests as ollama
from callsmith.wire.openai import chat, responses
from callsmith.wire.upstream.quirks import Quirks, fit_request
from tests.wire.drawn import BIASES

HI: Any = [{"role": "user", "content": "hi"}]
READERS: Mapping[str, Callable[[Any], Any]] = {
    "chat": lambda more: chat.read_request({"messages": HI, **more}),
    "responses": lambda more: responses.read_request({"input": "hi", **more}),
    "messages": lambda more: messages.read_request({"messages": HI, "max_tokens": 9, **more}),
    "ollama": lambda more: ollama.read_chat({"messages": HI, **more}),
    "llm.chat": lambda more: read_chat({"input": {"messages": HI, **more}}),
}
ASKED = Request((Message.user("hi"),), (Tool("add"),), call_bias=2.0)
DECIDED = CallDecision(True, 1.3, -1.5)


@pytest.mark.parametrize("dialect", READERS)
@pytest.mark.parametrize(("value", "read"), [(2, 2.0), (-20, -20.0), (20.0, 20.0), (0, 0.0), (None, None)])
def test_a_bias_is_a_number_within_its_bounds(dialect: str, value: Any, read: float | None):
    assert READERS[dialect]({"call_bias": value}).request.call_bias == read


@pytest.mark.parametrize("dialect", READERS)
@pytest.mark.parametrize("value", [20.01, -21, math.nan, math.inf, -math.inf, 10**400, True, "2", [2]])
def test_a_bias_that_is_none_is_refused_by_name(dialect: str, value: Any):
    with pytest.raises(UsageError) as caught:
        READERS[dialect]({"call_bias": value})
    assert (caught.value.field or "").endswith("call_bias")


@given(BIASES)
def test_a_bias_survives_the_way_over_the_bus_and_back(bias: float | None):
    request = Request((Message.user("hi"),), (Tool("add"),), call_bias=bias)
    assert read_chat(json.loads(json.dumps(write_chat("m", request)))).request.call_bias == bias


@pytest.mark.parametrize(
    "events", [[Started(Usage(1), DECIDED), Stopped("stop")], [Stopped("stop", report=Report(decision=DECIDED))]]
)
def test_a_decision_survives_the_way_over_the_bus_and_back(events: list[Any]):
    writer = ChatFrameWriter()
    later = Stopped("stop", report=Report(decision=CallDecision(False, -3.0, -1.5)))
    assert [frame for event in [*events, later] for frame in writer.write(event)] == []
    assert writer.answer("m", "stop", 5)["meta"]["decision"] == {"calls": True, "score": 1.3, "threshold": -1.5}
    [stopped] = ChatFrameReader().read(writer.end("m", "stop", 5))
    assert stopped == Stopped("stop", report=Report(decision=DECIDED))


def test_where_nothing_was_decided_nothing_is_told():
    writer = ChatFrameWriter()
    writer.write(Started(Usage(1)))
    assert "decision" not in writer.end("m", "stop", 5).data
    assert "decision" not in write_report(Report(retries=1))["callsmith"]
    assert write_report(Report()) == {}


@pytest.mark.parametrize(
    ("score", "expected"), [(1.2999, 1.3), (-0.001, 0.0), (math.inf, 1e6), (-math.inf, -1e6), (-7.126, -7.13)]
)
def test_scores_are_written_to_two_places_and_are_always_json(score: float, expected: float):
    output = write_report(Report(decision=CallDecision(False, score, score)))["callsmith"]["decision"]
    assert output == {"calls": False, "score": expected, "threshold": expected}
    assert str(output["score"]) == str(expected)
    json.dumps(output, allow_nan=False)


@pytest.mark.parametrize(
    ("sent_request", "left_out"),
    [
        (ASKED, ("call_bias: this API does not take it",)),
        (Request(ASKED.messages, ASKED.tools, Choice("required"), call_bias=2.0), ()),
        (Request(ASKED.messages, call_bias=2.0), ()),
        (Request(ASKED.messages, ASKED.tools, call_bias=0.0), ()),
    ],
)
def test_a_model_of_another_server_is_not_sent_the_bias_and_that_is_told_where_it_matters(
    sent_request: Request, left_out: tuple[str, ...]
):
    fitted, notes = fit_request(sent_request, Quirks())
    assert (fitted.call_bias, notes) == (None, left_out)
