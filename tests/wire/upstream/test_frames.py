"""Frames that differ from the one before in nothing but a text are read without being parsed, and to the same events."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsmith.core.events import CallReady, CallStarted, ModelEvent, Text
from callsmith.wire.answers import AnswerReader
from callsmith.wire.anthropic.events import EventReader as MessageReader
from callsmith.wire.ollama.events import LineReader
from callsmith.wire.openai.chat_events import EventReader
from callsmith.wire.openai.responses_events import EventReader as ResponseReader
from callsmith.wire.upstream import frames
from callsmith.wire.upstream.dialects import AnswerDecoder, dialect_named
from callsmith.wire.upstream.frames import RepeatedText, load_json


def chat_frame(text: str, model: str = "m", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
    return {"id": "c1", "object": "chat.completion.chunk", "model": model, "choices": [choice], **more}


def delta_frame(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def line_frame(text: str) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": text}, "done": False}


def response_frame(text: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": 0, "item_id": "i", "delta": text}


DIALECTS: list[tuple[Callable[[], AnswerReader], Callable[[str], dict[str, Any]]]] = [
    (EventReader, chat_frame),
    (MessageReader, delta_frame),
    (LineReader, line_frame),
    (ResponseReader, response_frame),
]


class ParsedCounter:
    """Counts the frames that a decoder has parsed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        feed = EventReader.feed

        def counting(reader: EventReader, sent: Any) -> list[ModelEvent]:
            self.count += 1
            return feed(reader, sent)

        monkeypatch.setattr(EventReader, "feed", counting)


def read_all(sent: list[Any], **options: Any) -> list[ModelEvent]:
    decoder = AnswerDecoder(dialect_named("chat"))
    return [event for one in sent for event in decoder.feed(f"data: {json.dumps(one, **options)}\n\n".encode())]


@pytest.mark.parametrize(("reader", "frame"), DIALECTS, ids=lambda item: getattr(item, "__qualname__", ""))
def test_a_frame_that_is_like_the_last_one_is_not_parsed(reader: Callable[[], AnswerReader], frame: Callable[[str], Any]) -> None:
    repeated, first = RepeatedText(reader), json.dumps(frame("one "))
    repeated.learn(first, reader().feed(json.loads(first)))
    assert [repeated.match(json.dumps(frame(text))) for text in ("two ", 'a "quote"\n', "…")] == ["two ", 'a "quote"\n', "…"]
    assert repeated.match(json.dumps({**frame("two "), "more": 1})) == ""


@given(st.lists(st.text(), min_size=1), st.booleans())
def test_whatever_is_said_is_read_as_a_reader_alone_reads_it(texts: list[str], is_ascii: bool) -> None:
    sent = [chat_frame(text) for text in texts]
    alone = EventReader()
    expected = [event for one in sent for event in alone.feed(load_json(json.dumps(one)))]
    assert read_all(sent, ensure_ascii=is_ascii) == expected


def test_most_frames_of_an_answer_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = ParsedCounter(monkeypatch)
    assert read_all([chat_frame(f"{number} ") for number in range(100)]) == [Text(f"{number} ") for number in range(100)]
    assert counter.count == 2  # the first, and once more with another text


def test_frames_that_always_differ_in_something_else_are_not_learned_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = ParsedCounter(monkeypatch)
    assert len(read_all([chat_frame("a", number=number) for number in range(100)])) == 100
    assert counter.count == 103


def test_a_field_that_says_the_same_as_the_text_is_not_taken_for_it() -> None:
    sent = [chat_frame("m"), chat_frame("m"), chat_frame("m", model="n"), chat_frame("n")]
    assert read_all(sent) == [Text("m"), Text("m"), Text("m"), Text("n")]


@pytest.mark.parametrize("inner", ['"a", "refusal": "b"', '"a"}, {"content": "b"', "1", "null", '["a"]', '"', ""])
def test_only_a_text_takes_the_place_of_a_text(inner: str) -> None:
    repeated, first = RepeatedText(EventReader), json.dumps(chat_frame("one"))
    repeated.learn(first, [Text("one")])
    assert repeated.match(first.replace('"one"', inner)) == ""


def test_a_text_behind_a_call_ends_the_call() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "add", "arguments": "{}"}}
    calling = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
    events = read_all([chat_frame("a"), chat_frame("b"), calling, chat_frame("c"), chat_frame("d")])
    assert [type(event) for event in events[2:]][:1] == [CallStarted]
    assert [event.text for event in events if isinstance(event, Text)] == ["a", "b", "c", "d"]
    assert isinstance(events[-3], CallReady)


def test_what_was_said_between_signed_thoughts_is_sent_back_whole() -> None:
    decoder = AnswerDecoder(dialect_named("anthropic"))
    sent = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "redacted_thinking", "data": "…"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        *({**delta_frame(text), "index": 1} for text in ("one ", "two ", "three")),
    ]
    for one in sent:
        decoder.feed(f"data: {json.dumps(one)}\n\n".encode())
    assert decoder.signed[1] == {"type": "text", "text": "one two three"}


@pytest.mark.parametrize("text", [r'{"a": "\ud800"}', r'{"a": "\uD83D\uDE00"}', '{"a": NaN}', '{"a": 1e400}', '{"a": "é"}'])
def test_the_standard_library_alone_reads_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = repr(load_json(text))
    monkeypatch.setattr(frames, "_decode", frames._decode_alone)
    assert repr(load_json(text)) == fast
