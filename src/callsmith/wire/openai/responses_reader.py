"""The answer of `POST /v1/responses`, read: the stream's events, or a whole response, to events of ours."""

from callsmith.core.events import ModelEvent, Report, Stopped, StopReason, Text, Thought
from callsmith.core.values import Json, Usage
from callsmith.wire.calls import CallAssembler, arguments_text
from callsmith.wire.errors import sent_error
from callsmith.wire.extensions import read_report
from callsmith.wire.fields import Fields
from callsmith.wire.openai.common import read_usage
from callsmith.wire.openai.items import flat_name
from callsmith.wire.sampling import read_logprobs


class EventReader:
    """The stream's events to ours. `close` gives what only the end can tell: calls left open, why and at what cost it stopped.
    `has_ended`: whether the sender has said that this is all."""

    def __init__(self) -> None:
        self.has_ended = False
        self._calls = CallAssembler()  # by the places of their items
        self._added_items: set[int] = set()  # their places
        self._streamed: set[int] = set()  # the places of those whose text has come in pieces
        self._items: list[Json] = []  # as they were sent
        self._is_signed = False
        self._reason: StopReason | None = None
        self._usage = Usage()
        self._report = Report()

    @property
    def signed(self) -> Json:
        """All items of the answer, if the sender wants its reasoning back unchanged; else None."""
        return self._items if self._is_signed else None

    def feed(self, sent: Json) -> list[ModelEvent]:
        """The events of one. A response that failed, or an error in its place, is raised as a ModelError."""
        fields = Fields.of(sent, "")
        place = fields.integer("output_index") or 0
        match fields.text("type"):
            case "response.output_item.added":
                return self._added(place, fields.required_object("item"))
            case "response.output_text.delta" | "response.refusal.delta":
                return self._text(place, Text(fields.text("delta") or "", read_logprobs(fields, "logprobs")))
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                return self._text(place, Thought(fields.text("delta") or ""))
            case "response.function_call_arguments.delta":
                return self._calls.add(place, fields.text("delta") or "")
            case "response.output_item.done":
                return self._done(place, fields.required_object("item"))
            case "response.completed" | "response.incomplete":
                return self._finished(fields.required_object("response"))
            case "response.failed":
                raise sent_error(fields.required_object("response").get("error"))
            case "error":
                raise sent_error(fields.get("error") or fields.data)
            case _ if fields.get("error") is not None:
                raise sent_error(fields.get("error"))
            case _ if fields.get("object") == "response" and fields.get("status") != "in_progress":
                return self._finished(fields)  # a whole response, from servers that do not stream
            case _:
                return []  # what the end of the item repeats, and events of other servers

    def close(self) -> list[ModelEvent]:
        reason = self._reason or ("calls" if self._calls.count else "stop")
        return [*self._calls.end_all(), Stopped(reason, self._usage, self._report)]

    def _added(self, place: int, item: Fields) -> list[ModelEvent]:
        self._added_items.add(place)
        if item.text("type") != "function_call":
            return []
        name, id = flat_name(item.text("namespace"), item.required_text("name")), item.text("call_id") or ""
        return self._calls.start(place, name, id)

    def _text(self, place: int, event: Text | Thought) -> list[ModelEvent]:
        self._streamed.add(place)
        return [event] if event.text else []

    def _done(self, place: int, item: Fields) -> list[ModelEvent]:
        """The end of an item; all of it, from servers that send no pieces."""
        begun = [] if place in self._added_items else self._added(place, item)
        kind = item.text("type")
        self._items.append(item.data)
        if kind == "function_call":
            whole, is_object = arguments_text(item.get("arguments"))
            if is_object:
                self._calls.add_repair(place, "arguments-object")
            return [*begun, *self._calls.end(place, whole)]
        if kind == "reasoning" and item.get("encrypted_content"):
            self._is_signed = True
        if place in self._streamed or kind not in ("message", "reasoning"):
            return []
        text = "".join(part.text("text") or "" for part in item.objects("content" if item.get("content") else "summary"))
        return self._text(place, Thought(text) if kind == "reasoning" else Text(text))

    def _finished(self, response: Fields) -> list[ModelEvent]:
        """The end of the response. What of its output did not come before, comes here."""
        if response.get("error") is not None:
            raise sent_error(response.get("error"))
        self.has_ended = True
        usage = response.object("usage")
        self._usage = read_usage(usage, "input", "output") if usage else Usage()
        self._report = read_report(response) or Report()
        if response.text("status") == "incomplete":
            self._reason = "length"
        missing = [] if self._added_items or self._streamed else list(response.objects("output"))
        return [event for place, item in enumerate(missing) for event in self._done(place, item)]
