"""The answers of `/api/chat` and `/api/generate`: events to lines of JSON, to a whole answer, and lines back to events.

    {"model": "m", "created_at": "…", "message": {"role": "assistant", "content": "Hel"}, "done": false}
    {…, "message": {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]}, …}
    {…, "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop", "eval_count": 9, …}

A call comes whole, its arguments as an object: what has begun like a call and is none is sent as text when that is known.
Durations are in nanoseconds. Not covered: the letters of arguments and the reasons of repairs do not travel.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never, cast

from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Report,
    Started,
    Stopped,
    Text,
    Thought,
    Unreadable,
)
from callsmith.core.values import Call, Json, Usage
from callsmith.wire.calls import read_arguments
from callsmith.wire.errors import sent_error
from callsmith.wire.extensions import read_report, write_report
from callsmith.wire.fields import Fields, counted
from callsmith.wire.ollama.requests import write_call
from callsmith.wire.sampling import read_logprobs, write_logprobs


@dataclass(frozen=True, slots=True)
class Heading:
    """What every line of an answer repeats. `clock` tells the nanoseconds, `arrived` when the request came; `chat`: as messages,
    and not as a plain response."""

    model: str
    created_at: str
    clock: Callable[[], int]
    arrived: int
    chat: bool = True

    def line(self, content: str = "", *, done: bool = False, **fields: Json) -> dict[str, Json]:
        """One line of the answer."""
        said = {"message": {"role": "assistant", "content": content, **fields}} if self.chat else {"response": content, **fields}
        return {"model": self.model, "created_at": self.created_at, **said, "done": done}


class LineWriter:
    """Events to lines. `close` after the last event ends an answer that was cut off."""

    def __init__(self, heading: Heading) -> None:
        self._heading = heading
        self._began = heading.clock()
        self._first: int | None = None  # when the first event came
        self._calls = 0
        self._ended = False

    def write(self, event: ModelEvent) -> list[dict[str, Json]]:
        """The lines this event makes."""
        if self._first is None:
            self._first = self._heading.clock()
        match event:
            case Text(text, logprobs):
                line = self._heading.line(text)
                return [{**line, "logprobs": write_logprobs(logprobs)} if logprobs else line] if text else []
            case Unreadable(text):
                return [self._heading.line(text)] if text else []
            case Thought(text):
                return [self._heading.line(thinking=text)] if text else []
            case Started() | CallStarted() | CallArguments():
                return []
            case CallReady(_, call):
                self._calls += 1
                return [self._heading.line(tool_calls=[write_call(call, self._calls - 1)])]
            case Stopped():
                return self._finish(event)
            case _:
                assert_never(event)

    def close(self) -> list[dict[str, Json]]:
        """The end, if the events had none."""
        return self.write(Stopped("stop"))

    def _finish(self, event: Stopped) -> list[dict[str, Json]]:
        if self._ended:
            return []
        self._ended = True
        now, first = self._heading.clock(), self._first or self._began
        return [
            {
                **self._heading.line(done=True),
                "done_reason": "length" if event.reason == "length" else "stop",
                "total_duration": now - self._heading.arrived,
                "load_duration": self._began - self._heading.arrived,  # what passed before the model was asked
                "prompt_eval_count": event.usage.prompt,
                "prompt_eval_duration": first - self._began,
                "eval_count": event.usage.completion,
                "eval_duration": now - first,
                **write_report(event.report),
            }
        ]


def write_loaded(heading: Heading, *, is_loaded: bool = True) -> dict[str, Json]:
    """The answer to a request that asked nothing: the model is loaded, or unloaded."""
    return {**heading.line(done=True), "done_reason": "load" if is_loaded else "unload"}


def write_response(events: Iterable[ModelEvent], heading: Heading) -> dict[str, Json]:
    """The whole answer of these events."""
    writer = LineWriter(heading)
    return merge_lines([line for event in events for line in writer.write(event)] + writer.close(), heading)


def merge_lines(lines: Sequence[dict[str, Json]], heading: Heading) -> dict[str, Json]:
    """The whole answer: the lines of a stream, put together, so that streaming or not makes no difference."""
    merged, logprobs = _MergedAnswer(), list[Json]()
    for line in lines:
        merged.add(line["message"] if heading.chat else line)
        logprobs += line.get("logprobs", ())
    return {**lines[-1], **merged.fields(heading), **({"logprobs": logprobs} if logprobs else {})}


@dataclass(slots=True)
class _MergedAnswer:
    """The content of several lines, put together."""

    content: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    calls: list[Json] = field(default_factory=list[Json])

    def add(self, said: dict[str, Json]) -> None:
        self.content.append(said.get("content") or said.get("response") or "")
        self.thinking.append(said.get("thinking") or "")
        self.calls += said.get("tool_calls") or ()

    def fields(self, heading: Heading) -> dict[str, Json]:
        besides: dict[str, Json] = {"thinking": "".join(self.thinking), "tool_calls": self.calls}
        line = heading.line("".join(self.content), **{key: value for key, value in besides.items() if value})
        return {key: value for key, value in line.items() if key != "done"}


class LineReader:
    """Lines of `/api/chat` to events. `close` gives what only the end can tell: why and at what cost it stopped. `has_ended`:
    whether the sender has said that this is all. Nothing is `signed` in this dialect."""

    def __init__(self) -> None:
        self.has_ended = False
        self.signed: Json = None
        self._calls = 0
        self._cut = False
        self._usage = Usage()
        self._report = Report()

    def feed(self, line: Json) -> list[ModelEvent]:
        """The events of one line. An error sent in place of one is raised as a ModelError."""
        fields = Fields.of(line, "")
        if fields.get("error") is not None:
            raise sent_error(fields.get("error"))
        message = fields.required_object("message")
        thought, text = message.text("thinking"), message.text("content")
        events: list[ModelEvent] = [Thought(thought)] if thought else []
        events += [Text(text, read_logprobs(fields, "logprobs"))] if text else []
        for call in message.objects("tool_calls"):
            events += self._read_call(call)
        if fields.flag("done"):
            self.has_ended = True
            self._cut = fields.text("done_reason") == "length"
            self._usage = counted(fields.integer("prompt_eval_count"), fields.integer("eval_count"))
            self._report = read_report(fields) or Report()
        return events

    def close(self) -> list[ModelEvent]:
        reason = "length" if self._cut else "calls" if self._calls else "stop"
        return [Stopped(reason, self._usage, self._report)]

    def _read_call(self, fields: Fields) -> list[ModelEvent]:
        function, number = fields.required_object("function"), self._calls
        name, value = function.required_text("name"), function.get("arguments")
        is_text = isinstance(value, str)
        arguments: Json = (read_arguments(value) if is_text and value else value) or {}
        self._calls += 1
        started = CallStarted(number, name, fields.text("id") or "")
        if not isinstance(arguments, dict) or (is_text and value and read_arguments(value) is None):
            return [started, Unreadable(json.dumps(value, ensure_ascii=False), "the arguments are no JSON object", number)]
        call = Call(name, cast(dict[str, Json], arguments), started.id)
        return [started, CallArguments(number, call.text), CallReady(number, call, ("arguments-text",) if is_text else ())]
