"""The frames of `llm.chat`: events to frames, to a whole answer, and frames back to events.

token {"text": "I'll search"}
tool_call_delta {"id": "tc_1", "name": "search_corpus", "arguments_delta": "{\\"query\\": \\"", "index": 0}
tool_call_delta {"id": "tc_1", "arguments_delta": "hall\\"}", "index": 0}
tool_call {"id": "tc_1", "name": "search_corpus", "arguments": {"query": "hall"}, "index": 0}
done {"stop_reason": "tool_calls", "tokens_in": 120, "tokens_out": 20, …}
"""

import json
from collections.abc import Mapping
from typing import assert_never

from callsmith.core.events import (
    CallArguments,
    CallDeferred,
    CallReady,
    CallStarted,
    ConfirmationNeeded,
    ModelEvent,
    Notice,
    Report,
    RunEvent,
    Started,
    Stopped,
    StopReason,
    Text,
    Thought,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Unreadable,
)
from callsmith.core.values import Json, Usage
from callsmith.wire.calls import CallAssembler, CallWriter
from callsmith.wire.capability.chat import REASONS, read_reason, read_usage, write_flat_call, write_meta
from callsmith.wire.capability.frames import Frame
from callsmith.wire.extensions import read_decision, write_decision
from callsmith.wire.fields import Fields, without_none


class ChatFrameWriter(CallWriter):
    """Events of answers and runs to frames. The answers of one run are one stream; `end` gives its last frame.

    `prefix` begins the ids of calls to which the model gave none.
    """

    def __init__(self, prefix: str = "tc") -> None:
        super().__init__()
        self._prefix = prefix
        self._ids: dict[int, str] = {}
        self._answers = 0
        self._texts: list[str] = []
        self._calls: list[dict[str, Json]] = []
        self._matched = ""
        self._report = Report()
        self.usage = Usage()

    def write(self, event: RunEvent) -> list[Frame]:
        match event:
            case Text(text):
                return self._frames(self._write_text(text))
            case Thought(text):
                return [Frame("reasoning", {"text": text})] if text else []
            case CallReady(index, call):
                frames = self._frames(self.write_call(event))
                call_data = {**write_flat_call(call), "id": self._ids.get(index, call.id), "index": index}
                self._calls.append({key: value for key, value in call_data.items() if key != "index"})
                return [*frames, Frame("tool_call", call_data)]
            case CallArguments() | CallStarted() | Unreadable():
                return self._frames(self.write_call(event))
            case Stopped(_, usage, report, matched):
                self.usage += usage
                self._report += report
                self._matched = matched
                self._answers += 1  # the next one numbers its calls anew
                self._ids, self._characters, self._ended_calls = {}, {}, set()
                return [Frame("notice", {"text": text}) for text in report.notices]
            case ToolProgress(id, text, current, total):
                progress = {"id": id, "current": current, "total": total, "stage": text or None}
                return [Frame("tool_progress", without_none(progress))]
            case ToolFinished(result):
                code = {"code": result.code} if result.code else {}
                data = {"id": result.call_id, "name": result.name, "content": result.content, "is_error": not result.ok, **code}
                return [Frame("tool_result", data)]
            case ConfirmationNeeded():
                return [Frame("confirmation_required", write_confirmation(event))]
            case Notice(text):
                return [Frame("notice", {"text": text})]
            case Started(_, decision):
                self._report += Report(decision=decision)
                return []
            case ToolStarted() | CallDeferred() | TurnEnded():
                return []
            case _:
                assert_never(event)

    def end(self, model: str, reason: StopReason, milliseconds: int) -> Frame:
        """The last frame. `reason` is how the run has ended."""
        return Frame("done", self._meta(model, reason, milliseconds))

    def answer(self, model: str, reason: StopReason, milliseconds: int) -> dict[str, Json]:
        """The whole answer, of the same events."""
        message: dict[str, Json] = {"role": "assistant", "content": "".join(self._texts)}
        output: dict[str, Json] = {"message": message, **({"tool_calls": self._calls} if self._calls else {})}
        return {"output": output, "meta": self._meta(model, reason, milliseconds)}

    def new_id(self, index: int) -> str:
        """The id of a call of the answer that is being written, where the model gave none."""
        return f"{self._prefix}_{self._answers}_{index}"

    def begin_turn(self) -> None:
        """What was said so far was followed by results: the answer is what comes now."""
        self._texts, self._calls = [], []

    def _meta(self, model: str, reason: StopReason, milliseconds: int) -> dict[str, Json]:
        stopped = "stop_sequence" if reason == "stop" and self._matched else REASONS[reason]
        return {**write_meta(model, self.usage, stopped, milliseconds), **write_decision(self._report.decision)}

    def _frames(self, pieces: list[dict[str, Json]]) -> list[Frame]:
        return [Frame("token" if "text" in data else "tool_call_delta", data) for data in pieces]

    def _start_call(self, index: int, name: str, id: str) -> list[dict[str, Json]]:
        self._ids[index] = self._unique_id(id, self.new_id(index))
        return [{"id": self._ids[index], "name": name, "arguments_delta": "", "index": index}]

    def _write_arguments(self, index: int, text: str) -> list[dict[str, Json]]:
        return [{"id": self._ids[index], "arguments_delta": text, "index": index}]

    def _end_call(self, index: int, unreadable: str | None) -> list[dict[str, Json]]:
        return self._write_text(unreadable) if unreadable else []

    def _write_text(self, text: str) -> list[dict[str, Json]]:
        if not text:
            return []
        self._texts.append(text)
        return [{"text": text}]


def write_confirmation(needed: ConfirmationNeeded) -> dict[str, Json]:
    """A call that waits for a person: `id` is the call's, by which the decision comes back."""
    data = {"id": needed.call.id, "name": needed.call.name, "arguments": dict(needed.call.arguments)}
    return {**data, **without_none({"reason": needed.reason or None, "expires": needed.expires, "approval": needed.id})}


class ChatFrameReader:
    """Frames to the events of one answer. What tools did where the model is, is not among them."""

    def __init__(self) -> None:
        self._calls = CallAssembler()
        self._keys: dict[str, int] = {}

    def read(self, frame: Frame) -> list[ModelEvent]:
        """The events of a frame; an error frame is raised as a BusError."""
        frame.raise_error()
        data = frame.data
        match frame.event:
            case "token":
                return [Text(_text(data, "text"))]
            case "reasoning":
                return [Thought(_text(data, "text"))]
            case "tool_call_delta":
                id = _text(data, "id")
                events: list[ModelEvent] = []
                if id not in self._keys:
                    self._keys[id] = self._calls.count
                    events = self._calls.start(self._keys[id], _text(data, "name"), id)
                return [*events, *self._calls.add(self._keys[id], _text(data, "arguments_delta"))]
            case "tool_call":
                return self._read_call(data)
            case "done":
                reason = read_reason(_text(data, "stop_reason"))
                report = Report(decision=read_decision(Fields(data)))
                return [*self._calls.end_all(), Stopped(reason, read_usage(data), report)]
            case _:
                return []

    def _read_call(self, data: Mapping[str, Json]) -> list[ModelEvent]:
        id, arguments = _text(data, "id"), data.get("arguments")
        whole = json.dumps(arguments if isinstance(arguments, dict) else {}, ensure_ascii=False)
        if id in self._keys:
            return self._calls.end(self._keys[id])
        key = self._keys[id] = self._calls.count
        return [*self._calls.start(key, _text(data, "name"), id), *self._calls.end(key, whole)]


def _text(data: Mapping[str, Json], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""
