"""Reading one call: a walk over the nodes of a `Calls` part."""

import json
from collections.abc import Callable, Mapping
from typing import Any as AnyType

from callsmith.core.values import Json, Schema, Tool
from callsmith.formats.algebra import (
    ARGS,
    ID,
    JSON,
    NAME,
    SKIP,
    Calls,
    Each,
    Hole,
    Ident,
    Node,
    Nodes,
    Notation,
    Obj,
    OneOf,
    Opt,
    first_literals,
    is_strong,
    literals_of,
)
from callsmith.formats.reader.arguments import ARGS_KEYS as ARGS_KEYS
from callsmith.formats.reader.arguments import ArgumentsReader
from callsmith.formats.reader.literals import (
    NAME_LIKE,
    NUMBER_AS_NAME,
    STRAY_CLOSERS,
    LiteralReader,
    tool_by_arguments,
    tool_by_name,
)
from callsmith.formats.reader.markers import SPECIAL_MARK, closers_of
from callsmith.formats.reader.source import Emit, Incremental, Mismatch, stops
from callsmith.formats.reader.typed import parse_json
from callsmith.formats.reader.values import Sink, read_notation

COLON = stops((":",))
FENCES = ("```json", "```")
NOTHING = ("null", '""', "[]")
NAME_KEYS = ("name", "tool_name", "function")


