"""The answer of `POST /v1/responses`: events to the stream's events, to a whole response, and the stream's events back.

    response.created · response.in_progress
    response.output_item.added · response.content_part.added · response.output_text.delta … · response.output_text.done
        · response.content_part.done · response.output_item.done
    response.output_item.added · response.function_call_arguments.delta … · response.function_call_arguments.done
        · response.output_item.done
    response.completed

In the background it begins with response.created · response.queued, and response.in_progress comes with the first of the answer.
Clients hold servers to it: an item keeps its id and its place, whatever is added is done, no event is about an item before it is
added, and events are numbered without gaps. The whole response is the one in the last event. Thoughts are
`response.reasoning_text`; a client that asks for a summary (`reasoning.summary`) reads only that, and gets all of them in it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, assert_never

from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Started,
    Stopped,
    Text,
    Thought,
    Unreadable,
)
from callsmith.core.values import Json, Sampling, Usage
from callsmith.wire.calls import CallWriter
from callsmith.wire.errors import PROMPT_TOO_LONG, Failure
from callsmith.wire.extensions import write_report
from callsmith.wire.openai.items import (
    MESSAGE_TEXT,
    REASONING_SUMMARY,
    REASONING_TEXT,
    TextKind,
    item_id,
    write_call_item,
)
from callsmith.wire.openai.responses import Namespaces
from callsmith.wire.sampling import write_logprobs

StreamEvent: TypeAlias = dict[str, Json]  # an event of the stream
Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
OPEN_STATUSES = frozenset({"queued", "in_progress"})  # of a response that goes on

# There is no event for an answer that was cancelled: it is one that is not complete, and its status says why.
_LAST: dict[Status, str] = {"cancelled": "response.incomplete"}
_ERROR_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


@dataclass(frozen=True, slots=True)
class Heading:
    """What a response holds besides its answer; `repeated` are the fields of its request that it repeats.

    `sampling` is the one in effect, `clock` the time in seconds since the epoch.
    """

    id: str
    model: str
    created: int
    repeated: Mapping[str, Json] = field(default_factory=dict[str, Json])
    namespaces: Namespaces = field(default_factory=dict[str, tuple[str, str]])
    sampling: Sampling = Sampling()
    clock: Callable[[], float] | None = None

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
class _OpenItem:
    """An item on its way out: its place, what it is, and the text so far; and the kind of the text."""

    place: int
    item: dict[str, Json]
    kind: TextKind = MESSAGE_TEXT
    pieces: list[str] = field(default_factory=list[str])
    logprobs: list[Json] = field(default_factory=list[Json])

    @property
    def at(self) -> dict[str, Json]:
        return {"item_id": self.item["id"], "output_index": self.place}


class EventWriter(CallWriter):
    """Events to the stream's. `close` ends an answer that was cut off, `fail` and `cancel` end it in another way."""

    def __init__(self, heading: Heading) -> None:
        super().__init__()
        self._heading = heading
        self._sent = 0
        self._begun = False
        self._output: list[dict[str, Json]] = []
        self._open_text: _OpenItem | None = None  # the message or the reasoning being written
        self._open_calls: dict[int, _OpenItem] = {}
        self._status: Status = "in_progress"
        self._end: dict[str, Json] = {}

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def ended(self) -> bool:
        return self._status != "in_progress"

    def write(self, event: ModelEvent) -> list[StreamEvent]:
        """What is sent for this event."""
        if self.ended:
            return []
        return [*self._opening(), *self._write(event)]

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

    def close(self) -> list[StreamEvent]:
        """The end, if the events had none."""
        return self.write(Stopped("stop"))

    def fail(self, failure: Failure) -> list[StreamEvent]:
        """The end of an answer that failed; in place of another end, which has not been sent."""
        if self.ended:
            self._sent -= 1
        error: dict[str, Json] = failure.body["error"]
        code = error["code"] if error["code"] == PROMPT_TOO_LONG else _ERROR_CODES.get(failure.status, "server_error")
        self._end = {"error": {"code": code, "message": error["message"]}}
        return [*self._opening(), *self._finish("failed", "incomplete")]

    def cancel(self) -> list[StreamEvent]:
        """The end of an answer somebody has stopped."""
        return [] if self.ended else [*self._opening(), *self._finish("cancelled", "incomplete")]

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
            **_write_sampling(self._heading.sampling),
            **self._end,
        }

    def _write(self, event: ModelEvent) -> Iterable[StreamEvent]:
        match event:
            case Text(text, logprobs):
                return self._write_piece(MESSAGE_TEXT, text, write_logprobs(logprobs))
            case Thought(text):
                return self._write_piece(REASONING_SUMMARY if self._heading.wants_summary else REASONING_TEXT, text)
            case CallArguments() | CallStarted() | CallReady() | Unreadable():
                return self.write_call(event)
            case Started():
                return []
            case Stopped():
                return self._stop(event)
            case _:
                assert_never(event)

    def _opening(self) -> list[StreamEvent]:
        if self._begun:
            return []
        self._begun = True
        kinds = ("in_progress",) if self._sent else ("created", "in_progress")
        return [self._event(f"response.{kind}", response=self.response()) for kind in kinds]

    def _write_piece(self, kind: TextKind, text: str, logprobs: Sequence[Json] = ()) -> list[StreamEvent]:
        if not text:
            return []
        sent: list[StreamEvent] = []
        if self._open_text is None or self._open_text.kind is not kind:
            sent += self._end_text("completed")
            self._open_text = self._add(kind.item, kind)
            sent.append(self._added(self._open_text))
            sent.append(
                self._event(f"{kind.part_event}.added", **self._open_text.at, **kind.part_index, part=kind.write_part(""))
            )
        self._open_text.pieces.append(text)
        self._open_text.logprobs += logprobs
        more = {**kind.more, "logprobs": list(logprobs)} if logprobs else kind.more
        sent.append(self._event(f"{kind.text_event}.delta", **self._open_text.at, **kind.part_index, delta=text, **more))
        return sent

    def _end_text(self, status: Status) -> list[StreamEvent]:
        said, self._open_text = self._open_text, None
        if said is None:
            return []
        kind, text = said.kind, "".join(said.pieces)
        more = {"logprobs": said.logprobs} if said.logprobs else {}
        part = {**kind.write_part(text), **more}
        return [
            self._event(f"{kind.text_event}.done", **said.at, **kind.part_index, text=text, **{**kind.more, **more}),
            self._event(f"{kind.part_event}.done", **said.at, **kind.part_index, part=part),
            self._done(said, status, **{kind.key: [part]}),
        ]

    def _write_text(self, text: str) -> list[StreamEvent]:
        return self._write_piece(MESSAGE_TEXT, text)

    def _start_call(self, index: int, name: str, id: str) -> list[StreamEvent]:
        sent = self._end_text("completed")
        otherwise = f"{id or 'call'}_{self._heading.key}_{len(self._used_ids)}"
        space, own = self._heading.namespaces.get(name, ("", name))
        item = write_call_item(own, self._unique_id(id, otherwise), "")
        self._open_calls[index] = self._add({**item, "namespace": space} if space else item)
        return [*sent, self._added(self._open_calls[index])]

    def _write_arguments(self, index: int, text: str) -> list[StreamEvent]:
        call = self._open_calls[index]
        call.pieces.append(text)
        return [self._event("response.function_call_arguments.delta", **call.at, delta=text)]

    def _end_call(self, index: int, unreadable: str | None) -> list[StreamEvent]:
        return self._call_done(self._open_calls.pop(index), "completed" if unreadable is None else "incomplete")

    def _call_done(self, call: _OpenItem, status: Status) -> list[StreamEvent]:
        text, name = "".join(call.pieces), call.item["name"]
        done = self._event("response.function_call_arguments.done", **call.at, name=name, arguments=text)
        return [done, self._done(call, status, arguments=text)]

    def _stop(self, event: Stopped) -> list[StreamEvent]:
        cut = event.reason == "length"
        self._end = {
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": write_usage(event.usage),
            **write_report(event.report),
        }
        if cut:
            return self._finish("incomplete", "incomplete")
        self._end["completed_at"] = int(self._heading.clock()) if self._heading.clock else self._heading.created
        return self._finish("completed", "completed")

    def _finish(self, status: Status, said: Status) -> list[StreamEvent]:
        sent = self._end_text(said)
        for call in self._open_calls.values():
            sent += self._call_done(call, "incomplete")
        self._status = status
        return [*sent, self._event(_LAST.get(status, f"response.{status}"), response=self.response())]

    def _add(self, item: Mapping[str, Json], kind: TextKind = MESSAGE_TEXT) -> _OpenItem:
        place = len(self._output)
        self._output.append({"id": item_id(item["type"], self._heading.key, place), **item, "status": "in_progress"})
        return _OpenItem(place, self._output[place], kind)

    def _added(self, one: _OpenItem) -> StreamEvent:
        return self._event("response.output_item.added", output_index=one.place, item=one.item)

    def _done(self, one: _OpenItem, status: Status, **fields: Json) -> StreamEvent:
        # A new item, for the old one may not have been sent yet.
        one.item = self._output[one.place] = {**one.item, **fields, "status": status}
        return self._event("response.output_item.done", output_index=one.place, item=one.item)

    def _event(self, type: str, **fields: Json) -> StreamEvent:
        self._sent += 1
        return {"type": type, "sequence_number": self._sent - 1, **fields}


def write_response(events: Iterable[ModelEvent], heading: Heading) -> dict[str, Json]:
    """The whole response, which is the one in the last event of the stream."""
    writer = EventWriter(heading)
    for event in events:
        writer.write(event)
    writer.close()
    return writer.response()


def _write_sampling(sampling: Sampling) -> dict[str, Json]:
    """The sampling in effect: clients want numbers, and where a model does not say, it samples as its probabilities are."""
    temperature, top_p = sampling.temperature, sampling.top_p
    return {
        "temperature": 1.0 if temperature is None else temperature,
        "top_p": 1.0 if top_p is None else top_p,
        "frequency_penalty": sampling.frequency_penalty or 0.0,
        "presence_penalty": sampling.presence_penalty or 0.0,
    }


def write_usage(usage: Usage) -> dict[str, Json]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
