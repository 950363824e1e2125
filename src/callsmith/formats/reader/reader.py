"""The streaming reader: turns a model's text, piece by piece, into events. No I/O; reading a whole text is `feed` and `close`.

    reader = Reader(format, tools, opened=prompt.opened)
    for piece in pieces:
        events += reader.feed(piece)
    events += reader.close()

From the marker of a call on, the text is saved until the call is complete: if it turns out to be no call, the marker is emitted
as text and reading goes on behind it; once `CallStarted` has been emitted, what cannot be read becomes `Unreadable`.
A call has one id from its first event on: where the format writes the id behind the arguments, the call is withheld until then.
If there is no call outside the reasoning, calls inside it are recovered at the end, unless `recover` is off.
No text makes a reader raise. `strict` allows no repairs.
"""

from collections.abc import Iterable
from dataclasses import replace

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Text, Thought, Unreadable
from callsmith.core.types.field_checks import check_argument, check_items
from callsmith.core.values import Call, Tool
from callsmith.formats.algebra import Calls, Format, Obj, Part, Quotes, Says, Thinks, first_literals, is_strong, nodes_of
from callsmith.formats.detector import events_of, run_detectors
from callsmith.formats.reader.call import CallReader
from callsmith.formats.reader.literals import LiteralReader
from callsmith.formats.reader.markers import (
    SPECIAL_MARK,
    Markers,
    closers_of,
    compile_markers,
    ends_reasoning,
    mark_specials,
    strong_closers_of,
    trimmed_edges,
)  # fmt: skip
from callsmith.formats.reader.source import Incremental, Mismatch, TextSource, Truncated, ignore, stops


