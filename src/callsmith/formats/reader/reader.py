"""The reader: a model's text, as it streams, to events. Sans I/O; reading a whole text is `feed` and `close`.

    reader = Reader(format, tools, opened=prompt.opened)
    for piece in pieces:
        events += reader.feed(piece)
    events += reader.close()

What begins like a call is remembered from its marker until the call is whole: if it turns out to be none, the marker comes out
as text and reading goes on behind it; once the tool's name has been announced, what cannot be read becomes `Unreadable`.
A call inside reasoning, where none stood outside, is recovered at the end unless `recover` is off.
Nothing makes a reader raise. `strict` turns every leniency off.
"""

from collections.abc import Iterable
from dataclasses import replace

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats.algebra import NAME, Calls, Format, Obj, Part, Quotes, Says, Thinks, first_literals, is_strong, nodes_of
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
)
from callsmith.formats.reader.source import Incremental, Mismatch, TextSource, Truncated, stops
from callsmith.formats.write import literal_text


class Reader:
    """Reads one turn. `opened` is the prompt's tail, which may have begun it; `specials` are the tokenizer's special tokens.

    `held`: the turn is held to a grammar. Then nothing but its end ends a value, for nothing is left open.
    """

    def __init__(
        self,
        format: Format,
        tools: Iterable[Tool] = (),
        opened: str = "",
        *,
        specials: frozenset[str] = frozenset(),
        strict: bool = False,
        is_constrained: bool = False,
        recover: bool = True,
    ) -> None:
        tools = tuple(tools)
        self._turn: Markers = compile_markers(format, specials, frozenset(tool.name for tool in tools))
        self._recover = recover and not strict
        self._thoughts: list[str] = []
        self._marked = bool(specials)
        self._source = TextSource()
        self._events: list[ModelEvent] = []
        self._run: list[str] = []  # the piece of text, thought or arguments being gathered
        self._kind: type[Text] | type[Thought] | None = Text  # what the run is of; None: arguments of the current call
        self._words = LiteralReader(self._source, self._turn.ignored_in_calls, strict=strict, is_constrained=is_constrained)
        self._call = CallReader(self._words, {tool.name: tool for tool in tools}, self._start, self._run.append)
        self._index = 0
        self._part: Says | Thinks | Quotes | None = None
        self._gap: str | None = None  # white space at an edge, kept until it is known whether text follows it
        self._fresh = False  # nothing of this thought, or of the text after it, has come yet
        self._trims = False  # white space at the end of this part belongs to its closer
        self._last = ""  # the last character said
        self._spoken = False  # some text has come
        self._loose: set[str] = set()  # closers whose openers turned out to be text: they are text too
        self._prompt = 0  # how much of the text not yet dealt with is the prompt's
        self._main = self._read()
        next(self._main)
        if opened:
            self._source.feed(mark_specials(opened, specials))
            next(self._main, None)
            self._drain()
            self._gap = ""
            self._prompt = self._source.pending()

    def feed(self, text: str, special: bool = False) -> list[ModelEvent]:
        """The events this piece of text completes. `special`: it is one special token."""
        source = self._source
        if self._marked and SPECIAL_MARK in text:
            text = text.replace(SPECIAL_MARK, "\ufffd")
        if special:
            text = SPECIAL_MARK + text
        elif source.fast_path and not source.text and not source.fast_path[0].search(text):
            if source.saved is not None:
                source.saved.append(text)
            source.fast_path[1](text)
            return self._drain()
        source.feed(text)
        next(self._main, None)
        return self._drain()

    def close(self) -> list[ModelEvent]:
        """The text has ended."""
        self._source.ended = True
        next(self._main, None)
        if self._recover and not self._index and self._thoughts:
            self._events += self._thought_calls()
        return self._drain()

    def _thought_calls(self) -> list[ModelEvent]:
        """The calls that stand in the reasoning, of tools there are; what else stands there was thought, and is told already."""
        self._flush()
        if self._turn.only_special(self._turn.openers) and not self._turn.only_special(self._thoughts):
            return []  # a marker would have come as its token
        format, known = self._turn.format, self._call.tools
        inner = Reader(replace(format, parts=tuple(part for part in format.parts if isinstance(part, Calls))), known.values())
        events = inner.feed("".join(self._thoughts)) + inner.close()
        ready = {
            event.index: event for event in events if isinstance(event, CallReady) and (not known or event.call.name in known)
        }
        found: list[ModelEvent] = []
        for index, event in enumerate(ready.values()):
            call = event.call
            found += [CallStarted(index, call.name, call.id), CallArguments(index, call.text)]
            found.append(CallReady(index, call, (*event.repairs, "in-reasoning")))
        self._index = len(ready)
        return found

    # --- gathering events -------------------------------------------------------------------------------------------------

    def _drain(self) -> list[ModelEvent]:
        self._flush()
        events = self._events
        self._events = []
        return events

    def _flush(self) -> None:
        if not self._run:
            return
        text = "".join(self._run)
        self._run.clear()
        if self._marked and SPECIAL_MARK in text:
            text = text.replace(SPECIAL_MARK, "")
        if self._kind is None:
            self._call.text.append(text)
            self._events.append(CallArguments(self._index, text))
        else:
            self._events.append(self._kind(text))

    def _emit(self, text: str) -> None:
        """Text or thought. White space at an edge waits until something follows it; the prompt's own text is not repeated."""
        if self._prompt:
            text, self._prompt = text[self._prompt :], max(0, self._prompt - len(text))
        if self._gap is not None:
            text = self._gap + text
            if not text or text.isspace():
                self._gap = text
                return
            text = text.lstrip() if self._fresh else text
            self._gap = None
        self._fresh = False
        self._spoken = self._spoken or self._kind is Text
        if self._trims:
            bare = text.rstrip()
            if len(bare) < len(text):
                self._gap, text = text[len(bare) :], bare
        if self._kind is Thought:
            self._thoughts.append(text)
        if text:
            self._last = text[-1]
            self._run.append(text)

    def _enter(self, part: Says | Thinks | Quotes | None) -> None:
        """From here on, text belongs to this part."""
        self._flush()
        before, behind = _edges(part)
        self._fresh = before or isinstance(self._part, Thinks)
        self._trims = behind
        self._part = part
        self._kind = Thought if isinstance(part, Thinks) else Text
        self._gap = ""
        self._prompt = 0
        self._loose.clear()

    # --- the turn ---------------------------------------------------------------------------------------------------------

    def _read(self) -> Incremental[None]:
        yield
        turn, source = self._turn, self._source
        while True:
            wanted = turn.part_stops(self._part) if self._part else turn.text_stops
            hit = yield from source.read_until(wanted, self._emit)
            if hit is None:
                return
            yield from self._marker(hit)

    def _marker(self, hit: str) -> Incremental[None]:
        turn, part = self._turn, self._part
        if part and hit in first_literals(nodes_of(part.close)):
            self._source.pos += len(hit)
            if isinstance(part, Quotes):
                self._emit(hit)
                self._part = None
            else:
                self._enter(None)
        elif hit in turn.drop:
            self._source.pos += len(hit)
        elif isinstance(part, Thinks) and hit in first_literals(nodes_of(part.open)) and not ends_reasoning(turn.openers[hit]):
            self._source.pos += len(hit)
            if not self._fresh:
                self._emit(hit)
        elif hit in turn.openers:
            yield from self._open(hit)
        else:
            self._source.pos += len(hit)
            if hit in self._loose:
                self._emit(hit)  # else a closer of something that is not open

    def _open(self, hit: str) -> Incremental[None]:
        """A marker that may open a part: try each, in order."""
        source = self._source
        if hit[0].isalnum() and (self._last.isalnum() or self._last == "_") and not self._gap:
            source.pos += len(hit)
            self._emit(hit)  # the end of another word
            return
        source.mark()
        cut = False
        for part in self._turn.openers[hit]:
            try:
                if isinstance(part, Calls):
                    yield from self._section(part, hit)
                    self._enter(None)
                elif isinstance(part, Quotes):
                    source.pos += len(hit)
                    self._emit(hit)
                    self._part = part
                else:
                    yield from self._call.read_markers(nodes_of(part.open))
                    self._enter(part)
                source.unmark()
                return
            except (Mismatch, Truncated) as problem:
                if self._call.started:
                    yield from self._give_up(part, problem)
                    return
                cut = cut or isinstance(problem, Truncated)
                source.rewind()
        if cut and is_strong(hit) and self._prompt < len(hit):
            source.pos = len(source.text)
            self._flush()
            self._events.append(Unreadable(self._own(source.since_mark()), "truncated"))
            source.unmark()
            return
        source.unmark()
        source.pos += len(hit)
        self._emit(hit)
        self._loose.update(closer for part in self._turn.openers[hit] for closer in strong_closers_of(part))

    def _own(self, text: str) -> str:
        """Raw text without the prompt's share and without marks."""
        text, self._prompt = text[self._prompt :], 0
        return text.replace(SPECIAL_MARK, "") if self._marked else text

    def _give_up(self, part: Part, problem: Mismatch | Truncated) -> Incremental[None]:
        """A call that has started cannot be read: skip to where it ends, or to the next one."""
        source = self._source
        assert isinstance(part, Calls)
        if isinstance(problem, Truncated):
            source.pos = len(source.text)
        else:
            ends = closers_of(part) or ("\n",)
            calls = (opener for opener, parts in self._turn.openers.items() if ends_reasoning(parts) and is_strong(opener))
            stop = yield from source.read_until(stops((*ends, *calls)), _ignore)
            if stop in ends:
                source.pos += len(stop or "")
                self._call.reset()
                yield from self._call.read_markers(part.close, optional=True)
        self._flush()
        reason = "truncated" if isinstance(problem, Truncated) else str(problem)
        self._events.append(Unreadable(self._own(source.since_mark()), reason, self._index))
        source.unmark()
        self._end_call()
        self._enter(None)

    # --- a section of calls -----------------------------------------------------------------------------------------------

    def _section(self, part: Calls, hit: str) -> Incremental[None]:
        source, call = self._source, self._call
        lead, between, close = first_literals(part.item), part.between.strip(), first_literals(part.close)
        strong = (yield from call.open_section(part.open, lead)) or is_strong(hit)
        # Where nothing was said before it, even a bare object is meant as a call; later only with the name of a tool.
        bare = part is self._turn.format.calls or any(isinstance(node, Obj) for node in part.item)
        anyone = strong or (bare and not self._spoken)
        count = 0
        unclosed = False  # the last call was not closed
        loose = ""  # the leniency the next call needs
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
            joined = (yield from self._joined(part)) if unclosed and not leading else None
            if leading or joined:
                try:
                    yield from call.read(joined or part, is_marked=strong, any_name=anyone, repair="joined" if joined else loose)
                except (Mismatch, Truncated):
                    if count and not call.started:
                        break
                    raise
                unclosed, loose = "missing-close" in call.repairs, ""
                self._ready()
                count += 1
                source.mark()
            elif count and (separator := (yield from source.at((between or ",", ",", ";")))):
                source.pos += len(separator)
                loose = loose if separator == between else "other-separator"
            elif not (count and close and (yield from self._words.skip_stray_closers(close))):
                break
        if not count:
            raise Truncated("the text ended") if source.ended and source.pos >= len(source.text) else Mismatch("no call")
        source.rewind()

    def _joined(self, part: Calls) -> Incremental[Calls | None]:
        """The part without its outer markers, if a call stands here that shares those of the one before it."""
        item = part.item
        start = max((at - (node is NAME) for at, node in enumerate(item) if node is NAME or isinstance(node, Obj)), default=0)
        if start < 1 or not (yield from self._source.at(first_literals(item[start:]))):
            return None
        return Calls(*item[start:], close=part.close, values=part.values)

    # --- one call ---------------------------------------------------------------------------------------------------------

    def _start(self, name: str, id: str) -> None:
        self._flush()
        self._kind = None
        self._prompt = 0
        self._events.append(CallStarted(self._index, name, id))

    def _ready(self) -> None:
        self._flush()
        call = self._call
        made = Call(call.name, call.arguments(), call.id, "".join(call.text))
        self._events.append(CallReady(self._index, made, call.repairs))
        self._end_call()

    def _end_call(self) -> None:
        self._call.reset()
        self._index += 1
        self._kind = Text


def _edges(part: Says | Thinks | Quotes | None) -> tuple[bool, bool]:
    """Whether white space at the beginning and at the end of a part belongs to its markers: always in a thought."""
    if isinstance(part, Says):
        opener, closer = literal_text(nodes_of(part.open)), literal_text(nodes_of(part.close))
        return opener[-1:].isspace(), closer[:1].isspace()
    thought = isinstance(part, Thinks)
    return thought, thought


def _ignore(text: str) -> None:
    """Text that is kept under the mark already."""


def read(format: Format, text: str, tools: Iterable[Tool] = (), opened: str = "") -> list[ModelEvent]:
    """A whole text at once."""
    reader = Reader(format, tools, opened)
    return reader.feed(text) + reader.close()
