"""The dialects in which other servers are asked: where a request goes, its body, and the reader of its answer."""

from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from callsmith.core.errors import ModelError, UnknownName, UsageError, shorten
from callsmith.core.events import ModelEvent
from callsmith.core.values import Json, Request
from callsmith.wire.answers import AnswerReader
from callsmith.wire.anthropic import events as anthropic_events
from callsmith.wire.anthropic import messages as anthropic
from callsmith.wire.ollama import events as ollama_events
from callsmith.wire.ollama import requests as ollama
from callsmith.wire.openai import chat, chat_events, responses, responses_events
from callsmith.wire.signed import Signed
from callsmith.wire.sse import DONE, FrameReader
from callsmith.wire.upstream.frames import RepeatedText, load_json
from callsmith.wire.upstream.quirks import Quirks, spell_chat

_LONGEST_WHOLE = 64 * 1024 * 1024  # bytes of an answer that is not streamed


@dataclass(frozen=True, slots=True)
class UpstreamDialect:
    """A dialect, spoken by a client.

    `is_lines`: a stream is lines of JSON, and no server-sent events. `key_header` carries the key, with `key_prefix` before it;
    `constant_headers` are sent in any case. `outside` are the ends of an address below which its paths do not begin.
    `ends_with_usage`: what an answer has cost may come behind its last choice. `counts_tokens`: whether it can be asked what a
    request would cost. `list_path` is where a server lists its models.
    """

    name: str
    path: str
    write: Callable[[str, Request, Signed, Quirks], dict[str, Json]]
    reader: Callable[[], AnswerReader]
    is_lines: bool = False
    key_header: str = "authorization"
    key_prefix: str = "Bearer "
    constant_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    outside: tuple[str, ...] = ()
    ends_with_usage: bool = False
    counts_tokens: bool = False
    list_path: str = "models"

    def headers(self, key: str) -> dict[str, str]:
        """The headers that carry a key, and what else this API wants."""
        return {**self.constant_headers, **({self.key_header: self.key_prefix + key} if key else {})}

    def base_url(self, url: str) -> str:
        """Where the paths of this dialect begin."""
        url = url.rstrip("/")
        for end in self.outside:
            url = url.removesuffix(end)
        return url


def _write_chat(model: str, request: Request, signed: Signed, quirks: Quirks) -> dict[str, Json]:
    chat_request = chat.ChatRequest(model, request, stream=quirks.streams, include_usage=quirks.streams)
    return spell_chat(chat.write_request(chat_request, signed), request, quirks)


def _write_responses(model: str, request: Request, signed: Signed, quirks: Quirks) -> dict[str, Json]:
    body = responses.write_request(responses.ResponsesRequest(model, request, stream=quirks.streams, store=False), signed)
    if quirks.history == "signed":
        body["include"] = [*body.get("include", ()), "reasoning.encrypted_content"]
        if body.pop("chat_template_kwargs", None):
            body["reasoning"] = {"effort": "medium"}  # there is no other way to say that there is to be reasoning
        if request.thinking:
            body["reasoning"] = {**body["reasoning"], "summary": "auto"}
    return body


def _write_messages(model: str, request: Request, signed: Signed, quirks: Quirks) -> dict[str, Json]:
    body = anthropic.write_request(anthropic.MessagesRequest(model, request, stream=quirks.streams), signed)
    if quirks.history == "signed":  # where all is as Anthropic has it: it refuses messages without text
        messages = body["messages"]
        body["messages"] = [
            said for said in messages if not isinstance(said["content"], str) or said["content"].strip()
        ] or messages
    if quirks.history == "signed" and request.thinking and _lacks_signature(body["messages"]):
        body["thinking"] = {"type": "disabled"}  # a round of calls that began with thoughts cannot go on without them
    return body


def _lacks_signature(messages: list[Mapping[str, Json]]) -> bool:
    """Whether results are sent for calls before which no thoughts stand."""
    last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    if last is None or messages[-1] is last or not isinstance(last["content"], list):
        return False
    kinds = [block.get("type") for block in cast(list[Mapping[str, Json]], last["content"])]
    return "tool_use" in kinds and not {"thinking", "redacted_thinking"} & set(kinds)


