"""The answer of `POST /v1/responses`: events to the stream's events, to a whole response, and the stream's events back.

    response.created · response.in_progress
    response.output_item.added · response.content_part.added · response.output_text.delta … · response.output_text.done
        · response.content_part.done · response.output_item.done
    response.output_item.added · response.function_call_arguments.delta … · response.function_call_arguments.done
        · response.output_item.done
    response.completed

Calls of custom tools have response.custom_tool_call_input in place of response.function_call_arguments. Those of other kinds
(a shell, a patch) are added when they are complete: half of their fields would be no item.
In the background it begins with response.created · response.queued, and response.in_progress comes with the first of the answer.
Clients hold servers to it: an item keeps its id and its place, whatever is added is done, no event is about an item before it is
added, and events are numbered without gaps. The whole response is the one in the last event. Thoughts are
`response.reasoning_text`; a client that asks for a summary (`reasoning.summary`) reads only that, and gets all of them in it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from callsmith.core.events import ModelEvent, Report, Stopped, StopReason, Text, Thought
from callsmith.core.values import Json, Sampling, TokenLogprob, Usage
from callsmith.wire.answers import AnswerReader, AnswerWriter
from callsmith.wire.calls import CallWriter, arguments_text
from callsmith.wire.errors import PROMPT_TOO_LONG, Failure, sent_error
from callsmith.wire.extensions import read_report, write_report
from callsmith.wire.fields import Fields
from callsmith.wire.kinds import find_named
from callsmith.wire.kinds.custom import CUSTOM, INPUT, InputReader
from callsmith.wire.openai.common import read_usage, write_response_usage, write_sampling
from callsmith.wire.openai.items import (
    MESSAGE_TEXT,
    REASONING_SUMMARY,
    REASONING_TEXT,
    TextKind,
    flat_name,
    item_id,
    write_call_item,
)
from callsmith.wire.openai.kind_items import CUSTOM_ITEM, WaitingCall, write_custom_call
from callsmith.wire.openai.responses import Namespaces
from callsmith.wire.sampling import read_logprobs, write_logprobs

StreamEvent: TypeAlias = dict[str, Json]  # an event of the stream
Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
OPEN_STATUSES = frozenset({"queued", "in_progress"})  # of a response that goes on

# There is no event for an answer that was cancelled: it is one that is not complete, and its status says why.
_LAST: dict[Status, str] = {"cancelled": "response.incomplete"}
_CUT: dict[StopReason, str] = {"length": "max_output_tokens", "filtered": "content_filter"}
_ERROR_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


@dataclass(frozen=True, slots=True)
class ResponsesHeading:
    """What a response holds besides its answer; `repeated` are the fields of its request that it repeats.

    `sampling` is the one in effect, `clock` the time in seconds since the epoch. `kinds` are those of tools that are no
    functions, by their names, and `notices` what a person should know.
    """

    id: str
    model: str
    created: int
    repeated: Mapping[str, Json] = field(default_factory=dict[str, Json])
    namespaces: Namespaces = field(default_factory=dict[str, tuple[str, str]])
    sampling: Sampling = Sampling()
    clock: Callable[[], float] | None = None
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    notices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What the ids of its items have in common."""
        return self.id.removeprefix("resp_")

    @property
    def wants_summary(self) -> bool:
        """Whether a summary of the thoughts was asked for."""
        reasoning: Json = self.repeated.get("reasoning") or {}
        return reasoning.get("summary") in ("auto", "concise", "detailed")


@dataclass(slots=True)
class OpenItem:
    """An item on its way out: its place, what it is, and the text so far; and the kind of the text."""

    place: int
    item: dict[str, Json]
    kind: TextKind = MESSAGE_TEXT
    pieces: list[str] = field(default_factory=list[str])
    logprobs: list[Json] = field(default_factory=list[Json])
    input: InputReader | None = None  # of a custom tool's call

    @property
    def at(self) -> dict[str, Json]:
        return {"item_id": self.item["id"], "output_index": self.place}


