"""The streaming reader: turns a model's text, piece by piece, into events. No I/O; a whole text is read by `close`.

    reader = Reader(format, tools, opened=prompt.opened)
    for piece in pieces:
        events += reader.feed(piece)
    events += reader.close()

A text that has ended is read at once where nothing in it needs a repair, and else as all that streams: step by step.
From the marker of a call on, the text is saved until the call is complete: if it turns out to be no call, the marker is emitted
as text and reading goes on behind it; once `CallStarted` has been emitted, what cannot be read becomes `Unreadable`.
A call has one id from its first event on: where the format writes the id behind the arguments, the call is withheld until then.
If there is no call outside the reasoning, calls inside it are recovered at the end, unless `recover` is off.
No text makes a reader raise. `strict` allows no repairs.
"""

from collections.abc import Iterable
from dataclasses import replace

from callsmith.core.events import CallReady, ModelEvent, Text, Unreadable
from callsmith.core.types.field_checks import check_argument, check_items
from callsmith.core.values import Tool
from callsmith.formats.algebra import Calls, Format, Part, Quotes, Thinks, first_literals, is_strong, nodes_of
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
    section_of,
    strong_closers_of,
)  # fmt: skip
from callsmith.formats.reader.output import Output
from callsmith.formats.reader.source import MAX_PIECES, Incremental, Mismatch, TextSource, Truncated, ignore, join_small, stops
from callsmith.formats.write import literal_text


