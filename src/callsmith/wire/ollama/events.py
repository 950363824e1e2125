"""The answers of `/api/chat` and `/api/generate`: events to lines of JSON, to a whole answer, and lines back to events.

    {"model": "m", "created_at": "…", "message": {"role": "assistant", "content": "Hel"}, "done": false}
    {…, "message": {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]}, …}
    {…, "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop", "eval_count": 9, …}

A call comes whole, its arguments as an object: what has begun like a call and is none is sent as text when that is known.
Durations are in nanoseconds. Not covered: the letters of arguments and the reasons of repairs do not travel.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from callsmith.core.events import CallReady, ModelEvent, Report, Stopped, Text, Thought, Unreadable
from callsmith.core.values import Json, TokenLogprob
from callsmith.wire.answers import AnswerReader, AnswerWriter
from callsmith.wire.calls import CallEvent, arguments_text
from callsmith.wire.extensions import read_report, write_report
from callsmith.wire.fields import Fields, make_usage
from callsmith.wire.ollama.requests import write_call
from callsmith.wire.sampling import read_logprobs, write_logprobs


@dataclass(frozen=True, slots=True)
class OllamaHeading:
    """What every line of an answer repeats. `clock` tells the nanoseconds, `arrived` when the request came; `chat`: as messages,
    and not as a plain response."""

    model: str
    created_at: str
    clock: Callable[[], int]
    arrived: int
    chat: bool = True

    def line(self, content: str = "", *, done: bool = False, **fields: Json) -> dict[str, Json]:
        answer = (
            {"message": {"role": "assistant", "content": content, **fields}} if self.chat else {"response": content, **fields}
        )
        return {"model": self.model, "created_at": self.created_at, **answer, "done": done}


class LineWriter(AnswerWriter):
    """Events to lines."""

    def __init__(self, heading: OllamaHeading) -> None:
        self._heading = heading
        self._began = heading.clock()
        self._first = self._began  # when the first event came
        self._calls = 0

    def _write_opening(self, event: Any) -> list[dict[str, Json]]:
        self._first = self._heading.clock()
        return []

    def _write_text(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> list[dict[str, Json]]:
        line = self._heading.line(text)
        return [{**line, "logprobs": write_logprobs(logprobs)} if logprobs else line] if text else []

    def _write_thought(self, text: str) -> list[dict[str, Json]]:
        return [self._heading.line(thinking=text)]

    def write_call(self, event: CallEvent) -> list[dict[str, Json]]:
        match event:
            case CallReady(_, call):
                self._calls += 1
                return [self._heading.line(tool_calls=[write_call(call, self._calls - 1)])]
            case Unreadable(text):
                return self._write_text(text)
            case _:
                return []

    def _finish(self, event: Stopped) -> list[dict[str, Json]]:
        now, first = self._heading.clock(), self._first
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


def write_loaded(heading: OllamaHeading, *, is_loaded: bool = True) -> dict[str, Json]:
    """The answer to a request that asked nothing: the model is loaded, or unloaded."""
    return {**heading.line(done=True), "done_reason": "load" if is_loaded else "unload"}


def write_response(events: Iterable[ModelEvent], heading: OllamaHeading) -> dict[str, Json]:
    """The whole answer of these events."""
    return merge_lines(LineWriter(heading).write_all(events), heading)


def merge_lines(lines: Sequence[dict[str, Json]], heading: OllamaHeading) -> dict[str, Json]:
    """The whole answer: the lines of a stream, put together, so that streaming or not makes no difference."""
    parts = [line["message"] if heading.chat else line for line in lines]
    content = "".join(part.get("content") or part.get("response") or "" for part in parts)
    besides: dict[str, Json] = {
        "thinking": "".join(part.get("thinking") or "" for part in parts),
        "tool_calls": [call for part in parts for call in part.get("tool_calls") or ()],
    }
    whole = heading.line(content, done=lines[-1]["done"], **{key: value for key, value in besides.items() if value})
    logprobs = [token for line in lines for token in line.get("logprobs", ())]
    return {**lines[-1], **whole, **({"logprobs": logprobs} if logprobs else {})}


class LineReader(AnswerReader):
    """Lines of `/api/chat` to events."""

    def _read(self, fields: Fields) -> list[ModelEvent]:
        done = fields.flag("done")
        message = fields.required_object("message") if not done else fields.object("message") or Fields({}, "message")
        thought, text = message.text("thinking"), message.text("content")
        events: list[ModelEvent] = [Thought(thought)] if thought else []
        events += [Text(text, read_logprobs(fields, "logprobs"))] if text else []
        for call in message.objects("tool_calls"):
            events += self._read_call(call)
        if done:
            self.has_ended = True
            self._reason = "length" if fields.text("done_reason") == "length" else None
            self._usage = make_usage(fields.integer("prompt_eval_count"), fields.integer("eval_count"))
            self._report = read_report(fields) or Report()
        return events

    def _read_call(self, fields: Fields) -> list[ModelEvent]:
        """A call, which comes whole."""
        function, key = fields.required_object("function"), self._calls.count
        text, is_object = arguments_text(function.get("arguments"))
        repairs = () if is_object or not text else ("arguments-text",)
        started = self._calls.start(key, function.required_text("name"), fields.text("id") or "", repairs)
        return [*started, *self._calls.end(key, text)]
