"""`UpstreamAnswer`: what another server sends for one answer, read as events."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from callsmith.core.errors import CallsmithError, ModelError, PromptTooLong, Rejected, TimedOut, UsageError
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Started, Stopped, Text, Thought, Unreadable
from callsmith.core.types.call_ids import CallIds
from callsmith.core.values import Call, Json, Tool
from callsmith.engines.port import Piece
from callsmith.engines.text import StopScanner
from callsmith.engines.upstream import BrokeOff, Upstream
from callsmith.formats.algebra import Format
from callsmith.formats.detector import events_of
from callsmith.formats.inference.find_calls import find_calls
from callsmith.formats.reader.reader import Reader
from callsmith.models.answers.normalizer import AnswerNormalizer, is_talk, new_call_id
from callsmith.models.answers.reading import Stage, pass_through
from callsmith.wire.upstream.dialects import AnswerDecoder, UpstreamDialect
from callsmith.wire.upstream.quirks import ToolNames

AS_TEXT: Final = "as-text"  # the repair of a call that was written as text
_LONGEST_HELD: Final = 8_000  # characters of an answer that may be nothing but a call in code
_FENCES: Final = ("```", "~~~")
_BEHIND_FENCE: Final = re.compile(r"\s*(```|~~~)[^\n]*\n.*?\1\s*\S", re.DOTALL)
_MOST_BYTES: Final = 64 * 1024 * 1024  # of one answer
_TOO_LONG: Final = re.compile(
    r"context[ _](?:length|size|window)|maximum context|(?:prompt|input) is too long|too many tokens"
    r"|(?:input|prompt|request).{0,40}exceeds.{0,40}(?:tokens|context)",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d[\d,_]{0,11}(?= (?:\w+ )?tokens?\b| maximum\b| that the context)", re.IGNORECASE)
_NO_TOOLS: Final = re.compile(
    r"(?:does not|doesn't|do not) support (?:tools?|functions?|tool[ _](?:calls?|calling|use|choice)|function[ _]call)"
    r"|enable-auto-tool-choice|requires? --jinja|tools? param requires|(?:tools?|tool_choice|function[ _]call\w*)\W.{0,30}"
    r"(?:not supported|unsupported|not allowed|unknown field|unrecognized)",
    re.IGNORECASE,
)


class TextCalls:
    """Reads calls that a server passes on as text, because it does not know how its model writes them.

    `is_expected`: the model was instructed to write its calls so, and nothing is repaired.

    An answer that is nothing but code, or one plain `name(key=value)`, may be a call too: it is withheld until that is known.
    """

    def __init__(self, format: Format, tools: Sequence[Tool], *, is_expected: bool = False, recover: bool = True) -> None:
        self._format = format
        self._tools = tuple(tools)
        self._openers = tuple(f"{tool.name}(" for tool in tools)
        self._is_expected = is_expected
        self._recover = recover
        self._reader: Reader | None = None
        self._held: str | None = ""

    def feed(self, text: str) -> list[ModelEvent]:
        """The events that a piece of text completes."""
        if self._reader is None:
            self._reader = Reader(self._format, self._tools, recover=self._recover)
        events = self._reader.feed(text)
        is_talk_alone = self._held is None and len(events) == 1 and isinstance(events[0], Text)
        return events if is_talk_alone else list(self._release(events))

    def close(self) -> list[ModelEvent]:
        """The last events of the text so far. What comes after is read anew, as behind a call that came as one."""
        if self._reader is None:
            return []
        events = list(self._release(self._reader.close()))
        held, self._held, self._reader = self._held, None, None
        return [*events, *self._find(held)] if held else events

    def _release(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        for event in events:
            if isinstance(event, Text) and self._held is not None:
                self._held += event.text
                if not self._may_be_a_call(self._held):
                    yield Text(self._held)
                    self._held = None
                continue
            if self._held is not None and not isinstance(event, Thought):
                if self._held:
                    yield Text(self._held)
                self._held = None
            if isinstance(event, CallReady) and not self._is_expected:
                event = replace(event, repairs=(*event.repairs, AS_TEXT))
            yield event

    def _may_be_a_call(self, text: str) -> bool:
        begun = text.lstrip()
        if len(text) > _LONGEST_HELD:
            return False
        if any(fence.startswith(begun[:3]) for fence in _FENCES):
            return not _BEHIND_FENCE.match(text)
        return any(opener.startswith(begun) or begun.startswith(opener) for opener in self._openers)

    def _find(self, text: str) -> list[ModelEvent]:
        """The calls in an answer that is nothing but code; the text itself, if there are none."""
        parsed, names = find_calls(text, self._tools, recover=False), {tool.name for tool in self._tools}
        if not parsed.calls or not all(call.name in names for call in parsed.calls):
            return [Text(text)]
        events: list[ModelEvent] = [Text(parsed.content)] if parsed.content else []
        return [*events, *events_of((replace(call, id=""), (AS_TEXT,)) for call in parsed.calls)]


@dataclass(frozen=True, slots=True)
class _OpenCall:
    """A call that has begun: its number, name and id here, and what was fixed."""

    number: int
    name: str
    id: str
    repairs: tuple[str, ...]


class UpstreamCalls:
    """Fixes the calls of one answer. `names` turns the names that were sent back into those of the `tools`, `text` reads calls
    that come as text (None: text is text), `ids` are those of earlier calls.

    Where calls come as calls, what looks like a call in the text is none, nor is what follows talk behind other calls.
    """

    def __init__(self, names: ToolNames, tools: Iterable[str], text: TextCalls | None, ids: CallIds) -> None:
        self._names = names
        self._tools = _spellings(tools, names)
        self._text = text
        self._ids = ids
        self._open: dict[tuple[bool, int], _OpenCall] = {}  # by whether it came as text, and the number it has there
        self._count = 0
        self._reads_text = True  # whether calls in the text count
        self._from_text: list[ModelEvent] = []  # calls in the text, until the answer ends
        self.has_changed_ids = False

    def filter(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """The events that come of these."""
        for event in events:
            match event:
                case Text() if self._text is not None and not event.logprobs:
                    yield from self._keep_calls(self._text.feed(event.text))
                case Text() | Thought():
                    yield from self._keep_calls([event]) if self._from_text else (event,)
                case Started():
                    yield event
                case Stopped():
                    yield from self._close_text()
                    yield from self._fix(self._from_text, is_text=True)
                    yield event
                case _:
                    yield from self._close_text()
                    self._reads_text = False
                    self._from_text.clear()
                    yield from self._fix([event], is_text=False)

    def _close_text(self) -> Iterator[ModelEvent]:
        if self._text is not None:
            yield from self._keep_calls(self._text.close())

    def _keep_calls(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """What is said before all calls; what is read as calls is kept."""
        for event in events:
            if not isinstance(event, Text | Thought):
                self._from_text += (event,) if self._reads_text else ()
            elif self._from_text:
                self._reads_text &= not is_talk(event.text)
            else:
                yield event

    def _fix(self, events: Iterable[ModelEvent], *, is_text: bool) -> Iterator[ModelEvent]:
        for event in events:
            match event:
                case CallStarted(index, name, id):
                    yield self._start((is_text, index), name, id)
                case CallArguments(index, text):
                    if call := self._open.get((is_text, index)):
                        yield CallArguments(call.number, text)
                case CallReady(index, ready, repairs):
                    if call := self._open.pop((is_text, index), None):
                        yield CallReady(call.number, replace(ready, name=call.name, id=call.id), (*repairs, *call.repairs))
                case Unreadable(text, reason, int(index)):
                    if call := self._open.pop((is_text, index), None):
                        yield Unreadable(text, reason, call.number)
                case _:
                    yield event

    def _start(self, key: tuple[bool, int], sent: str, id: str) -> CallStarted:
        name, repairs = self._tool_name(sent)
        own_id = self._ids.claim(id, new_call_id())
        if own_id != id:
            repairs = repairs if key[0] else (*repairs, "repeated-id" if id else "missing-id")
            self.has_changed_ids = True
        call = self._open[key] = _OpenCall(self._count, name, own_id, repairs)
        self._count += 1
        return CallStarted(call.number, name, own_id)

    def _tool_name(self, sent: str) -> tuple[str, tuple[str, ...]]:
        """The tool that is meant, and what had to be fixed to know."""
        name = self._names.inward(sent)
        if name in self._tools.values():
            return name, ()
        if not sent and len(set(self._tools.values())) == 1:
            return next(iter(self._tools.values())), ("missing-name",)
        meant = self._tools.get(_normalize_name(name))
        return (name, ()) if meant is None else (meant, ("other-name",))


def _spellings(names: Iterable[str], sent: ToolNames) -> dict[str, str]:
    """The names of tools by what a model may make of them: as they were sent, and in other cases or with a prefix."""
    spellings: dict[str, str] = {}
    for name in names:
        for spelling in (name, sent.outward(name)):
            spellings.setdefault(_normalize_name(spelling), name)
    return spellings


def _normalize_name(name: str) -> str:
    """A name without regard to case, and without the prefix that some models put before it."""
    return name.strip().casefold().removeprefix("functions.").removeprefix("default_api.")


class StopFilter:
    """Ends the text of an answer at a stop string, for servers that leave it in the text or do not stop at it."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._scanner = StopScanner(stops)

    def filter(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """The events without what comes from the stop string on."""
        for event in events:
            match event:
                case Text() if event.logprobs:
                    yield event  # its tokens are not ours to cut
                case Text(text):
                    yield from _texts(self._scanner.feed(Piece(text)))
                case Stopped():
                    yield from _texts(self._scanner.close())
                    found = self._scanner.found and event.reason in ("stop", "length")
                    yield replace(event, reason="stop", matched=event.matched or self._scanner.matched) if found else event
                case _:
                    yield event


def _texts(pieces: Iterable[Piece]) -> Iterator[Text]:
    text = "".join(piece.text for piece in pieces)
    if text:
        yield Text(text)


class UpstreamAnswer:
    """Reads the bytes of one answer. The events go through `calls` and `normalizer`; the stages `before` them see what the server
    has sent, those `behind` what was made of it."""

    def __init__(
        self,
        upstream: Upstream,
        dialect: UpstreamDialect,
        calls: UpstreamCalls,
        normalizer: AnswerNormalizer,
        before: Sequence[Stage],
        behind: Sequence[Stage],
        stops: Sequence[str] = (),
    ) -> None:
        self._upstream = upstream
        self._decoder = AnswerDecoder(dialect)
        self._calls = calls
        self._normalizer = normalizer
        self._stops = stops
        self._stages = (*before, calls.filter, normalizer.filter, *behind)
        self._size = 0
        self._heard = time.monotonic()

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come."""
        return self._decoder.is_done

    @property
    def signed(self) -> tuple[Sequence[Call], Json]:
        """The calls, and what the server has signed of the answer; None if that does not fit them."""
        has_same_ids = self._normalizer.calls and not self._calls.has_changed_ids
        return self._normalizer.calls, self._decoder.signed if has_same_ids else None

    def feed(self, data: bytes) -> Iterable[ModelEvent]:
        """The events that these bytes complete."""
        self._size += len(data)
        if self._size > _MOST_BYTES:
            raise ModelError(f"the answer of {self._upstream.url} does not end: it has more than {_MOST_BYTES:,} bytes")
        now, events = time.monotonic(), self._decoder.feed(data)
        if not events and now - self._heard > (seconds := self._upstream.retry_policy.begin):
            raise TimedOut(f"{self._upstream.url} keeps the connection open, but has said nothing for {seconds:g} s")
        self._heard = now if events else self._heard
        return pass_through(self._stages, events)

    def close(self) -> Iterable[ModelEvent]:
        """The last events."""
        events = [self._without_other_stop(event) for event in self._decoder.close()]
        if not self._decoder.has_ended:
            raise BrokeOff(self._upstream.url)
        return pass_through(self._stages, events)

    def _without_other_stop(self, event: ModelEvent) -> ModelEvent:
        """The event; what is called the end of an answer and is no stop string of the request is something else."""
        is_other = isinstance(event, Stopped) and event.matched and event.matched not in self._stops
        return replace(event, matched="") if is_other else event


def refuses_tools(error: Rejected) -> bool:
    """Whether a server says that it, or its model, has no tools."""
    return error.status in (400, 404, 405, 422, 500, 501) and _NO_TOOLS.search(error.message) is not None


def refuses_model(error: Rejected) -> bool:
    """Whether a server says that it has no such model."""
    return error.status == 404 and "model" in error.message.lower()


def explain_rejection(error: Rejected, *, url: str, key_variable: str) -> CallsmithError:
    """The error to raise in place of a refusal."""
    if error.status in (401, 403):
        # What it says may quote a part of the key: that is for the operator, not for clients.
        hint = f"It says: {error.message}\nIs the key in {key_variable} set, and is it the right one?"
        return Rejected(f"{url} does not accept this server's key ({error.status})", status=error.status, hint=hint)
    if error.status in (400, 413, 422) and _TOO_LONG.search(error.message):
        return _prompt_too_long(error.message)
    if error.status in (400, 413, 415, 422):
        return UsageError(error.message)
    return error


def _prompt_too_long(message: str) -> PromptTooLong:
    """The error with the numbers that the message gives, of which the larger one is that of the prompt."""
    numbers = sorted({int(re.sub(r"\D", "", number)) for number in _NUMBER.findall(message)})
    context, tokens = (numbers[-2], numbers[-1]) if len(numbers) > 1 else (numbers[0] if numbers else 0, 0)
    return PromptTooLong(tokens, context, says=message)