class Reader:
    """Reads one turn of a model. `opened` is the end of the prompt, which may have begun the turn; in pieces no special spans.

    `specials` are the tokenizer's special tokens. `is_constrained`: a grammar constrained the text. Then every value is closed,
    and only its closer ends it.
    """

    __slots__ = ("_call", "_coroutine", "_has_specials", "_in_prompt", "_literals", "_markers", "_output", "_recovers", "_source")

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
        check_argument("format", format, Format, "format_named('hermes') finds one")
        known = {tool.name: tool for tool in check_items("tools", tools, Tool)}
        self._markers: Markers = compile_markers(format, specials, frozenset(known))
        self._recovers = recover and not strict
        self._has_specials = bool(specials)
        self._source = TextSource()
        self._literals = LiteralReader(self._source, self._markers.ignored_in_calls, strict=strict, is_constrained=is_constrained)
        self._output = output = Output(has_specials=bool(specials))
        self._call = CallReader(self._literals, known, output.start_call, output.pieces.append)
        output.call = self._call
        self._in_prompt = bool(opened)
        self._coroutine = self._read_turn()
        next(self._coroutine)
        if any(opened):
            self._source.feed("".join(mark_specials(end, specials) for end in ([opened] if isinstance(opened, str) else opened)))
            next(self._coroutine, None)
            output.drain()
            output.pending_space = ""
            output.prompt_chars = self._source.pending()
            self._in_prompt = False
            if self._markers.start_words and self._source.saved is None:
                self._coroutine = self._read_turn()  # the prompt's header is over, and the turn begins here
                self._source.fast_path = None
                next(self._coroutine)
        output.holds = bool(format.detectors) and not is_constrained

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
                if len(source.saved) > MAX_PIECES:
                    join_small(source.saved)
            source.fast_path[1](text)
            return self._output.drain()
        source.feed(text)
        next(self._coroutine, None)
        return self._output.drain()

    def close(self, text: str = "") -> list[ModelEvent]:
        """End the text, with its last piece (or all of it), and return the last events."""
        output = self._output
        if text:
            self._source.feed(text.replace(SPECIAL_MARK, "\ufffd") if self._has_specials else text)
        self._source.ended = True
        next(self._coroutine, None)
        if output.holds and not output.index:
            output.flush()
            output.events = run_detectors(self._markers.format.detectors, output.events, self._call.tools.values())
            output.index = sum(isinstance(event, CallReady) for event in output.events)
        output.holds = False
        if (inner := self._reader_of_thoughts()) is not None:
            output.events += self._recover_calls(inner)
        return output.drain()

    @property
    def withheld(self) -> int:
        """How many characters of the answer may still become text, or be left out: so far no event has come of them."""
        source, output = self._source, self._output
        unread = source.text[source.pos :] if source.saved is None else source.since_mark() + source.text[source.pos :]
        unread = unread[output.prompt_chars :]
        held = sum(len(event.text) for event in output.events if isinstance(event, Text))
        return held + len(unread) - unread.count(SPECIAL_MARK) + len(output.pending_space or "")

    @property
    def is_thinking(self) -> bool:
        """Whether what comes now belongs to reasoning, or may turn out to."""
        return isinstance(self._output.part, Thinks)

    @property
    def closing_text(self) -> str | None:
        """What closes the reasoning that is open here; None if none is, or if what was read last may be a call.

        White space of the markers that stands there already is not in it, and what the opener still lacks is."""
        output, part = self._output, self._output.part
        if not isinstance(part, Thinks) or self._source.saved is not None or self._is_calling_in_thought():
            return None
        opener, closer = (literal_text(nodes_of(nodes)).replace(SPECIAL_MARK, "") for nodes in (part.open, part.close))
        space = output.pending_space or ""
        if output.at_start:
            return opener[len(opener.rstrip()) :][len(space) :] + closer
        return closer.lstrip("\n") if space.endswith("\n") else closer

    @property
    def is_in_marker(self) -> bool:
        """Whether what was read last may be the beginning of a marker."""
        return self._source.pos < len(self._source.text)

    def _reader_of_thoughts(self) -> "Reader | None":
        """What reads the calls inside the reasoning, which was emitted as `Thought` already; None if they do not count."""
        output, markers = self._output, self._markers
        output.flush()
        if not self._recovers or output.index or not output.thoughts:
            return None
        if markers.only_special(markers.openers) and not markers.only_special(output.thoughts):
            return None  # a real marker would have come as a special token
        parts = tuple(part for part in markers.format.parts if isinstance(part, Calls | Quotes))
        return Reader(replace(markers.format, parts=parts), self._call.tools.values())

    def _is_calling_in_thought(self) -> bool:
        """Whether the reasoning so far ends in a call that has begun, or may have."""
        inner = self._reader_of_thoughts()
        if inner is None:
            return False
        inner.feed("".join(self._output.thoughts))
        return inner._source.saved is not None

    def _recover_calls(self, inner: "Reader") -> list[ModelEvent]:
        """The events of calls of known tools inside the reasoning."""
        output, known = self._output, self._call.tools
        events = inner.close("".join(output.thoughts))
        ready = [event for event in events if isinstance(event, CallReady) and (not known or event.call.name in known)]
        output.index = len(ready)
        return events_of((event.call, (*event.repairs, "in-reasoning")) for event in ready)

    # --- the turn ---------------------------------------------------------------------------------------------------------

    def _read_turn(self) -> Incremental[None]:
        """Read the whole turn: text up to a marker, then the marker, until the text ends."""
        yield
        markers, source, output = self._markers, self._source, self._output
        words = () if self._in_prompt or output.has_parts else markers.start_words
        if words and (hit := (yield from source.at_after_space(words))):
            yield from source.skip_space()
            yield from self._read_marker(hit)
        while True:
            outside = markers.prompt_stops if self._in_prompt else markers.text_stops
            wanted = markers.part_stops(output.part) if output.part else outside
            hit = yield from source.read_until(wanted, output.emit)
            if hit is None:
                return
            yield from self._read_marker(hit)

    def _read_marker(self, hit: str) -> Incremental[None]:
        """Read the marker at this place: a closer, an opener, or one that is dropped."""
        markers, source, output = self._markers, self._source, self._output
        part = output.part
        if part and hit in first_literals(nodes_of(part.close)):
            source.pos += len(hit)
            if isinstance(part, Quotes):
                output.emit(hit)
                output.part = None
            else:
                output.enter(None)
        elif hit in markers.drop:
            source.pos, output.prompt_chars = source.pos + len(hit), max(0, output.prompt_chars - len(hit))
        elif isinstance(part, Thinks) and hit in first_literals(nodes_of(part.open)) and not ends_reasoning(markers.openers[hit]):
            source.pos += len(hit)
            if not output.at_start:
                output.emit(hit)
        elif hit in markers.openers:
            yield from self._open_part(hit)
        else:
            source.pos += len(hit)
            if hit in output.text_closers:
                output.emit(hit)  # else a closer of something that is not open

    def _open_part(self, hit: str) -> Incremental[None]:
        """Read the first part that this marker opens and that matches; where none does, the marker is text."""
        source, output = self._source, self._output
        if hit[0].isalnum() and (output.last_char.isalnum() or output.last_char == "_") and not output.pending_space:
            source.pos += len(hit)
            output.emit(hit)  # the end of a longer word
            return
        source.mark()
        truncated = False
        for part in self._markers.openers[hit]:
            try:
                if isinstance(part, Calls):
                    yield from self._read_section(part, hit)
                    output.enter(None)
                elif isinstance(part, Quotes):
                    source.pos += len(hit)
                    if part.one_line:
                        yield from self._read_line_quote(part)
                    else:
                        output.emit(hit)
                        output.part = part
                elif self._call.cannot_be(nodes_of(part.open)):
                    continue
                else:
                    yield from self._call.read_markers(nodes_of(part.open))
                    output.enter(part)
                source.unmark()
                return
            except (Mismatch, Truncated) as problem:
                if self._call.started:
                    yield from self._skip_unreadable(part, problem)
                    return
                truncated = truncated or isinstance(problem, Truncated)
                source.rewind()
        is_dropped = hit in self._markers.format.drop and (not truncated or source.text[source.pos :].strip() == hit)
        if truncated and not is_dropped and is_strong(hit) and output.prompt_chars < len(hit):
            source.pos = len(source.text)
            output.flush()
            output.events.append(Unreadable(output.without_prompt(source.since_mark()), "truncated"))
            source.unmark()
            return
        source.unmark()
        source.pos += len(hit)
        if not is_dropped:
            output.emit(hit)
            output.text_closers.update(closer for part in self._markers.openers[hit] for closer in strong_closers_of(part))

    def _read_line_quote(self, part: Quotes) -> Incremental[None]:
        """Emit quoted text up to its closer; a `Mismatch` if the line ends first."""
        source, close = self._source, first_literals(nodes_of(part.close))
        hit = yield from source.read_until(stops((*close, "\n")), ignore)
        if hit not in close:
            raise Mismatch("not closed on its line")
        source.pos += len(hit or "")
        self._output.emit(source.since_mark())

    def _skip_unreadable(self, part: Part, problem: Mismatch | Truncated) -> Incremental[None]:
        """Emit a started call that cannot be read as `Unreadable`: skip to where it ends, or to the next call."""
        source, output = self._source, self._output
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
        output.flush()
        reason = "truncated" if isinstance(problem, Truncated) else str(problem)
        output.events.append(Unreadable(output.without_prompt(source.since_mark()), reason, output.index))
        source.unmark()
        output.end_call()
        output.enter(None)

    # --- a section of calls -----------------------------------------------------------------------------------------------

    def _read_section(self, part: Calls, hit: str) -> Incremental[None]:
        """Read all calls of a section, its opener and its closer."""
        source, call = self._source, self._call
        if call.read_at_once(part, self._output.finish_call):
            return
        section = section_of(part)
        lead, close = section.lead, section.close
        strong = (yield from call.open_section(part.open, lead)) or is_strong(hit)
        # As the first text of a turn even a bare object is a call, whatever its name; later only with the name of a tool.
        is_bare = section.is_enveloped or part is self._markers.format.calls
        allows_any_name = strong or (is_bare and not self._output.has_text)
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
                self._output.finish_call()
                count += 1
                source.mark()
            elif count and (separator := (yield from source.at(section.separators))):
                source.pos += len(separator)
                repair = repair if separator == section.between else "other-separator"
            elif not (count and close and (yield from self._literals.skip_stray_closers(close))):
                break
        if not count:
            raise Truncated("the text ended") if source.ended and source.pos >= len(source.text) else Mismatch("no call")
        source.rewind()