def _write_ollama(model: str, request: Request, _: Signed, quirks: Quirks) -> dict[str, Json]:
    return ollama.write_chat(ollama.OllamaRequest(model, request, stream=quirks.streams))


DIALECTS: Mapping[str, UpstreamDialect] = {
    dialect.name: dialect
    for dialect in (
        UpstreamDialect("chat", "chat/completions", _write_chat, chat_events.EventReader, ends_with_usage=True),
        UpstreamDialect("responses", "responses", _write_responses, responses_events.EventReader),
        UpstreamDialect(
            "anthropic",
            "messages",
            _write_messages,
            anthropic_events.EventReader,
            key_header="x-api-key",
            key_prefix="",
            constant_headers={"anthropic-version": "2023-06-01"},
            counts_tokens=True,
        ),
        UpstreamDialect(
            "ollama",
            "api/chat",
            _write_ollama,
            ollama_events.LineReader,
            is_lines=True,
            outside=("/v1", "/api"),
            list_path="api/tags",
        ),
    )
}


def dialect_named(name: str) -> UpstreamDialect:
    if name not in DIALECTS:
        raise UnknownName("API", name, DIALECTS, field="api")
    return DIALECTS[name]


class AnswerDecoder:
    """The bytes of an answer to events. A whole answer in place of a stream is read too.

    What the sender gets wrong is a ModelError: whoever asks here can do nothing about it.
    """

    def __init__(self, dialect: UpstreamDialect) -> None:
        self._reader = dialect.reader()
        self._is_lines = dialect.is_lines
        self._frames = FrameReader()
        self._rest: list[bytes] = []  # a line whose end has not come, or a whole answer
        self._size = 0
        self._is_whole: bool | None = None if not dialect.is_lines else False
        self.is_done = False  # nothing comes any more
        self._dialect = dialect
        self._repeated = RepeatedText(dialect.reader)

    @property
    def has_ended(self) -> bool:
        """Whether the sender has said that this is all."""
        return self._reader.has_ended

    @property
    def signed(self) -> Json:
        """What the sender wants back unchanged with the calls of this answer; None if nothing."""
        return self._reader.signed

    def feed(self, data: bytes) -> list[ModelEvent]:
        """The events that are complete with these bytes."""
        if self._is_whole is None and (begun := data.lstrip()):
            data = begun.removeprefix(BOM_UTF8)
            self._is_whole = data.lstrip().startswith(b"{")
        if self._is_whole:
            self._rest.append(data)
            self._size += len(data)
            if self._size > _LONGEST_WHOLE:
                raise ModelError(f"the upstream answers with more than {_LONGEST_WHOLE:,} bytes")
            return []
        events: list[ModelEvent] = []
        for text in self._lines(data) if self._is_lines else [frame.data for frame in self._frames.feed(data)]:
            if said := self._repeated.match(text):
                events += self._reader.repeat_text(said)
            else:
                events += self._read(text)
        return events

    def close(self) -> list[ModelEvent]:
        rest = b"".join(self._rest).decode("utf-8", "replace").strip()
        last = [rest] if rest else [frame.data for frame in self._frames.feed(b"\n\n")]
        events = [event for text in last for event in self._read(text)]
        return [*events, *self._reader.close()]

    def _lines(self, data: bytes) -> list[str]:
        first, *others = data.split(b"\n")
        self._rest.append(first)
        lines: list[str] = []
        for following in others:
            lines.append(b"".join(self._rest).decode("utf-8", "replace").strip())
            self._rest = [following]
        return [line for line in lines if line]

    def _read(self, text: str) -> list[ModelEvent]:
        if text.strip() == DONE:
            self.is_done = self._reader.has_ended = True
            return []
        try:
            events = self._reader.feed(load_json(text))
            self._repeated.learn(text, events)
            self.is_done = self.is_done or (self.has_ended and not self._dialect.ends_with_usage)
            return events
        except (ValueError, RecursionError) as error:
            raise ModelError(f"the upstream sends what is no JSON: {shorten(text)!r}", retryable=True) from error
        except UsageError as error:
            raise ModelError(f"the upstream's answer cannot be read: {error}") from error
