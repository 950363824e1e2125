"""Frames of words, of which most is written once, are those that would be written one by one."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from callsmith.core.errors import Unavailable
from callsmith.core.events import (
    CallReady,
    CallStarted,
    ModelEvent,
    Stopped,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
    Unreadable,
)
from callsmith.core.values import Call, Json, Result
from callsmith.server.http.streams import CachedFrames, encode
from callsmith.server.routes.responses.answer import LiveResponse
from callsmith.wire.anthropic import events as anthropic_events
from callsmith.wire.ollama import events as ollama_events
from callsmith.wire.openai import chat_events as openai_chat_events
from callsmith.wire.openai import responses_events as openai_responses_events
from callsmith.wire.openai.mcp_events import McpWriter
from callsmith.wire.sse import FrameReader

CALL = Call("look", {"at": "é"}, "call_1")
EVENTS: list[ModelEvent] = [
    Thought("hm "),
    Thought("so"),
    Text(""),
    Text("Good"),
    Text(' "day"\n'),
    Text("é\u2028"),
    Unreadable("<broken>", "no call"),
    Text("again"),
    Text("!"),
    CallStarted(0, "look", "call_1"),
    CallReady(0, CALL),
    Text("and"),
    Text(" more"),
    Thought("or less"),
    Unreadable("<x>", "no call"),
    Text("7"),
    Text("8"),
    Stopped("calls"),
]
SEEN = ToolFinished(Result("call_1", "look", "seen"))
RAN = [Text("a"), ToolStarted(CALL), SEEN, Text("\n"), Text("\nb"), Text("\nc"), Stopped("stop")]
HEADINGS: dict[str, Callable[[], Any]] = {
    "chat": lambda: openai_chat_events.ChunkWriter(openai_chat_events.ChatHeading("id", "m", 1)),
    "messages": lambda: anthropic_events.EventWriter(
        anthropic_events.MessagesHeading("id", "m", mcp_tools={"look": ("eyes", "look")})
    ),
    "Ollama": lambda: ollama_events.LineWriter(ollama_events.OllamaHeading("m", "now", lambda: 1, 1, chat=True)),
}


@pytest.mark.parametrize(
    ("dialect", "events"),
    [*((dialect, EVENTS) for dialect in HEADINGS), ("messages", RAN)],
    ids=[*HEADINGS, "messages and tools"],
)
def test_words_in_frames_are_what_the_writer_would_write(dialect: str, events: list[Any]) -> None:
    mine, theirs = HEADINGS[dialect](), HEADINGS[dialect]()
    frames = CachedFrames[Any](lambda event: b"".join(map(encode, mine.write(event))))
    assert [frames.encode_event(event) for event in events] == [b"".join(map(encode, theirs.write(event))) for event in events]


def writer() -> McpWriter:
    return McpWriter(openai_responses_events.ResponsesHeading("resp_1", "m", 1))


async def keep(response: Json) -> None:
    pass


async def test_a_response_is_streamed_as_its_writer_would_write_it() -> None:
    async def events() -> AsyncIterator[ModelEvent]:
        for event in EVENTS:
            yield event

    plain, reader = writer(), FrameReader()
    expected = [encode(sent_event).decode() for event in EVENTS for sent_event in plain.write(event)]
    answer = LiveResponse(events(), writer(), keep, {})
    got = [frame.data async for piece in answer.frames() for frame in reader.feed(piece)]
    assert got == expected
    assert answer.writer.response() == plain.response()


async def test_a_response_that_waits_can_be_stopped_and_says_so_and_its_task_goes_on() -> None:
    closed = False

    async def events() -> AsyncIterator[ModelEvent]:
        nonlocal closed
        try:
            yield Text("a")
            await asyncio.sleep(60)
        finally:
            closed = True

    running: dict[str, LiveResponse] = {}
    answer = LiveResponse(events(), writer(), keep, running)

    async def read() -> tuple[bytes, int]:
        text = b"".join([piece async for piece in answer.frames()])
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)  # where a cancellation that was not taken back would strike
        return text, task.cancelling()

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    assert running == {"resp_1": answer}
    await asyncio.gather(answer.stop(), answer.stop())
    frames, cancelling = await reading
    assert closed
    assert cancelling == 0
    assert not running
    assert frames.count(b"response.output_text.delta") == 2  # its name and its type
    assert b'"status":"cancelled"' in frames.rsplit(b"event: ", 1)[1]


async def test_whoever_cancels_the_task_of_a_response_is_not_taken_for_a_stop() -> None:
    async def events() -> AsyncIterator[ModelEvent]:
        yield Text("a")
        await asyncio.sleep(60)

    answer = LiveResponse(events(), writer(), keep, {})

    async def read() -> None:
        async for _ in answer.frames():
            pass

    for stopped in (False, True):
        reading = asyncio.create_task(read())
        await asyncio.sleep(0.01)
        reading.cancel()
        if stopped:
            await answer.stop()
        with pytest.raises(asyncio.CancelledError):
            await reading
        answer = LiveResponse(events(), writer(), keep, {})


async def test_where_the_end_cannot_be_stored_all_that_was_said_is_told_and_then_the_failure() -> None:
    async def events() -> AsyncIterator[ModelEvent]:
        yield Text("an event: \n\nevent: x")
        yield Stopped("stop")

    async def fail(response: Json) -> None:
        raise Unavailable("the disk is full")

    reader = FrameReader()
    sent = [
        json.loads(frame.data)
        async for piece in LiveResponse(events(), writer(), fail, {}).frames()
        for frame in reader.feed(piece)
    ]
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    assert [event["type"] for event in sent[-3:]] == [
        "response.content_part.done",
        "response.output_item.done",
        "response.failed",
    ]
    assert sent[-1]["response"]["error"]["message"] == "the disk is full"
    assert sent[-1]["response"]["output"] == [sent[-2]["item"]]