class CallReader:
    """Reads calls from a source. `start` announces the name, `push` streams the arguments."""

    def __init__(self, words: LiteralReader, tools: Mapping[str, Tool], start: Callable[[str, str], None], push: Emit) -> None:
        self._source = words.source
        self.tools = tools
        self._announce = start
        self._push = push
        self._words = words
        self._sink = Sink(push, self._words.repair)
        self.reset()

    def reset(self) -> None:
        """Ready for the next call."""
        self.name = ""
        self.id = ""
        self.started = False
        self.text: list[str] = []
        self._words.repairs.clear()
        self._done = False  # the arguments are complete; what follows may be missing
        self._closed = False
        self._strong = self._anyone = True
        self._part = Calls()
        self._schema: Schema = {}

    @property
    def repairs(self) -> tuple[str, ...]:
        """The leniencies this call needed."""
        return tuple(sorted(self._words.repairs))

    def arguments(self) -> Mapping[str, Json]:
        """The arguments as read."""
        try:
            parsed: AnyType = json.loads("".join(self.text), strict=False)
        except (ValueError, RecursionError) as problem:
            raise Mismatch(f"arguments are not JSON: {problem}") from None
        return parsed

    def read(self, part: Calls, *, is_marked: bool = True, any_name: bool = True, repair: str = "") -> Incremental[None]:
        """One call, written as the part's item. `strong`: its marker alone makes it a call; `anyone`: whatever the name.

        `loose` names a leniency that was needed to come here.
        """
        self.reset()
        if repair:
            self._words.repair(repair)
        self._part = part
        self._strong = is_marked
        self._anyone = any_name
        yield from self._walk(part.item)
        if not self.started:
            self._start()
        if not self._done:
            self._push("{}")

    def _start(self) -> None:
        if not self.name:
            raise Mismatch("a call without a name")
        if self.name not in self.tools and (meant := tool_by_name(self.name, self.tools)):
            self._words.repair("other-name")
            self.name = meant
        if self.tools and self.name not in self.tools and (self._words.strict or not (self._strong or self._anyone)):
            raise Mismatch(f"no tool is called {self.name!r}")
        tool = self.tools.get(self.name)
        self._schema = tool.parameters if tool else {}
        self.started = True
        self._announce(self.name, self.id)

    # --- literals and words -----------------------------------------------------------------------------------------------

    def read_markers(self, nodes: Nodes, optional: bool = False) -> Incremental[None]:
        """Nodes that hold nothing of a call: openers, closers, headers."""
        was, self._done = self._done, optional
        yield from self._walk(nodes)
        self._done = was

    def open_section(self, nodes: Nodes, lead: tuple[str, ...]) -> Incremental[bool]:
        """A section's opener; whether a strong marker was read. After the first, each may be missing where a call begins."""
        strong = False
        fences = () if any("```" in text for node in nodes for text in literals_of(node)) else FENCES
        for node in nodes:
            if strong and fences:
                yield from self._words.skip_markers(fences, "fenced")
            alone = literals_of(node.nodes[0] if isinstance(node, Opt) else node)
            yield from self._words.skip_ignored()
            hit = yield from self._source.at(tuple(text.strip() for text in alone))
            if hit is not None:
                self._source.pos += len(hit)
                strong = strong or is_strong(hit)
                yield from self._undouble(hit)
            elif not isinstance(node, Opt):
                if not lead or not (yield from self._source.at(lead)):
                    raise Mismatch(f"expected {alone[0]!r}")
                if self._words.strict:
                    raise Mismatch("missing-section")
        return strong

    def at_name(self) -> Incremental[str | None]:
        """Whether a name may begin here."""
        char = yield from self._source.peek()
        return char if char.isalpha() or char == "_" else None

    def _literal(self, node: str | OneOf, *, last: bool) -> Incremental[None]:
        if self._done and not self.started:
            yield from self._optional(node)
            return
        hit = yield from self._words.read_literal(node, optional=self._done)
        if hit is not None:
            self._strong = self._strong or is_strong(hit)
            self._closed = hit.endswith("/>")
            if not last and not self._done:
                yield from self._undouble(hit)

    def _undouble(self, marker: str) -> Incremental[None]:
        """A marker written twice says no more than once."""
        if is_strong(marker):
            yield from self._words.skip_markers((marker,), "doubled-marker")

    def _optional(self, node: str | OneOf) -> Incremental[None]:
        """A closer of a section, which may be missing."""
        cores = tuple(text.strip() for text in literals_of(node) if text.strip())
        if not (yield from self._source.at_after_space(cores)) and (yield from self._source.at_after_space(STRAY_CLOSERS)):
            yield from self._source.skip_space()
            yield from self._words.skip_stray_closers(cores)
        if (yield from self._words.is_present(Opt((node,), True), ())):
            yield from self._words.read_literal(node)

    # --- the walk ---------------------------------------------------------------------------------------------------------

    def _walk(self, nodes: Nodes, follow: tuple[str, ...] = ()) -> Incremental[None]:
        for position, node in enumerate(nodes):
            rest = nodes[position + 1 :]
            if self.name and not self.started and (yield from self._ends_early(node)):
                continue
            match node:
                case str() | OneOf():
                    yield from self._literal(node, last=not rest and not follow)
                    if self._closed:
                        return  # a self-closing element: a call without arguments, and nothing else follows
                case Opt():
                    if (yield from self._words.is_present(node, first_literals(rest, follow))):
                        yield from self._walk(node.nodes, first_literals(rest, follow))
                case Ident():
                    yield from self._ident(node, self._word_ends(rest, follow))
                case Obj():
                    yield from self._envelope(node)
                case Each():
                    self._start()
                    yield from ArgumentsReader(self._words, self._part, self._schema, self._push).read(
                        node, first_literals(rest, follow)
                    )
                    self._done = True
                case Hole():
                    yield from self._hole(node, self._word_ends(rest, follow))

    def _word_ends(self, rest: Nodes, follow: tuple[str, ...]) -> tuple[str, ...]:
        """What ends a word: what comes next, white space before a word of no meaning, and what comes where it is left out."""
        ends = first_literals(rest, follow)
        for node in rest:
            if node is SKIP or (isinstance(node, Opt) and node.nodes == (SKIP,)):
                ends = (*ends, " ")
            elif isinstance(node, Each):
                ends = (*ends, "{")
            elif not isinstance(node, Opt) and any(text.strip() for text in literals_of(node)):
                break
        return (*ends, *self._closers(), "```") if ARGS in rest and ends else ends

    def _closers(self) -> tuple[str, ...]:
        return tuple(closer for closer in closers_of(self._part) if is_strong(closer))

    def _ends_early(self, node: Node) -> Incremental[bool]:
        """Whether the call ends where its arguments should begin: it has none."""
        closers = self._closers() if ARGS in self._part.item and (node is ARGS or literals_of(node)) else ()
        if not closers or not (yield from self._source.skip_space()) or not (yield from self._source.at(closers)):
            return False
        self._start()
        self._without_arguments()
        return True

    def _without_arguments(self) -> None:
        self._words.repair("no-arguments")
        self._push("{}")
        self._done = True

    def _hole(self, hole: Hole, ends: tuple[str, ...]) -> Incremental[None]:
        if hole is ARGS and self._done:
            return
        if hole is ARGS:
            if self.tools and self.name not in self.tools and NUMBER_AS_NAME.fullmatch(self.name):
                yield from self._counted()
            else:
                self._start()
                yield from self._arguments(self._part.values)
            self._done = True
            return
        word = yield from self._words.read_word(ends, self._part.values, is_name=hole is NAME)
        if hole is NAME:
            if not word:
                raise Mismatch("a name is missing")
            self.name = word
        elif hole is ID:
            self.id = word

    def _counted(self) -> Incremental[None]:
        """The arguments of a call that has a number for a name: they tell which tool is meant, so they are held."""
        held: list[str] = []
        yield from self._words.skip_ignored()
        yield from read_notation(self._source, JSON, Sink(held.append, self._words.repair))
        text = self._object("".join(held))
        if not tool_by_name(self.name, self.tools) and (meant := tool_by_arguments(text, self.tools)):
            self._words.repair("other-name")
            self.name = meant
        self._start()
        self._push(text)

    def _ident(self, node: Ident, follow: tuple[str, ...]) -> Incremental[None]:
        yield from self._source.skip_space()
        before = len(self._source.since_mark())
        yield from self._walk(node.nodes, follow)
        self.id = self._source.since_mark()[before:].strip().replace(SPECIAL_MARK, "")

    # --- arguments as one object ------------------------------------------------------------------------------------------

    def _arguments(self, spelling: object) -> Incremental[None]:
        """The arguments as an object, streamed."""
        notation = spelling if isinstance(spelling, Notation) else JSON
        yield from self._words.skip_markers(FENCES, "fenced")
        if "fenced" in self._words.repairs and (yield from self._source.at(self._closers())):
            self._without_arguments()
            return
        char = yield from self._source.peek()
        if char == "{":
            doubled = (yield from self._source.at(("{{",))) is not None
            if doubled:
                self._words.repair("doubled-braces")
                self._source.pos += 1
            schema = self._schema if notation.bare_keys else None
            yield from read_notation(self._source, notation, self._sink, schema, self._closers())
            if doubled and (yield from self._source.at(("}",))):
                self._source.pos += 1
        else:
            held: list[str] = []
            yield from read_notation(self._source, notation, Sink(held.append, self._words.repair))
            self._push(self._object("".join(held)))

    def _object(self, text: str) -> str:
        """Arguments that were not an object at once: a JSON string of one, or nothing in other words."""
        if text in NOTHING:
            self._words.repair("null-arguments")
            return "{}"
        if text.startswith('"'):
            inner = parse_json(parse_json(text) or "")
            if isinstance(inner, dict):
                self._words.repair("string-arguments")
                return json.dumps(inner, ensure_ascii=False)
        if text.startswith("{"):
            return text
        raise Mismatch("arguments are not an object")

    # --- a JSON envelope --------------------------------------------------------------------------------------------------

    def _envelope(self, node: Obj) -> Incremental[None]:
        source = self._source
        yield from self._words.skip_markers((*FENCES, "["), "wrapped")
        if (yield from source.peek()) != "{":
            raise Mismatch("expected '{'")
        source.pos += 1
        depth = 1
        if (yield from source.peek()) == "{":
            self._words.repair("doubled-braces")
            source.pos += 1
            depth = 2
        held: str | None = None
        while depth:
            char = yield from source.peek()
            if char == "}":
                source.pos += 1
                depth -= 1
            elif char == ",":
                source.pos += 1
            elif self._done and (yield from source.at(closers_of(self._part))):
                self._words.repair("missing-close")
                break
            else:
                key = json.loads((yield from self._held(key=True)))
                yield from source.peek()
                if not (yield from source.at((":",))):
                    raise Mismatch("expected ':'")
                source.pos += 1
                meaning = self._meaning(node, key)
                if meaning is None and key == "function" and (yield from source.peek()) == "{":
                    self._words.repair("wrapped")
                    source.pos += 1
                    depth += 1
                else:
                    held = yield from self._field(meaning or (NAME if key == "function" and not self.name else None), held)
        self._finish_envelope(held)

    def _meaning(self, node: Obj, key: str) -> Hole | None:
        """What a key of the envelope holds; families' models confuse them, and each says only one thing."""
        declared = dict(node.fields)
        if key in declared:
            return declared[key]
        if NAME in declared:  # the key itself is the name
            if not self.name and NAME_LIKE.fullmatch(key):
                self.name = key
                return ARGS
            return None
        if key in ARGS_KEYS:
            self._words.repair("other-key")
            return ARGS
        if key in NAME_KEYS[:2] and not self.name:
            self._words.repair("other-key")
            return NAME
        if key in ("id", "tool_call_id"):
            return ID
        if not self._strong and not self.started and key not in ("type", "function"):
            raise Mismatch("not a call")
        return None

    def _field(self, meaning: Hole | None, held: str | None) -> Incremental[str | None]:
        """One value of the envelope. Arguments that come before the name are held; that is returned."""
        if meaning is ARGS and not self._done and held is None:
            if not self.name:
                return (yield from self._held())
            self._start()
            yield from self._arguments(JSON)
            self._done = True
            return None
        text = yield from self._held()
        if meaning in (NAME, ID):
            value = parse_json(text)
            if meaning is NAME and (not isinstance(value, str) or not value):
                raise Mismatch("the name is not a string")
            if meaning is NAME and not self.started:
                self.name = value
            elif meaning is ID:
                self.id = "" if value is None else str(value)
        return held

    def _held(self, *, key: bool = False) -> Incremental[str]:
        got: list[str] = []
        if key and (char := (yield from self._source.peek())) not in "\"'":
            if not self._strong or not char.isalpha():
                raise Mismatch("a key is missing")
            self._words.repair("bare-keys")
            return json.dumps((yield from self._source.read_word(COLON, NAME_LIKE)))
        yield from read_notation(self._source, JSON, Sink(got.append, self._words.repair))
        return "".join(got).replace(SPECIAL_MARK, "")

    def _finish_envelope(self, held: str | None) -> None:
        if not self._done:
            if held is None and not self._strong:
                raise Mismatch("not a call")
            if not self.started:
                self._start()
            self._push(self._object(held) if held is not None else "{}")
        self._done = True