class Reader:
    """Reads one turn of a model. `opened` is the end of the prompt, which may have begun the turn; in pieces no special spans.

    `specials` are the tokenizer's special tokens. `is_constrained`: a grammar constrained the text. Then every value is closed,
    and only its closer ends it.
    """

    def __init__(
        self,
        format: Format,
        tools: Iterable[Tool] = (),
        opened: str | tuple[str, ...] = "",
        *,
        specials: frozenset[str] = frozenset(),
        strict: bool = False,
        is_constrained: bool = False,
        recover: bool = True,
    ) -> None:
        tools = check_items("tools", tools, Tool)
        check_argument("format", format, Format, "format_named('hermes') finds one")
        self._markers: Markers = compile_markers(format, specials, frozenset(tool.name for tool in tools))
        self._recovers = recover and not strict
        self._holds = False  # all events, until the answer is complete
        self._thoughts: list[str] = []
        self._has_specials = bool(specials)
        self._source = TextSource()
        self._events: list[ModelEvent] = []
        self._pieces: list[str] = []  # of the next event, not yet joined
        self._event_type: type[Text] | type[Thought] | None = Text  # of the next event; None: CallArguments
        self._literals = LiteralReader(self._source, self._markers.ignored_in_calls, strict=strict, is_constrained=is_constrained)
        self._call = CallReader(self._literals, {tool.name: tool for tool in tools}, self._start_call, self._pieces.append)
        self._index = 0
        self._withheld: int | None = None  # the place in `_events` of a `CallStarted` whose id is still to come
        self._part: Says | Thinks | Quotes | None = None
        self._pending_space: str | None = None  # white space that counts only if text follows it
        self._at_start = False  # no text of this part has come yet, and white space before it is dropped
        self._trims_end = False  # white space at the end of this part belongs to its closer
        self._last_char = ""  # of the text so far
        self._has_text = False  # some text was emitted, reasoning aside
        self._text_closers: set[str] = set()  # closers whose openers were emitted as text: they are text too
        self._prompt_chars = 0  # how many characters of the unread text belong to the prompt
        self._has_parts = False  # some part of the turn was entered
        self._in_prompt = bool(opened)
        self._coroutine = self._read_turn()
        next(self._coroutine)
        if any(opened):
            self._source.feed("".join(mark_specials(end, specials) for end in ([opened] if isinstance(opened, str) else opened)))
            next(self._coroutine, None)
            self._drain()
            self._pending_space = ""
            self._prompt_chars = self._source.pending()
            self._in_prompt = False
            if self._markers.start_words and self._source.saved is None:
                self._coroutine = self._read_turn()  # the prompt's header is over, and the turn begins here
                self._source.fast_path = None
                next(self._coroutine)
        self._holds = bool(format.detectors) and not is_constrained

    def feed(self, text: str, special: bool = False) -> list[ModelEvent]:
        """Take a piece of text and return the events it completes. `special`: the piece is one special token."""
        source = self._source
        if self._has_specials and SPECIAL_MARK in text:
            text = text.replace(SPECIAL_MARK, "\ufffd")
        if special:
            text = SPECIAL_MARK + text
        elif source.fast_path and not source.text and not source.fast_path[0].search(text):
            if source.saved is not None:
                source.saved.append(text)
            source.fast_path[1](text)
            return self._drain()
        source.feed(text)
        next(self._coroutine, None)
        return self._drain()

    def close(self) -> list[ModelEvent]:
        """End the text and return the last events."""
        self._source.ended = True
        next(self._coroutine, None)
        if self._holds and not self._index:
            self._flush()
            self._events = run_detectors(self._markers.format.detectors, self._events, self._call.tools.values())
            self._index = sum(isinstance(event, CallReady) for event in self._events)
        self._holds = False
        if self._recovers and not self._index and self._thoughts:
            self._events += self._recover_calls()
        return self._drain()

    @property
    def withheld(self) -> int:
        """How many characters of the answer may still become text, or be left out: so far no event has come of them."""
        source = self._source
        unread = source.text[source.pos :] if source.saved is None else source.since_mark() + source.text[source.pos :]
        unread = unread[self._prompt_chars :]
        held = sum(len(event.text) for event in self._events if isinstance(event, Text))
        return held + len(unread) - unread.count(SPECIAL_MARK) + len(self._pending_space or "")

    def _recover_calls(self) -> list[ModelEvent]:
        """The events of calls of known tools inside the reasoning, which was emitted as `Thought` already."""
        self._flush()
        if self._markers.only_special(self._markers.openers) and not self._markers.only_special(self._thoughts):
            return []  # a real marker would have come as a special token
        format, known = self._markers.format, self._call.tools
        parts = tuple(part for part in format.parts if isinstance(part, Calls | Quotes))
        inner = Reader(replace(format, parts=parts), known.values())
        events = inner.feed("".join(self._thoughts)) + inner.close()
        ready = [event for event in events if isinstance(event, CallReady) and (not known or event.call.name in known)]
        self._index = len(ready)
        return events_of((event.call, (*event.repairs, "in-reasoning")) for event in ready)

    # --- collecting events ------------------------------------------------------------------------------------------------

    def _drain(self) -> list[ModelEvent]:
        self._flush()
        if self._holds:
            return []
        events = self._events
        if self._withheld is None:
            self._events = []
            return events
        ready = events[: self._withheld]
        del events[: self._withheld]
        self._withheld = 0
        return ready

    def _flush(self) -> None:
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        if self._has_specials and SPECIAL_MARK in text:
            text = text.replace(SPECIAL_MARK, "")
        if self._event_type is None:
            self._call.text.append(text)
            self._events.append(CallArguments(self._index, text))
        else:
            self._events.append(self._event_type(text))

    def _emit(self, text: str) -> None:
        """Add text or thought to the next event. White space at an edge waits for more text; the prompt's text is left out."""
        if self._prompt_chars:
            text, self._prompt_chars = text[self._prompt_chars :], max(0, self._prompt_chars - len(text))
        if self._pending_space is not None:
            text = self._pending_space + text
            if not text or text.isspace():
                self._pending_space = text
                return
            text = text.lstrip() if self._at_start else text
            self._pending_space = None
        self._at_start = False
        self._has_text = self._has_text or self._event_type is Text
        if self._trims_end:
            bare = text.rstrip()
            if len(bare) < len(text):
                self._pending_space, text = text[len(bare) :], bare
        if self._event_type is Thought:
            self._thoughts.append(text)
        if text:
            self._last_char = text[-1]
            self._pieces.append(text)

    def _enter(self, part: Says | Thinks | Quotes | None) -> None:
        """Begin a part: the text that follows belongs to it. None: plain text outside all parts."""
        self._flush()
        self._has_parts = True
        trims_start, trims_end = trimmed_edges(part)
        self._at_start = trims_start or isinstance(self._part, Thinks)
        self._trims_end = trims_end
        self._part = part
        self._event_type = Thought if isinstance(part, Thinks) else Text
        self._pending_space = ""
        self._prompt_chars = 0
        self._text_closers.clear()

    # --- the turn ---------------------------------------------------------------------------------------------------------

    def _read_turn(self) -> Incremental[None]:
        """Read the whole turn: text up to a marker, then the marker, until the text ends."""
        yield
        markers, source = self._markers, self._source
        words = () if self._in_prompt or self._has_parts else markers.start_words
        if words and (hit := (yield from source.at_after_space(words))):
            yield from source.skip_space()
            yield from self._read_marker(hit)
        while True:
            outside = markers.prompt_stops if self._in_prompt else markers.text_stops
            wanted = markers.part_stops(self._part) if self._part else outside
            hit = yield from source.read_until(wanted, self._emit)
            if hit is None:
                return
            yield from self._read_marker(hit)

    def _read_marker(self, hit: str) -> Incremental[None]:
        """Read the marker at this place: a closer, an opener, or one that is dropped."""
        markers, part = self._markers, self._part
        if part and hit in first_literals(nodes_of(part.close)):
            self._source.pos += len(hit)
            if isinstance(part, Quotes):
                self._emit(hit)
                self._part = None
            else:
                self._enter(None)
        elif hit in markers.drop:
            self._source.pos, self._prompt_chars = self._source.pos + len(hit), max(0, self._prompt_chars - len(hit))
        elif isinstance(part, Thinks) and hit in first_literals(nodes_of(part.open)) and not ends_reasoning(markers.openers[hit]):
            self._source.pos += len(hit)
            if not self._at_start:
                self._emit(hit)
        elif hit in markers.openers:
            yield from self._open_part(hit)
        else:
            self._source.pos += len(hit)
            if hit in self._text_closers:
                self._emit(hit)  # else a closer of something that is not open

    def _open_part(self, hit: str) -> Incremental[None]:
        """Read the first part that this marker opens and that matches; where none does, the marker is text."""
        source = self._source
        if hit[0].isalnum() and (self._last_char.isalnum() or self._last_char == "_") and not self._pending_space:
            source.pos += len(hit)
            self._emit(hit)  # the end of a longer word
            return
        source.mark()
        truncated = False
        for part in self._markers.openers[hit]:
            try:
                if isinstance(part, Calls):
                    yield from self._read_section(part, hit)
                    self._enter(None)
                elif isinstance(part, Quotes):
                    source.pos += len(hit)
                    if part.one_line:
                        yield from self._read_line_quote(part)
                    else:
                        self._emit(hit)
                        self._part = part
                else:
                    yield from self._call.read_markers(nodes_of(part.open))
                    self._enter(part)
                source.unmark()
                return
            except (Mismatch, Truncated) as problem:
                if self._call.started:
                    yield from self._skip_unreadable(part, problem)
                    return
                truncated = truncated or isinstance(problem, Truncated)
                source.rewind()
        is_dropped = hit in self._markers.format.drop and (not truncated or source.text[source.pos :].strip() == hit)
        if truncated and not is_dropped and is_strong(hit) and self._prompt_chars < len(hit):
            source.pos = len(source.text)
            self._flush()
            self._events.append(Unreadable(self._without_prompt(source.since_mark()), "truncated"))
            source.unmark()
            return
        source.unmark()
        source.pos += len(hit)
        if not is_dropped:
            self._emit(hit)
            self._text_closers.update(closer for part in self._markers.openers[hit] for closer in strong_closers_of(part))

    def _read_line_quote(self, part: Quotes) -> Incremental[None]:
        """Emit quoted text up to its closer; a `Mismatch` if the line ends first."""
        source, close = self._source, first_literals(nodes_of(part.close))
        hit = yield from source.read_until(stops((*close, "\n")), ignore)
        if hit not in close:
            raise Mismatch("not closed on its line")
        source.pos += len(hit or "")
        self._emit(source.since_mark())

    def _without_prompt(self, text: str) -> str:
        """Raw text without the characters of the prompt and without the marks of special tokens."""
        text, self._prompt_chars = text[self._prompt_chars :], 0
        return text.replace(SPECIAL_MARK, "") if self._has_specials else text

    def _skip_unreadable(self, part: Part, problem: Mismatch | Truncated) -> Incremental[None]:
        """Emit a started call that cannot be read as `Unreadable`: skip to where it ends, or to the next call."""
        source = self._source
        assert isinstance(part, Calls)
        if isinstance(problem, Truncated):
            source.pos = len(source.text)
        else:
            ends = closers_of(part) or ("\n",)
            calls = (opener for opener, parts in self._markers.openers.items() if ends_reasoning(parts) and is_strong(opener))
            stop = yield from source.read_until(stops((*ends, *calls)), ignore)
            if stop in ends:
                source.pos += len(stop or "")
                self._call.reset()
                yield from self._call.read_markers(part.close, optional=True)
        self._flush()
        reason = "truncated" if isinstance(problem, Truncated) else str(problem)
        self._events.append(Unreadable(self._without_prompt(source.since_mark()), reason, self._index))
        source.unmark()
        self._end_call()
        self._enter(None)

    # --- a section of calls -----------------------------------------------------------------------------------------------

    def _read_section(self, part: Calls, hit: str) -> Incremental[None]:
        """Read all calls of a section, its opener and its closer."""
        source, call = self._source, self._call
        lead, between, close = first_literals(part.item), part.between.strip(), first_literals(part.close)
        strong = (yield from call.open_section(part.open, lead)) or is_strong(hit)
        # As the first text of a turn even a bare object is a call, whatever its name; later only with the name of a tool.
        is_bare = part is self._markers.format.calls or any(isinstance(node, Obj) for node in part.item)
        allows_any_name = strong or (is_bare and not self._has_text)
        count = 0
        unclosed = False  # the last call was not closed
        repair = ""  # the repair needed before the next call
        while True:
            if not (yield from source.skip_space()):
                break
            closing = (yield from source.at(close)) if close else None
            leading = yield from (source.at(lead) if lead else call.at_name())
            if closing and (not leading or len(closing) > len(leading)):
                if not count and not strong:
                    raise Mismatch("an empty section")
                yield from call.read_markers(part.close, optional=True)
                return
            joined = (yield from call.joined_part(part)) if unclosed and not leading else None
            if leading or joined:
                try:
                    yield from call.read(
                        joined or part, is_marked=strong, allows_any_name=allows_any_name, repair="joined" if joined else repair
                    )
                except (Mismatch, Truncated):
                    if count and not call.started:
                        break
                    raise
                unclosed, repair = "missing-close" in call.repairs, ""
                self._finish_call()
                count += 1
                source.mark()
            elif count and (separator := (yield from source.at((between or ",", ",", ";")))):
                source.pos += len(separator)
                repair = repair if separator == between else "other-separator"
            elif not (count and close and (yield from self._literals.skip_stray_closers(close))):
                break
        if not count:
            raise Truncated("the text ended") if source.ended and source.pos >= len(source.text) else Mismatch("no call")
        source.rewind()

    # --- one call ---------------------------------------------------------------------------------------------------------

    def _start_call(self, name: str, id: str) -> None:
        self._flush()
        self._event_type = None
        self._prompt_chars = 0
        self._withheld = len(self._events) if not id and self._call.part.has_id_last else None
        self._events.append(CallStarted(self._index, name, id))

    def _finish_call(self) -> None:
        self._flush()
        call = self._call
        finished = Call(call.name, call.arguments(), call.id, "".join(call.text))
        self._events.append(CallReady(self._index, finished, call.repairs))
        self._end_call()

    def _end_call(self) -> None:
        if self._withheld is not None and self._call.id:
            self._events[self._withheld] = CallStarted(self._index, self._call.name, self._call.id)
        self._withheld = None
        self._call.reset()
        self._index += 1
        self._event_type = Text
