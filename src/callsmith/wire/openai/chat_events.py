"""The answer of `POST /v1/chat/completions`: events to chunks, to a whole completion, and chunks back to events.

    {"delta": {"role": "assistant", "content": ""}}
    {"delta": {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": ""}}]}}
    {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\\"a\\": 1}"}}]}}
    {"delta": {}, "finish_reason": "tool_calls"}

A call of a custom tool has `custom` in place of `function`, and its text as `input` in place of `arguments`.
Clients concatenate: an id or a name is sent once, indexes begin at 0 without gaps, calls come one after the other.
The report on how far an answer was held to its schemas stands beside the choice that ends it.
Not covered: interleaved calls are passed on interleaved; the reasons of repairs do not travel.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from callsmith.core.events import CUT, ModelEvent, Report, Stopped, StopReason, Text, Thought
from callsmith.core.values import Json, TokenLogprob, Usage
from callsmith.wire.answers import AnswerReader, AnswerWriter
from callsmith.wire.calls import CallWriter, arguments_text
from callsmith.wire.extensions import read_report, write_report
from callsmith.wire.fields import Fields
from callsmith.wire.kinds.custom import CUSTOM, INPUT, InputReader
from callsmith.wire.openai.common import read_usage, write_usage
from callsmith.wire.sampling import read_logprobs, write_logprobs
from callsmith.wire.signed import SignedDetails

_CHUNK = "chat.completion.chunk"
_REASONS: dict[StopReason, str] = {"stop": "stop", "length": "length", "filtered": "content_filter", "calls": "tool_calls"}
_READ_REASONS: dict[str, StopReason] = {**{spelled: reason for reason, spelled in _REASONS.items()}, "function_call": "calls"}


@dataclass(frozen=True, slots=True)
class ChatHeading:
    """What every chunk of an answer repeats, in which form the answer is wanted, and the kinds of tools that are no functions."""

    id: str
    model: str
    created: int
    include_usage: bool = False
    legacy: bool = False
    shows_thoughts: bool = True
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])

    def around(self, object: str, choices: list[Json]) -> dict[str, Json]:
        """These choices, in a body of this kind."""
        return {"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices}


class ChunkWriter(CallWriter, AnswerWriter):
    """Events to chunks, the first of them opened by one that names the role. `choice` is the answer's number among several."""

    def __init__(self, heading: ChatHeading, choice: int = 0) -> None:
        super().__init__()
        self._heading = heading
        self._choice = choice
        self._numbers: dict[int, int] = {}  # on the wire, by the model's: calls that never started leave gaps there
        self._inputs: dict[int, InputReader] = {}  # of calls of custom tools, by the model's numbers

    def pause(self) -> list[dict[str, Json]]:
        """Chunks of which the last is empty: a field of our own can be added to it."""
        return [*self._open(), self._chunk({})]

    def _write_opening(self, event: Any) -> list[dict[str, Json]]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def _start_call(self, index: int, name: str, id: str) -> list[dict[str, Json]]:
        number = self._numbers[index] = len(self._numbers)
        unique_id = self._unique_id(id, f"call_{self._heading.id}_{self._choice}_{number}")
        if self._heading.kinds.get(name) == CUSTOM:
            self._inputs[index] = InputReader()
            return self._call_chunks({"index": number, "id": unique_id, "type": CUSTOM, CUSTOM: {"name": name, INPUT: ""}})
        function = {"name": name, "arguments": ""}
        return self._call_chunks({"index": number, "id": unique_id, "type": "function", "function": function})

    def _write_arguments(self, index: int, text: str) -> list[dict[str, Json]]:
        if index in self._inputs:
            return self._write_input(index, self._inputs[index].feed(text))
        return self._call_chunks({"index": self._numbers[index], "function": {"arguments": text}})

    def _end_call(self, index: int, unreadable: str | None) -> list[dict[str, Json]]:
        reader = self._inputs.pop(index, None)
        return [] if reader is None or unreadable is not None else self._write_input(index, reader.finish())

    def _write_input(self, index: int, text: str) -> list[dict[str, Json]]:
        return self._call_chunks({"index": self._numbers[index], CUSTOM: {INPUT: text}}) if text else []

    def _write_text(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> list[dict[str, Json]]:
        return [self._chunk({"content": text}, logprobs=logprobs)] if text else []

    def _write_thought(self, text: str) -> list[dict[str, Json]]:
        return [self._chunk({"reasoning_content": text, "reasoning": text})] if self._heading.shows_thoughts else []

    def _call_chunks(self, call: dict[str, Json]) -> list[dict[str, Json]]:
        if not self._heading.legacy:
            return [self._chunk({"tool_calls": [call]})]
        return [] if call["index"] else [self._chunk({"function_call": call["function"]})]

    def _finish(self, event: Stopped) -> list[dict[str, Json]]:
        spelled = "function_call" if self._heading.legacy and event.reason == "calls" else _REASONS[event.reason]
        chunks = [{**self._chunk({}, spelled), **write_report(event.report)}]
        if self._heading.include_usage:
            chunks.append(_usage_chunk(self._heading, event.usage))
        return chunks

    def _chunk(
        self, delta: dict[str, Json], finish_reason: str | None = None, logprobs: Sequence[TokenLogprob] = ()
    ) -> dict[str, Json]:
        content_logprobs = _write_content_logprobs(write_logprobs(logprobs))
        choice = {"index": self._choice, "delta": delta, "logprobs": content_logprobs, "finish_reason": finish_reason}
        return self._heading.around(_CHUNK, [choice])


class ChoicesWriter:
    """Several answers to one request, in one stream: their events come with the number of the answer, in any order."""

    def __init__(self, heading: ChatHeading, choices: int) -> None:
        self._heading = heading
        self._writers = [ChunkWriter(replace(heading, include_usage=False), number) for number in range(choices)]
        self._usage = Usage()

    def write(self, choice: int, event: ModelEvent) -> list[dict[str, Json]]:
        if isinstance(event, Stopped):
            self._usage = sum_usage(self._usage, event.usage)
        return self._writers[choice].write(event)

    def close(self) -> list[dict[str, Json]]:
        """The end of those that had none, and what all of them have cost."""
        chunks = [chunk for writer in self._writers for chunk in writer.close()]
        return [*chunks, _usage_chunk(self._heading, self._usage)] if self._heading.include_usage else chunks


def write_response(events: Iterable[ModelEvent], heading: ChatHeading) -> dict[str, Json]:
    """The whole completion: the same chunks, put together, so that streaming or not makes no difference."""
    return write_choices([events], heading)


def write_choices(answers: Iterable[Iterable[ModelEvent]], heading: ChatHeading) -> dict[str, Json]:
    """The completion of several answers to one request."""
    choices: list[dict[str, Json]] = []
    usage, report = Usage(), Report()
    for number, events in enumerate(answers):
        writer, chunks = ChunkWriter(heading, number), list[dict[str, Json]]()
        for event in events:
            if isinstance(event, Stopped):
                usage, report = sum_usage(usage, event.usage), report + event.report
            chunks += writer.write(event)
        choices.append({"index": number, **_merge_chunks(chunks + writer.close())})
    return {**heading.around("chat.completion", choices), "usage": write_usage(usage), **write_report(report)}


def _write_content_logprobs(tokens: list[Json]) -> Json:
    return {"content": tokens, "refusal": None} if tokens else None


def sum_usage(first: Usage, other: Usage) -> Usage:
    """What answers to one request have cost: they share their prompt."""
    return replace(first + other, prompt=max(first.prompt, other.prompt), cached=max(first.cached, other.cached))


def _usage_chunk(heading: ChatHeading, usage: Usage) -> dict[str, Json]:
    return {**heading.around(_CHUNK, []), "usage": write_usage(usage)}


def _merge_chunks(chunks: Sequence[dict[str, Json]]) -> dict[str, Json]:
    """A choice, put together from the chunks of its stream."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    deltas = [choice["delta"] for choice in choices]
    content, reasoning = ("".join(delta.get(key) or "" for delta in deltas) for key in ("content", "reasoning_content"))
    calls: list[dict[str, Json]] = []
    for piece in (call for delta in deltas for call in delta.get("tool_calls", ())):
        if "id" in piece:
            calls.append({key: value for key, value in piece.items() if key != "index"})
        elif CUSTOM in piece:
            calls[piece["index"]][CUSTOM][INPUT] += piece[CUSTOM][INPUT]
        else:
            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    functions = [delta["function_call"] for delta in deltas if "function_call" in delta]
    message: dict[str, Json] = {"role": "assistant", "content": content, "refusal": None}
    if (calls or functions) and not content:
        message["content"] = None
    if reasoning:
        message["reasoning_content"] = message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = calls
    if functions:
        message["function_call"] = {**functions[0], "arguments": "".join(piece["arguments"] for piece in functions)}
    logprobs = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["content"]]
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return {"message": message, "logprobs": _write_content_logprobs(logprobs), "finish_reason": reasons[-1]}


class EventReader(AnswerReader):
    """Chunks to events, and whole completions too."""

    def __init__(self) -> None:
        super().__init__()
        self._reason = "stop"
        self._numbers: dict[int, int] = {}  # the sender's index → our key
        self._signed = SignedDetails()

    @property
    def signed(self) -> Json:
        return self._signed.whole()

    def _read(self, fields: Fields) -> list[ModelEvent]:
        if (usage := fields.object("usage")) is not None:
            self._usage = read_usage(usage)
        self._report = read_report(fields) or self._report
        events: list[ModelEvent] = []
        for choice in fields.objects("choices"):
            delta = choice.object("delta") or choice.object("message")
            if delta is not None:
                events += self._read_delta(delta, read_logprobs(choice.object("logprobs"), "content"))
            reason = choice.text("finish_reason")
            # Some servers send "" in every chunk until the last; where all of the answer comes in one it is the end.
            if reason or (reason is not None and choice.get("message") is not None):
                self.has_ended = True
                self._reason = _READ_REASONS.get(reason, "stop")
                matched = choice.get("stop_reason") or choice.get("matched_stop")  # in vLLM and SGLang; a token has a number
                self._matched = matched if isinstance(matched, str) else ""
                events += self._calls.end_all(is_cut=self._reason in CUT)
        return events

    def _read_delta(self, delta: Fields, logprobs: tuple[TokenLogprob, ...]) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        self._signed.add(delta)
        thought, text = _read_said(delta)
        if thought:
            events += [*self._calls.end_complete(), Thought(thought)]
        if text:
            events += [*self._calls.end_complete(), Text(text, logprobs)]
        for call in delta.objects("tool_calls"):
            events += self._read_call(call.integer("index"), call.text("id") or "", call)
            self._signed.add_call(call)
        if (deprecated := delta.object("function_call")) is not None:
            events += self._read_call(0, "", deprecated)
        return events

    def _read_call(self, sent: int | None, call_id: str, call: Fields) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        custom = call.object(CUSTOM)
        function, argument = (call.object("function") or call, "arguments") if custom is None else (custom, INPUT)
        name, (text, is_object) = function.text("name") or "", arguments_text(function.get(argument))
        key, repairs = self._key(sent, name, call_id)
        if key == self._calls.count:
            events += self._calls.end_complete()
            events += self._calls.start(key, name, call_id, repairs, wrap_in=INPUT if custom else "")
        if is_object:
            self._calls.add_repair(key, "arguments-object")
        return [*events, *self._calls.add(key, text)]

    def _key(self, sent: int | None, name: str, call_id: str) -> tuple[int, tuple[str, ...]]:
        """Which of our calls a delta belongs to, and the repairs it took to know. Where a server sends no index, a name begins
        a new call, unless it comes with the id of the last one; where it sends the same for all, a new id or name does."""
        count = self._calls.count
        if sent is None:
            is_new = not count or (self._calls.is_another(count - 1, name, call_id) if call_id else bool(name))
            return (count if is_new else count - 1), ()
        known = self._numbers.get(sent)
        if known is None or self._calls.is_another(known, name, call_id):
            self._numbers[sent] = count
            return count, () if known is None else ("repeated-index",)
        return known, ()


def _read_said(delta: Fields) -> tuple[str, str]:
    """The reasoning and the text of a delta; some servers send both as parts of the content."""
    thought = delta.text("reasoning_content") or delta.text("reasoning") or ""
    if not isinstance(delta.get("content"), list):
        return thought, (delta.text("content") or "") + (delta.text("refusal") or "")
    thoughts, texts = [thought], list[str]()
    for part in delta.objects("content"):
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            thoughts += (
                [inner] if isinstance(inner, str) else [thinking.text("text") or "" for thinking in part.objects("thinking")]
            )
        else:
            texts.append(part.text("text") or part.text("refusal") or "")
    return "".join(thoughts), "".join(texts)
