"""Answers of other servers, with what they get wrong: calls are told apart, arguments found, and what was mended is named."""

import json
from typing import Any

import pytest

from callsmith.core.errors import ModelError
from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, Thought
from callsmith.wire.anthropic.events import EventReader as Messages
from callsmith.wire.ollama.events import LineReader
from callsmith.wire.openai.chat_events import EventReader as Chat
from callsmith.wire.openai.responses_events import EventReader as Responses


def read(reader: Any, *sent: Any) -> list[ModelEvent]:
    return [event for item in sent for event in reader.feed(item)] + reader.close()


def calls(events: list[ModelEvent]) -> list[tuple[str, Any, tuple[str, ...]]]:
    return [(event.call.name, event.call.arguments, event.repairs) for event in events if isinstance(event, CallReady)]


def delta(*calls: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": finish}]}


def call(name: str | None, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"index": 0, **fields, "function": {**({"name": name} if name else {}), "arguments": arguments}}


TWO = [("add", {"a": 1}, ()), ("add", {"a": 2}, ("repeated-index",))]


@pytest.mark.parametrize(
    "sent",
    [
        # whole calls, each with an id
        [delta(call("add", '{"a": 1}', id="c1")), delta(call("add", '{"a": 2}', id="c2"))],
        # in one delta
        [delta(call("add", '{"a": 1}', id="c1"), call("add", '{"a": 2}', id="c2"))],
        # in pieces, begun by a new id
        [delta(call("add", "", id="c1")), delta(call(None, '{"a": 1}')),
         delta(call("add", "", id="c2")), delta(call(None, '{"a": 2}'))],
        # in pieces, without ids
        [delta(call("add", '{"a"')), delta(call(None, ": 1}")), delta(call("add", '{"a": 2')), delta(call(None, "}"))],
        # name and id repeated with each piece
        [
            delta(call("add", '{"a"', id="c1")),
            delta(call("add", ": 1}", id="c1")),
            delta(call("add", '{"a": ', id="c2")),
            delta(call("add", "2}", id="c2")),
        ],
    ],
)  # fmt: skip
def test_calls_that_all_have_the_index_0_are_told_apart(sent: list[Any]) -> None:
    assert calls(read(Chat(), *sent)) == TWO


def test_a_call_that_repeats_its_name_with_each_piece_is_one_call() -> None:
    sent = [delta(call("add", '{"a"')), delta(call("add", ': "x')), delta(call("add", '"}'))]
    assert calls(read(Chat(), *sent)) == [("add", {"a": "x"}, ())]


def test_arguments_that_come_as_an_object_are_taken() -> None:
    assert calls(read(Chat(), delta(call("add", {"a": 1})))) == [("add", {"a": 1}, ("arguments-object",))]
    item = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": {"a": 1}}
    sent = {"type": "response.output_item.done", "output_index": 0, "item": item}
    assert calls(read(Responses(), sent)) == [("add", {"a": 1}, ("arguments-object",))]


def test_arguments_that_come_as_text_are_parsed() -> None:
    line = {
        "message": {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1}'}}]}
    }
    assert calls(read(LineReader(), line)) == [("add", {"a": 1}, ("arguments-text",))]


@pytest.mark.parametrize("arguments", ["{", [1], 5, "5"])
def test_arguments_that_are_no_object_make_no_call(arguments: Any) -> None:
    line = {"message": {"content": "", "tool_calls": [{"function": {"name": "add", "arguments": arguments}}]}, "done": True}
    assert calls(read(LineReader(), line)) == []
    assert calls(read(Chat(), delta(call("add", arguments), finish="tool_calls"))) == []


def test_an_input_that_stands_where_its_block_begins_is_not_lost() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    sent = [{"type": "content_block_start", "index": 0, "content_block": block}, {"type": "content_block_stop", "index": 0}]
    assert calls(read(Messages(), *sent)) == [("add", {"a": 1}, ())]


def test_reasoning_in_the_parts_of_a_content_is_reasoning() -> None:
    content = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Hi"}]
    events = read(Chat(), {"choices": [{"delta": {"content": content}, "finish_reason": "stop"}]})
    assert events[:2] == [Thought("Hm."), Text("Hi")]


WHOLE: dict[str, tuple[Any, dict[str, Any]]] = {
    "chat": (Chat, {"choices": [{"message": {"role": "assistant", "content": "Hi", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
    "responses": (Responses, {"object": "response", "status": "completed", "output": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}],
        "usage": {"input_tokens": 3, "output_tokens": 2}}),
    "anthropic": (Messages, {"type": "message", "role": "assistant", "stop_reason": "tool_use", "content": [
        {"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}],
        "usage": {"input_tokens": 3, "output_tokens": 2}}),
    "ollama": (LineReader, {"message": {"content": "Hi", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]},
        "done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 2}),
}  # fmt: skip


@pytest.mark.parametrize("dialect", WHOLE)
def test_a_whole_answer_in_place_of_a_stream_is_read(dialect: str) -> None:
    reader = WHOLE[dialect][0]()
    events = read(reader, WHOLE[dialect][1])
    assert events[0] == Text("Hi")
    assert calls(events) == [("add", {"a": 1}, ())]
    assert isinstance(events[-1], Stopped) and (events[-1].reason, events[-1].usage.prompt) == ("calls", 3)
    assert reader.has_ended


@pytest.mark.parametrize("reader", [Chat, Responses, Messages, LineReader])
@pytest.mark.parametrize(
    ("error", "passes"), [({"message": "busy", "code": 503}, True), ({"message": "no"}, False), ("no", False)]
)
def test_an_error_in_the_middle_says_whether_it_may_pass(reader: Any, error: Any, passes: bool) -> None:
    with pytest.raises(ModelError) as caught:
        reader().feed({"error": error})
    assert caught.value.retryable is passes


def test_signed_thoughts_are_given_back_block_by_block() -> None:
    sent = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "H"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EqQB"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "xyz"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "content_block_stop", "index": 2},
    ]
    reader = Messages()
    read(reader, *sent)
    assert reader.signed == [
        {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
    ]


def test_signed_details_of_chat_completions_are_put_together() -> None:
    details = (
        [{"type": "reasoning.text", "text": "H", "index": 0}],
        [{"type": "reasoning.text", "text": "m", "index": 0, "signature": "s"}],
    )
    reader = Chat()
    for detail in details:
        reader.feed({"choices": [{"delta": {"reasoning_details": detail}}]})
    reader.feed(delta(call("add", "{}", id="c1", extra_content={"google": {"thought_signature": "g"}})))
    assert reader.signed == {
        "reasoning_details": [{"type": "reasoning.text", "text": "Hm", "index": 0, "signature": "s"}],
        "extra_content": {"c1": {"google": {"thought_signature": "g"}}},
    }


def test_nothing_is_signed_where_nothing_was() -> None:
    chat, messages, responses = Chat(), Messages(), Responses()
    chat.feed(delta(call("add", "{}")))
    messages.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "Hm."}})
    responses.feed({"type": "response.output_item.done", "item": {"type": "reasoning", "summary": []}})
    assert (chat.signed, messages.signed, responses.signed) == (None, None, None)
    assert json.dumps(chat.signed) == "null"
