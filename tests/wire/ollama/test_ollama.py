"""Ollama's dialect: what is read, what is refused, and that nothing is lost on the way out or back."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsmith.core.errors import LimitReached, ModelError, UnknownName, UsageError
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Report, Stopped, Text, Thought, Unreadable
from callsmith.core.ports import ModelInfo, WeightsInfo
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Call, Choice, Message, Output, Request, Sampling, Tool, Usage
from callsmith.wire.model_list import ListedModel, write_tag
from callsmith.wire.ollama.events import LineReader, LineWriter, OllamaHeading, write_response
from callsmith.wire.ollama.requests import OllamaRequest, read_chat, read_generate, write_chat, write_error
from tests.effort import tries
from tests.wire.drawn import CALLS, DECISIONS, bodies
from tests.wire.openai.test_chat import requests

HI = [{"role": "user", "content": "hi"}]
ADD = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def read(**body: Any) -> Request:
    return read_chat({"model": "m", "messages": HI, **body}).request


def heading(chat: bool = True) -> OllamaHeading:
    ticks = iter(range(10, 10_000, 10))
    return OllamaHeading("m", "2026-01-01T00:00:00Z", lambda: next(ticks), 0, chat)


# What is read


def test_a_plain_request_is_a_stream_and_leaves_everything_to_the_model():
    assert read_chat({"model": "m", "messages": HI}) == OllamaRequest("m", Request((Message.user("hi"),)), stream=True)
    assert not read_chat({"model": "m", "messages": HI, "stream": False}).stream


def test_a_request_without_messages_asks_nothing():
    assert read_chat({"model": "m"}).request.messages == ()
    assert read_generate({"model": "m", "keep_alive": 0}).request.messages == ()
    assert read_generate({"model": "m", "system": "be brief"}).request.messages == ()


def test_options_are_sampling_and_how_a_model_is_loaded_is_skipped():
    options = {"temperature": 0.5, "top_k": 0, "top_p": 0.9, "min_p": 0.1, "seed": 7, "num_predict": 20, "stop": ["END"]}
    assert read(options={**options, "num_ctx": 4096, "num_gpu": 1}).sampling == Sampling(0.5, 0.9, 0, 0.1, 7, 20, ("END",))
    assert read(options={"num_predict": -1}, keep_alive="5m").sampling == Sampling()
    assert read(options={"num_predict": -2}).sampling == Sampling()


def test_a_repeat_penalty_looks_back_on_64_tokens_unless_the_request_says():
    assert read(options={"repeat_penalty": 1.2}).sampling == Sampling(repetition_penalty=1.2, penalty_window=64)
    assert read(options={"repeat_penalty": 1.2, "repeat_last_n": 8}).sampling.penalty_window == 8
    assert read(options={"repeat_penalty": 1.2, "repeat_last_n": -1}).sampling.penalty_window is None
    body = {"presence_penalty": 0.5, "frequency_penalty": -1, "typical_p": 0.7}
    assert read(options=body).sampling == Sampling(presence_penalty=0.5, frequency_penalty=-1.0, typical_p=0.7)


@pytest.mark.parametrize(
    ("spelled", "output"), [(None, None), ("", None), ("json", Output.json_object()), (SCHEMA, Output(SCHEMA))]
)
def test_the_format_is_the_output(spelled: Any, output: Output | None):
    assert read(format=spelled).output == output
    assert read_generate({"model": "m", "prompt": "hi", "format": spelled}).request.output == output
    at_its_word = Output(SCHEMA, as_written=True) if spelled is SCHEMA else output
    assert read(format=spelled, as_written=True).output == at_its_word


@pytest.mark.parametrize(("spelled", "thinking"), [(None, None), (True, True), (False, False), ("high", True)])
def test_whether_to_think_is_a_flag_or_a_level(spelled: Any, thinking: bool | None):
    assert read(think=spelled).thinking is thinking


@pytest.mark.req("R27")
@pytest.mark.req("R28")
@pytest.mark.parametrize(
    ("spelling", "choice"),
    [
        ("none", Choice("none")),
        ("required", Choice("required")),
        ("any", Choice("required")),
        ({"type": "function", "function": {"name": "add"}}, Choice.only("add")),
        ({"name": "add"}, Choice.only("add")),
    ],
)
def test_a_choice_of_tools_is_understood_in_the_spellings_of_chat_completions(spelling: Any, choice: Choice):
    request = read(tools=[ADD], tool_choice=spelling)
    assert request.choice == choice
    assert request.tools == (Tool("add", "Add.", {"type": "object"}),)


def test_results_find_their_calls_by_name_and_order():
    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": arguments}}

    messages = [
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call("add", a=1), call("sub"), call("add", a=2)]},
        {"role": "tool", "content": "one", "tool_name": "add"},
        {"role": "tool", "content": "two", "tool_name": "add"},
        {"role": "tool", "content": "three"},
        {"role": "tool", "content": "four", "tool_name": "other"},
    ]
    turn, *results = read(messages=messages).messages
    assert turn.reasoning == "hm"
    assert [(call.name, dict(call.arguments)) for call in turn.calls] == [("add", {"a": 1}), ("sub", {}), ("add", {"a": 2})]
    first, second, third = (call.id for call in turn.calls)
    assert len({first, second, third}) == 3
    assert [(result.name, result.call_id) for result in results] == [
        ("add", first),
        ("add", third),
        ("sub", second),
        ("other", ""),
    ]


def test_a_prompt_is_a_users_message_behind_the_systems():
    request = read_generate({"model": "m", "prompt": "hi", "system": "be brief", "think": True})
    assert request.request.messages == (Message.system("be brief"), Message.user("hi"))
    assert request.request.thinking is True


def test_a_last_message_of_the_assistants_is_the_beginning_of_the_answer():
    assert read(messages=[*HI, {"role": "assistant", "content": "{"}]).prefilled == Message.assistant("{")
    assert read(messages=HI).prefilled is None


# What is refused


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages.0.images.0"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]},
         "messages.0.tool_calls.0.function.arguments"),
        ({"format": "yaml"}, "format"),
        ({"format": {"type": "strin"}}, "format"),
        ({"think": "much"}, "think"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"options": {"repeat_penalty": -1}}, "options.repeat_penalty"),
        ({"options": {"mirostat": 2}}, "options.mirostat"),
        ({"options": {"temperature": "warm"}}, "options.temperature"),
        ({"options": {"num_predict": 0}}, "options.num_predict"),
        ({"tools": [ADD], "tool_choice": {"name": "sub"}}, "tool_choice"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_would_be_ignored_is_refused_by_name(body: dict[str, Any], field: str):
    with pytest.raises(UsageError) as caught:
        read_chat({"model": "m", "messages": HI, **body})
    assert caught.value.field == field
    assert write_error(caught.value).status == 400


@pytest.mark.parametrize("field", ["suffix", "template", "raw", "context", "images"])
def test_prompts_that_go_around_the_chat_template_are_refused(field: str):
    value: Any = {"raw": True, "context": [1], "images": ["aGk="]}.get(field, "x")
    with pytest.raises(UsageError) as caught:
        read_generate({"model": "m", "prompt": "hi", field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("error", "status"), [(UnknownName("model", "x", ["m"]), 404), (LimitReached("queue", "full"), 429), (ValueError("x"), 500)]
)
def test_an_error_is_one_text(error: Exception, status: int):
    failure = write_error(error)
    assert failure.status == status
    assert isinstance(failure.body["error"], str)


@given(bodies("messages tools tool_choice options format think stream prompt system keep_alive"))
@settings(max_examples=tries(50, 200), deadline=None)
def test_no_body_whatever_makes_reading_fail_otherwise_than_by_a_usage_error(body: Any):
    for attempt in (body, {"model": "m", "messages": HI, "prompt": "hi", **body} if isinstance(body, dict) else body):
        for reading in (read_chat, read_generate):
            with contextlib.suppress(UsageError):
                reading(attempt)


# What is answered


def test_a_stream_ends_with_what_it_has_cost():
    writer = LineWriter(heading())
    lines = [line for event in (Thought("hm"), Text("so"), Stopped("length", Usage(7, 3))) for line in writer.write(event)]
    thought, text, end = lines
    assert thought["message"] == {"role": "assistant", "content": "", "thinking": "hm"}
    assert text == {
        "model": "m", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant", "content": "so"}, "done": False
    }  # fmt: skip
    assert end["done"]
    assert end["done_reason"] == "length"
    assert (end["prompt_eval_count"], end["eval_count"]) == (7, 3)
    assert end["total_duration"] == end["load_duration"] + end["prompt_eval_duration"] + end["eval_duration"]
    assert min(end[key] for key in ("load_duration", "prompt_eval_duration", "eval_duration")) > 0
    assert writer.close() == []


def test_an_answer_without_an_end_gets_one():
    writer = LineWriter(heading())
    writer.write(Text("so"))
    (end,) = writer.close()
    assert (end["done"], end["done_reason"]) == (True, "stop")


def test_a_call_comes_whole_with_its_arguments_as_an_object():
    call = Call("add", {"a": 1}, "c1")
    writer = LineWriter(heading())
    events = [CallStarted(3, "add", "c1"), CallArguments(3, '{"a": 1}'), CallReady(3, call)]
    ((line),) = [line for event in events for line in writer.write(event)]
    assert line["message"]["tool_calls"] == [{"id": "c1", "function": {"index": 0, "name": "add", "arguments": {"a": 1}}}]


def test_what_began_like_a_call_and_is_none_is_not_lost():
    whole = write_response([CallStarted(0, "add"), Unreadable('{"a": ', "cut off", 0), Stopped("length")], heading())
    assert whole["message"] == {"role": "assistant", "content": '{"a": '}
    assert whole["done_reason"] == "length"


def test_a_whole_answer_says_what_the_stream_says():
    events = [Thought("h"), Thought("m"), Text("so "), Text("it is"), CallReady(0, Call("add", {"a": 1})), Stopped("calls")]
    whole = write_response(events, heading())
    assert whole["message"]["thinking"] == "hm"
    assert whole["message"]["content"] == "so it is"
    assert len(whole["message"]["tool_calls"]) == 1
    assert whole["done"]
    plain = write_response(events[:4], heading(chat=False))
    assert (plain["response"], plain["thinking"]) == ("so it is", "hm")
    assert "message" not in plain


@pytest.mark.parametrize(
    ("value", "stays", "seconds"),
    [(None, False, None), ("5m", True, 300), (90, True, 90), (0, True, 0), ("0", True, 0), (-1, True, None), ("-1s", True, None)],
)
def test_a_request_may_say_how_long_the_model_stays_loaded(value: Any, stays: bool, seconds: float | None):
    for request in (read_chat({"model": "m", "keep_alive": value}), read_generate({"model": "m", "keep_alive": value})):
        assert (request.stays, request.stay_seconds) == (stays, seconds)


@pytest.mark.parametrize("value", ["soon", True, [], "", 1e400])
def test_a_keep_alive_that_is_no_time_is_refused(value: Any):
    with pytest.raises(UsageError, match="keep_alive: expected seconds"):
        read_generate({"model": "m", "keep_alive": value})


@pytest.mark.parametrize(
    ("weights", "size"),
    [
        (WeightsInfo(parameters=1_543_714_304), "1.5B"),
        (WeightsInfo(parameters=134_515_008), "134.52M"),
        (WeightsInfo(parameters=1_777_088_000, size_label="1.5B"), "1.5B"),
        (WeightsInfo(), ""),
    ],
)
def test_the_size_of_a_model_is_what_it_calls_itself_or_its_parameters(weights: WeightsInfo, size: str):
    assert write_tag(ListedModel("m", info=ModelInfo(weights=weights)))["details"]["parameter_size"] == size


# The laws


@given(requests())
@settings(max_examples=tries(20, 60), deadline=None)
def test_a_request_survives_the_way_there_and_back(chat: Any):
    messages = tuple(replace(message, name=message.name if message.role == "tool" else "") for message in chat.request.messages)
    prefill = bool(messages) and messages[-1].role == "assistant" and not messages[-1].calls
    request = OllamaRequest(chat.model, replace(chat.request, messages=_consistent(messages), prefill=prefill), chat.stream)
    assert read_chat(json.loads(json.dumps(write_chat(request)))) == request


def _consistent(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Ids that are nobody's call's: here a result is given its call's name."""
    return tuple(replace(message, call_id=f"r-{message.call_id}") if message.role == "tool" else message for message in messages)


@given(
    st.lists(st.text(min_size=1).map(Text) | st.text(min_size=1).map(Thought), max_size=4), st.lists(CALLS, max_size=3), DECISIONS
)
@settings(max_examples=tries(20, 60), deadline=None)
def test_an_answer_survives_the_way_there_and_back(
    answer_events: list[ModelEvent], calls: list[Call], decision: CallDecision | None
):
    events: list[ModelEvent] = [*answer_events]
    for index, call in enumerate(calls):
        whole = Call(call.name, call.arguments, call.id)
        events += [CallStarted(index, whole.name, whole.id), CallArguments(index, whole.text), CallReady(index, whole)]
    events.append(Stopped("calls" if calls else "stop", Usage(7, 3), Report(decision=decision)))
    writer, reader = LineWriter(heading()), LineReader()
    lines = [line for event in events for line in writer.write(event)]
    read_back = [event for line in lines for event in reader.feed(json.loads(json.dumps(line)))]
    assert [*read_back, *reader.close()] == events


def test_an_error_in_place_of_a_line_is_raised():
    with pytest.raises(ModelError, match="out of memory"):
        LineReader().feed({"error": "out of memory"})
