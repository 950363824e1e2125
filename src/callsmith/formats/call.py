"""Reading one call: a walk over the nodes of a `Calls` part."""

import html
import json
import re
from collections.abc import Callable, Mapping
from typing import Any as AnyType
from typing import cast

from callsmith.core.values import Json, Schema, Tool
from callsmith.formats.layout import (
    ARGS,
    ID,
    INDEX,
    JSON,
    KEY,
    NAME,
    SKIP,
    TYPE,
    VALUE,
    Any,
    Calls,
    Each,
    Hole,
    Ident,
    Nested,
    Node,
    Nodes,
    Notation,
    Obj,
    Opt,
    Raw,
    first,
    is_strong,
    texts,
)
from callsmith.formats.source import Asking, Cut, Emit, Mismatch, Source, stops
from callsmith.formats.turn import SPECIAL, closers_of
from callsmith.formats.typed import property_of, quoted
from callsmith.formats.values import Sink, Typing, read_nested, read_notation, read_raw

NAME_LIKE = re.compile(r"[\w.\-:/&;$@+#]+")
WORD_LIKE = re.compile(r"[^<>\n]+")
NAME_KEYS = ("name", "tool_name", "function")
ARGS_KEYS = ("arguments", "parameters", "args", "input")


class CallReader:
    """Reads calls from a source. `start` announces the name, `push` streams the arguments."""

    def __init__(
        self, source: Source, tools: Mapping[str, Tool], start: Callable[[str, str], None], push: Emit, *, strict: bool = False
    ) -> None:
        self._source = source
        self._tools = tools
        self._announce = start
        self._push = push
        self._strict = strict
        self._sink = Sink(push, self._repair)
        self.reset()

    def reset(self) -> None:
        """Ready for the next call."""
        self.name = ""
        self.id = ""
        self.started = False
        self.text: list[str] = []
        self.repairs: set[str] = set()
        self._done = False  # the arguments are complete; what follows may be missing
        self._closed = False
        self._strong = self._anyone = True
        self._part = Calls()
        self._schema: Schema = {}

    def arguments(self) -> Mapping[str, Json]:
        """The arguments as read."""
        try:
            parsed: AnyType = json.loads("".join(self.text), strict=False)
        except (ValueError, RecursionError) as problem:
            raise Mismatch(f"arguments are not JSON: {problem}") from None
        return parsed

    def read(self, part: Calls, *, strong: bool = True, anyone: bool = True) -> Asking[None]:
        """One call, written as the part's item. `strong`: its marker alone makes it a call; `anyone`: whatever the name."""
        self.reset()
        self._part = part
        self._strong = strong
        self._anyone = anyone
        yield from self._walk(part.item)
        if not self.started:
            self._start()
        if not self._done:
            self._push("{}")

    def _repair(self, name: str) -> None:
        if self._strict:
            raise Mismatch(name)
        self.repairs.add(name)

    def _start(self) -> None:
        if not self.name:
            raise Mismatch("a call without a name")
        self._settle_name()
        if self._tools and self.name not in self._tools and (self._strict or not (self._strong or self._anyone)):
            raise Mismatch(f"no tool is called {self.name!r}")
        tool = self._tools.get(self.name)
        self._schema = tool.parameters if tool else {}
        self.started = True
        self._announce(self.name, self.id)

    def _settle_name(self) -> None:
        """A name in a namespace is taken for the tool it ends in; one that is doubled, for its half."""
        *spaces, last = self.name.split(".")
        if spaces and self.name not in self._tools and (last in self._tools or spaces == [last]):
            self._repair("other-name")
            self.name = last

    # --- literals and words -----------------------------------------------------------------------------------------------

    def literals(self, nodes: Nodes, soft: bool = False) -> Asking[None]:
        """Nodes that hold nothing of a call: openers, closers, headers."""
        was, self._done = self._done, soft
        yield from self._walk(nodes)
        self._done = was

    def open_section(self, nodes: Nodes, lead: tuple[str, ...]) -> Asking[bool]:
        """A section's opener; whether a strong marker was read. After the first, each may be missing where a call begins."""
        strong = False
        for node in nodes:
            alone = texts(node.nodes[0] if isinstance(node, Opt) else node)
            yield from self._source.space()
            hit = yield from self._source.at(tuple(text.strip() for text in alone))
            if hit is not None:
                self._source.pos += len(hit)
                strong = strong or is_strong(hit)
            elif not isinstance(node, Opt):
                if not lead or not (yield from self._source.at(lead)):
                    raise Mismatch(f"expected {alone[0]!r}")
                if self._strict:
                    raise Mismatch("missing-section")
        return strong

    def at_name(self) -> Asking[str | None]:
        """Whether a name may begin here."""
        char = yield from self._source.peek()
        return char if char.isalpha() or char == "_" else None

    def _literal(self, node: str | Any) -> Asking[None]:
        cores = tuple(text.strip() for text in texts(node))
        more = yield from self._source.space()
        if not all(cores):
            return
        hit = yield from self._source.at(cores)
        if hit is not None:
            self._source.pos += len(hit)
            self._strong = self._strong or is_strong(hit)
            self._closed = hit.endswith("/>")
        elif self._done:
            self._miss(cores)
        elif not more:
            raise Cut("the text ended")
        else:
            raise Mismatch(f"expected {cores[0]!r}")

    def _miss(self, cores: tuple[str, ...]) -> None:
        """A closer is missing behind complete arguments; the piece of it with which the text may end is no text."""
        rest = self._source.text[self._source.pos :]
        if self._source.ended and rest and any(core.startswith(rest) for core in cores):
            self._source.pos = len(self._source.text)
        if self.started:
            self._repair("missing-close")

    def _word(self, ends: tuple[str, ...], *, name: bool = False) -> Asking[str]:
        """A word up to what follows it."""
        yield from self._source.space()
        word = yield from self._source.word(stops(ends), NAME_LIKE if name else WORD_LIKE)
        word = word.replace(SPECIAL, "")
        values = self._part.values
        return html.unescape(word) if isinstance(values, Raw) and values.entities else word

    # --- the walk ---------------------------------------------------------------------------------------------------------

    def _walk(self, nodes: Nodes, follow: tuple[str, ...] = ()) -> Asking[None]:
        for position, node in enumerate(nodes):
            rest = nodes[position + 1 :]
            match node:
                case str() | Any():
                    yield from self._literal(node)
                    if self._closed:
                        return  # a self-closing element: a call without arguments, and nothing else follows
                case Opt():
                    if (yield from self._present(node, first(rest, follow))):
                        yield from self._walk(node.nodes, first(rest, follow))
                case Ident():
                    yield from self._ident(node, first(rest, follow))
                case Obj():
                    yield from self._envelope(node)
                case Each():
                    self._start()
                    yield from self._each(node, first(rest, follow))
                    self._done = True
                case Hole():
                    yield from self._hole(node, first(rest, follow))

    def _hole(self, hole: Hole, ends: tuple[str, ...]) -> Asking[None]:
        if hole is ARGS:
            self._start()
            yield from self._arguments(self._part.values)
            self._done = True
            return
        word = yield from self._word(ends, name=hole is NAME)
        if hole is NAME:
            if not word:
                raise Mismatch("a name is missing")
            self.name = word
        elif hole is ID:
            self.id = word

    def _present(self, node: Opt, follow: tuple[str, ...]) -> Asking[bool]:
        yield from self._source.space()
        lead = first(node.nodes)
        if isinstance(node.nodes[0], str | Any):
            return (yield from self._source.at(lead)) is not None
        return (yield from self._source.at(follow)) is None

    def _ident(self, node: Ident, follow: tuple[str, ...]) -> Asking[None]:
        yield from self._source.space()
        before = len(self._source.taken())
        yield from self._walk(node.nodes, follow)
        self.id = self._source.taken()[before:].strip().replace(SPECIAL, "")

    # --- arguments as one object ------------------------------------------------------------------------------------------

    def _arguments(self, spelling: object) -> Asking[None]:
        """The arguments as an object, streamed."""
        notation = spelling if isinstance(spelling, Notation) else JSON
        char = yield from self._source.peek()
        if char == "{":
            doubled = (yield from self._source.at(("{{",))) is not None
            if doubled:
                self._repair("doubled-braces")
                self._source.pos += 1
            yield from read_notation(self._source, notation, self._sink)
            if doubled and (yield from self._source.at(("}",))):
                self._source.pos += 1
        else:
            held: list[str] = []
            yield from read_notation(self._source, notation, Sink(held.append, self._repair))
            self._push(self._object("".join(held)))

    def _object(self, text: str) -> str:
        """Arguments that were not an object at once: a JSON string of one, or null."""
        if text == "null":
            self._repair("null-arguments")
            return "{}"
        if text.startswith('"'):
            try:
                inner: AnyType = json.loads(json.loads(text, strict=False), strict=False)
            except (ValueError, RecursionError):
                inner = None
            if isinstance(inner, dict):
                self._repair("string-arguments")
                return json.dumps(inner, ensure_ascii=False)
        if text.startswith("{"):
            return text
        raise Mismatch("arguments are not an object")

    # --- a JSON envelope --------------------------------------------------------------------------------------------------

    def _envelope(self, node: Obj) -> Asking[None]:
        source = self._source
        if (yield from source.peek()) != "{":
            raise Mismatch("expected '{'")
        source.pos += 1
        depth = 1
        if (yield from source.peek()) == "{":
            self._repair("doubled-braces")
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
            else:
                key = json.loads((yield from self._held(key=True)))
                yield from source.peek()
                if not (yield from source.at((":",))):
                    raise Mismatch("expected ':'")
                source.pos += 1
                meaning = self._meaning(node, key)
                if meaning is None and key == "function" and (yield from source.peek()) == "{":
                    self._repair("wrapped")
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
            self._repair("other-key")
            return ARGS
        if key in NAME_KEYS[:2] and not self.name:
            self._repair("other-key")
            return NAME
        if key in ("id", "tool_call_id"):
            return ID
        if not self._strong and not self.started and key not in ("type", "function"):
            raise Mismatch("not a call")
        return None

    def _field(self, meaning: Hole | None, held: str | None) -> Asking[str | None]:
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
            value: AnyType = json.loads(text, strict=False)
            if meaning is NAME and (not isinstance(value, str) or not value):
                raise Mismatch("the name is not a string")
            if meaning is NAME and not self.started:
                self.name = value
            elif meaning is ID:
                self.id = str(value)
        return held

    def _held(self, *, key: bool = False) -> Asking[str]:
        got: list[str] = []
        if key and (yield from self._source.peek()) not in "\"'":
            raise Mismatch("a key is missing")
        yield from read_notation(self._source, JSON, Sink(got.append, self._repair))
        return "".join(got).replace(SPECIAL, "")

    def _finish_envelope(self, held: str | None) -> None:
        if not self._done:
            if held is None and not self._strong:
                raise Mismatch("not a call")
            if not self.started:
                self._start()
            self._push(self._object(held) if held is not None else "{}")
        self._done = True

    # --- arguments one by one ---------------------------------------------------------------------------------------------

    def _each(self, node: Each, ends: tuple[str, ...]) -> Asking[None]:
        source = self._source
        lead = first(node.nodes) if isinstance(node.nodes[0], str | Any) else ()
        between = node.between.strip()
        beyond = tuple(closer for closer in (*closers_of(self._part), *first(self._part.item)) if is_strong(closer))
        self._push("{")
        count = 0
        self._keys: set[str] = set()
        while True:
            if not (yield from source.space()):
                self._end_early(count)
                break
            hit = yield from source.at((*lead, *ends, *beyond))
            if hit is not None and hit not in lead:
                if hit not in ends:
                    self._repair("missing-close")
                break
            if between and count and (yield from source.at((between,))):
                source.pos += len(between)
                continue
            if lead and hit is None:
                self._repair("stray-text")
                if (yield from source.until(stops((*lead, *ends)), _ignore)) is None:
                    raise Cut("the text ended")
                continue
            yield from self._argument(node.nodes, count, (between, *ends) if between else ends)
            count += 1
        self._push("}")

    def _end_early(self, count: int) -> None:
        """The text ended between two arguments. If the tool needs no more than there is, only the closer is missing."""
        properties = self._schema.get("properties", ())
        if not self._schema or (properties and not count) or not self._keys.issuperset(self._schema.get("required", ())):
            raise Cut("the text ended")
        self._repair("missing-close")

    def _argument(self, nodes: Nodes, count: int, follow: tuple[str, ...]) -> Asking[None]:
        key: str | None = None
        flag: str | None = None
        for position, node in enumerate(nodes):
            ends = first(nodes[position + 1 :], follow)
            if node is VALUE:
                assert key is not None
                ends += self._siblings(nodes)
                if self._may_wrap(key, count):
                    held: list[str] = []
                    yield from self._value(key, flag, ends, held.append)
                    self._unwrap(key, "".join(held))
                else:
                    self._push(f"{', ' if count else ''}{quoted(key)}: ")
                    yield from self._value(key, flag, ends, self._push)
                self._keys.add(key)
                if (yield from self._source.at(self._siblings(nodes))):
                    self._repair("missing-close")
                    return
            elif isinstance(node, str | Any):
                yield from self._edge(node, exact=nodes[position + 1 : position + 2] == (VALUE,))
            elif isinstance(node, Opt):
                if (yield from self._present(node, ends)):
                    yield from self._literal_of(node.nodes[0])
                    flag = yield from self._word(ends)
            elif node is KEY:
                word = yield from self._word(ends)
                key = key or word
            elif node in (TYPE, SKIP, INDEX):
                flag = yield from self._word(ends)

    def _siblings(self, nodes: Nodes) -> tuple[str, ...]:
        """How the tool's own arguments begin, on a line of their own: there a raw value ends, closed or not."""
        if not isinstance(self._part.values, Raw) or not self._part.values.trim or self._strict:
            return ()
        before, after = texts(nodes[0])[0].strip(), texts(nodes[2])[0].strip()
        return tuple(f"\n{before}{key}{after}" for key in self._schema.get("properties", ()))

    def _literal_of(self, node: Node) -> Asking[None]:
        if isinstance(node, str | Any):
            yield from self._literal(node)

    def _edge(self, node: str | Any, *, exact: bool) -> Asking[None]:
        """A literal of an argument. Before a raw value the white space behind it is the value's business."""
        yield from self._literal(node)
        if not exact:
            yield from self._source.space()

    def _may_wrap(self, key: str, count: int) -> bool:
        """Whether a first argument may be all of them in one, under a name the tool does not know."""
        properties = self._schema.get("properties")
        return not count and key in ARGS_KEYS and bool(properties) and key not in (properties or ())

    def _unwrap(self, key: str, text: str) -> None:
        inner: AnyType = json.loads(text, strict=False)
        if isinstance(inner, str):
            try:
                inner = json.loads(inner, strict=False)
            except (ValueError, RecursionError):
                inner = None
        if isinstance(inner, dict) and self._schema["properties"].keys() >= set(cast(dict[str, Json], inner)):
            self._repair("unwrapped")
            self._keys.update(cast(dict[str, Json], inner))
            self._push(json.dumps(inner, ensure_ascii=False)[1:-1])
        else:
            self._push(f"{quoted(key)}: {text}")

    def _value(self, key: str, flag: str | None, ends: tuple[str, ...], push: Emit) -> Asking[None]:
        typing = Typing(self._schema, property_of(self._schema, self._schema, key), flag)
        match self._part.values:
            case Notation() as spelling:
                yield from read_notation(self._source, spelling, Sink(push, self._repair))
            case Raw() as spelling:
                yield from read_raw(self._source, spelling, ends, typing, push)
            case Nested() as spelling:
                yield from read_nested(self._source, spelling, typing, push)


def _ignore(text: str) -> None:
    """Text that means nothing here; it is kept under the mark."""