class EventWriter(CallWriter, AnswerWriter):
    """Events to the stream's. `close` ends an answer that was cut off, `fail` and `cancel` end it in another way."""

    def __init__(self, heading: ResponsesHeading) -> None:
        super().__init__()
        self._heading = heading
        self._sent = 0
        self._output: list[dict[str, Json]] = []
        self._open_text: OpenItem | None = None  # the message or the reasoning being written
        self._open_calls: dict[int, OpenItem] = {}
        self._waiting_calls: dict[int, WaitingCall] = {}
        self._status: Status = "in_progress"
        self._end: dict[str, Json] = {}

    def queue(self) -> list[StreamEvent]:
        """The first events of an answer that waits to be given: its id is known before there is anything of it."""
        queued = {**self.response(), "status": "queued"}
        return [self._event(f"response.{kind}", response=queued) for kind in ("created", "queued")]

    def continue_text(self, text: str) -> int | None:
        """Add text to the message that is being written, without making its event: that is the last delta with this sequence
        number and this text. None if there is no such delta before it: then `write` it."""
        if not text or self._open_text is None or self._open_text.kind is not MESSAGE_TEXT:
            return None
        self._open_text.pieces.append(text)
        self._sent += 1
        return self._sent - 1

    def fail(self, failure: Failure) -> list[StreamEvent]:
        """The end of an answer that failed; in place of another end, which has not been sent."""
        if self.ended:
            self._sent -= 1
        error: dict[str, Json] = failure.body["error"]
        code = error["code"] if error["code"] == PROMPT_TOO_LONG else _ERROR_CODES.get(failure.status, "server_error")
        self._end = {"error": {"code": code, "message": error["message"]}}
        return [*self._open(), *self._end_response("failed", "incomplete")]

    def cancel(self) -> list[StreamEvent]:
        """The end of an answer somebody has stopped."""
        return [] if self.ended else [*self._open(), *self._end_response("cancelled", "incomplete")]

    def response(self) -> dict[str, Json]:
        """The response as it stands."""
        return {
            "id": self._heading.id,
            "object": "response",
            "created_at": self._heading.created,
            "completed_at": None,
            "status": self._status,
            "error": None,
            "incomplete_details": None,
            "model": self._heading.model,
            "output": list(self._output),
            "usage": None,
            **self._heading.repeated,
            **write_sampling(self._heading.sampling),
            **self._end,
        }

    def _write_opening(self, event: Any) -> list[StreamEvent]:
        kinds = ("in_progress",) if self._sent else ("created", "in_progress")
        return [self._event(f"response.{kind}", response=self.response()) for kind in kinds]

    def _write_piece(self, kind: TextKind, text: str, logprobs: Sequence[Json] = ()) -> list[StreamEvent]:
        if not text:
            return []
        sent: list[StreamEvent] = []
        if self._open_text is None or self._open_text.kind is not kind:
            sent += self._end_text("completed")
            self._open_text = self._add(kind.item, kind)
            sent.append(self._on_added(self._open_text))
            sent.append(
                self._event(f"{kind.part_event}.added", **self._open_text.at, **kind.part_index, part=kind.write_part(""))
            )
        self._open_text.pieces.append(text)
        self._open_text.logprobs += logprobs
        more = {**kind.more, "logprobs": list(logprobs)} if logprobs else kind.more
        sent.append(self._event(f"{kind.text_event}.delta", **self._open_text.at, **kind.part_index, delta=text, **more))
        return sent

    def _end_text(self, status: Status) -> list[StreamEvent]:
        item, self._open_text = self._open_text, None
        if item is None:
            return []
        kind, text = item.kind, "".join(item.pieces)
        more = {"logprobs": item.logprobs} if item.logprobs else {}
        part = {**kind.write_part(text), **more}
        return [
            self._event(f"{kind.text_event}.done", **item.at, **kind.part_index, text=text, **{**kind.more, **more}),
            self._event(f"{kind.part_event}.done", **item.at, **kind.part_index, part=part),
            self._done(item, **{kind.key: [part]}, status=status),
        ]

    def _write_text(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> list[StreamEvent]:
        return self._write_piece(MESSAGE_TEXT, text, write_logprobs(logprobs))

    def _write_thought(self, text: str) -> list[StreamEvent]:
        return self._write_piece(REASONING_SUMMARY if self._heading.wants_summary else REASONING_TEXT, text)

    def _start_call(self, index: int, name: str, id: str) -> list[StreamEvent]:
        unique_id = self._unique_id(id, f"{id or 'call'}_{self._heading.key}_{len(self._used_ids)}")
        type = self._heading.kinds.get(name, "")
        kind = find_named(type) if type and type != CUSTOM else None
        if kind is not None and kind.item:
            self._waiting_calls[index] = WaitingCall(kind, unique_id)
            return []
        sent = self._end_text("completed")
        space, own = self._heading.namespaces.get(name, ("", name))
        item = write_custom_call(own, unique_id, "") if type == CUSTOM else write_call_item(own, unique_id, "")
        call = self._open_calls[index] = self._add({**item, **({"namespace": space} if space else {}), "status": "in_progress"})
        call.input = InputReader() if type == CUSTOM else None
        return [*sent, self._on_added(call)]

    def _write_arguments(self, index: int, text: str) -> list[StreamEvent]:
        if index in self._waiting_calls:
            self._waiting_calls[index].pieces.append(text)
            return []
        call = self._open_calls[index]
        if call.input is not None:
            return self._write_input(call, call.input.feed(text))
        call.pieces.append(text)
        return [self._event("response.function_call_arguments.delta", **call.at, delta=text)]

    def _write_input(self, call: OpenItem, text: str) -> list[StreamEvent]:
        return [self._event("response.custom_tool_call_input.delta", **call.at, delta=text)] if text else []

    def _end_call(self, index: int, unreadable: str | None) -> list[StreamEvent]:
        if index in self._waiting_calls:
            return self._end_waiting(self._waiting_calls.pop(index))
        call = self._open_calls.pop(index)
        rest = self._write_input(call, call.input.finish()) if call.input is not None and unreadable is None else []
        return [*rest, *self._call_done(call, "completed" if unreadable is None else "incomplete")]

    def _end_waiting(self, call: WaitingCall) -> list[StreamEvent]:
        """The item of a call that is complete; what has come of any other is text, so that nobody runs it."""
        item = call.write_item()
        if item is None:
            return self._write_text(call.text)
        sent, added = self._end_text("completed"), self._add({**item, "status": "in_progress"})
        return [*sent, self._on_added(added), self._done(added, status="completed")]

    def _call_done(self, call: OpenItem, status: Status) -> list[StreamEvent]:
        if call.input is not None:
            done = self._event("response.custom_tool_call_input.done", **call.at, input=call.input.given)
            return [done, self._done(call, input=call.input.given, status=status)]
        text, name = "".join(call.pieces), call.item["name"]
        done = self._event("response.function_call_arguments.done", **call.at, name=name, arguments=text)
        return [done, self._done(call, arguments=text, status=status)]

    def _finish(self, event: Stopped) -> list[StreamEvent]:
        cut = _CUT.get(event.reason)
        self._end = {
            "incomplete_details": {"reason": cut} if cut else None,
            "usage": write_response_usage(event.usage),
            **write_report(event.report + Report(notices=self._heading.notices)),
        }
        if cut:
            return self._end_response("incomplete", "incomplete")
        self._end["completed_at"] = int(self._heading.clock()) if self._heading.clock else self._heading.created
        return self._end_response("completed", "completed")

    def _end_response(self, status: Status, text_status: Status) -> list[StreamEvent]:
        self.ended = True
        sent = [event for call in self._waiting_calls.values() for event in self._write_text(call.text)]
        sent += self._end_text(text_status)
        for call in self._open_calls.values():
            sent += self._call_done(call, "incomplete")
        self._status = status
        return [*sent, self._event(_LAST.get(status, f"response.{status}"), response=self.response())]

    def _add(self, item: Mapping[str, Json], kind: TextKind = MESSAGE_TEXT) -> OpenItem:
        place = len(self._output)
        self._output.append({"id": item_id(item["type"], self._heading.key, place), **item})
        return OpenItem(place, self._output[place], kind)

    def _on_added(self, added: OpenItem) -> StreamEvent:
        return self._event("response.output_item.added", output_index=added.place, item=added.item)

    def _done(self, done: OpenItem, **fields: Json) -> StreamEvent:
        # A new item, for the old one may not have been sent yet.
        done.item = self._output[done.place] = {**done.item, **fields}
        return self._event("response.output_item.done", output_index=done.place, item=done.item)

    def _event(self, type: str, **fields: Json) -> StreamEvent:
        self._sent += 1
        return {"type": type, "sequence_number": self._sent - 1, **fields}


def write_response(events: Iterable[ModelEvent], heading: ResponsesHeading) -> dict[str, Json]:
    """The whole response, which is the one in the last event of the stream."""
    writer = EventWriter(heading)
    writer.write_all(events)
    return writer.response()


class EventReader(AnswerReader):
    """The stream's events to ours, or a whole response."""

    def __init__(self) -> None:
        super().__init__()
        self._added_items: set[int] = set()  # their places
        self._streamed: set[int] = set()  # the places of those whose text has come in pieces
        self._items: list[Json] = []  # as they were sent
        self._is_signed = False

    @property
    def signed(self) -> Json:
        """All items of the answer, if the sender wants its reasoning back unchanged; else None."""
        return self._items if self._is_signed else None

    def _read(self, fields: Fields) -> list[ModelEvent]:
        place = fields.integer("output_index") or 0
        match fields.text("type"):
            case "response.output_item.added":
                return self._on_added(place, fields.required_object("item"))
            case "response.output_text.delta" | "response.refusal.delta":
                return self._text(place, Text(fields.text("delta") or "", read_logprobs(fields, "logprobs")))
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                return self._text(place, Thought(fields.text("delta") or ""))
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                return self._calls.add(place, fields.text("delta") or "")
            case "response.output_item.done":
                return self._done(place, fields.required_object("item"))
            case "response.completed" | "response.incomplete":
                return self._on_finish(fields.required_object("response"))
            case "response.failed":
                raise sent_error(fields.required_object("response").get("error"))
            case "error":
                raise sent_error(fields.data)
            case _ if fields.get("object") == "response" and fields.get("status") != "in_progress":
                return self._on_finish(fields)  # a whole response, from servers that do not stream
            case _:
                return []  # what the end of the item repeats, and events of other servers

    def _on_added(self, place: int, item: Fields) -> list[ModelEvent]:
        self._added_items.add(place)
        if item.text("type") not in ("function_call", CUSTOM_ITEM):
            return []
        name, id = flat_name(item.text("namespace"), item.required_text("name")), item.text("call_id") or ""
        return self._calls.start(place, name, id, wrap_in=INPUT if item.text("type") == CUSTOM_ITEM else "")

    def _text(self, place: int, event: Text | Thought) -> list[ModelEvent]:
        self._streamed.add(place)
        return [event] if event.text else []

    def _done(self, place: int, item: Fields) -> list[ModelEvent]:
        """The end of an item; all of it, from servers that send no pieces."""
        begun = [] if place in self._added_items else self._on_added(place, item)
        kind, is_cut = item.text("type"), item.text("status") == "incomplete"
        self._items.append(item.data)
        if kind == "function_call":
            whole, is_object = arguments_text(item.get("arguments"))
            if is_object:
                self._calls.add_repair(place, "arguments-object")
            return [*begun, *self._calls.end(place, whole, is_cut=is_cut)]
        if kind == CUSTOM_ITEM:
            return [*begun, *self._calls.end(place, item.text(INPUT) or "", is_cut=is_cut)]
        if kind == "reasoning" and item.get("encrypted_content"):
            self._is_signed = True
        if place in self._streamed or kind not in ("message", "reasoning"):
            return []
        parts = item.objects("content" if item.get("content") else "summary")
        text = "".join(part.text("text") or part.text("refusal") or "" for part in parts)
        return self._text(place, Thought(text) if kind == "reasoning" else Text(text))

    def _on_finish(self, response: Fields) -> list[ModelEvent]:
        """The end of the response. What of its output did not come before, comes here."""
        if response.get("error") is not None:
            raise sent_error(response.get("error"))
        self.has_ended = True
        usage = response.object("usage")
        self._usage = read_usage(usage, "input", "output") if usage else Usage()
        self._report = read_report(response) or Report()
        if response.text("status") == "incomplete":
            details = response.object("incomplete_details")
            self._reason = "filtered" if details and details.get("reason") == _CUT["filtered"] else "length"
        missing = [] if self._added_items or self._streamed else list(response.objects("output"))
        return [event for place, item in enumerate(missing) for event in self._done(place, item)]
