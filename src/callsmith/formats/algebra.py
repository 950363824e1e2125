"""The algebra of formats: a `Format` describes how a model family writes its turn.

A turn is made of *parts*: what it `Says`, what it `Thinks`, and its `Calls`. A part is written as *nodes*: literals, holes, and
a few combinators. The reader, the writer and the grammar all walk these same values; nothing about a family is coded elsewhere.

    FORMAT = Format(
        name="qwen3-coder",
        parts=(
            Thinks("<think>\\n", "\\n</think>\\n\\n", ended_by_calls=True),
            Calls(
                opt("<tool_call>\\n"), "<function=", NAME, ">\\n",
                each("<parameter=", KEY, ">\\n", VALUE, "\\n</parameter>\\n"),
                "</function>", opt("\\n</tool_call>"),
                between="\\n", values=RAW,
            ),
        ),
    )

Literals: white space at the edges of a literal may be any amount, or none, when read; inside it must be the same. Beside a value
in plain text, white space counts: what the literal has there is the format's (or missing), and the rest is the value's.
Parts that share an opener are tried in order; of several `Calls` all are read, and the first is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from callsmith.core.types.field_checks import check_fields
from callsmith.formats.detector import BaseFormatDetector


class Hole(Enum):
    """A place in the text for a part of the call."""

    NAME = "name"
    ID = "id"
    INDEX = "index"  # the number of the call in the turn
    ARGS = "args"  # all arguments as one object, in the notation of the part's values
    KEY = "key"  # one argument, inside `each`: its name,
    TYPE = "type"  # the flag of its type,
    VALUE = "value"  # and its value
    SKIP = "skip"  # a header word without meaning: skipped when read, not written

    __hash__ = object.__hash__  # nodes are looked up while text is read


NAME, ID, INDEX, ARGS, KEY, TYPE, VALUE, SKIP = Hole


@dataclass(frozen=True, slots=True)
class OneOf:
    """Alternative texts of one literal: all are read, the first is written."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opt:
    """Optional nodes: they may be missing when read; `write` says whether they are written."""

    nodes: "Nodes"
    write: bool


@dataclass(frozen=True, slots=True)
class Obj:
    """A JSON object around the call: keys in any order and spacing. A key may itself be NAME, its value then the arguments."""

    fields: tuple[tuple[str | Hole, Hole], ...]


@dataclass(frozen=True, slots=True)
class Each:
    """The nodes of one argument, repeated for each."""

    nodes: "Nodes"
    between: str


@dataclass(frozen=True, slots=True)
class Ident:
    """Nodes whose whole text is the call's id (`functions.NAME:INDEX`)."""

    nodes: "Nodes"


Node: TypeAlias = str | Hole | OneOf | Opt | Obj | Each | Ident
Nodes: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Notation:
    """Values with brackets and quotes: JSON and similar notations."""

    quotes: tuple[str, ...] = ('"',)
    bare_keys: bool = False
    python: bool = False  # True, False, None
    escapes: bool = True
    item_separator: str = ", "
    key_separator: str = ": "

    @property
    def is_json(self) -> bool:
        """Whether JSON's own text is read as JSON reads it."""
        return self.quotes == ('"',) and self.escapes and not (self.bare_keys or self.python)


@dataclass(frozen=True, slots=True)
class Raw:
    """Values as plain text, typed by the schema or by a TYPE flag.

    `flags` are pairs of a flag and its type; the type "json" is any but a string.
    """

    flags: tuple[tuple[str, str], ...] = ()
    entities: bool = False  # names and keys carry &amp; and the like
    cdata: bool = False  # a value may stand in <![CDATA[…]]>


@dataclass(frozen=True, slots=True)
class Nested:
    """Values as nested elements: `prefix<key>…prefix</key>`, arrays as repeated `item` elements, leaves typed by the schema."""

    prefix: str = ""
    item: str = "item"


Spelling: TypeAlias = Notation | Raw | Nested
JSON = Notation()
PYTHON = Notation(quotes=("'", '"', "'''", '"""'), python=True)
RAW = Raw()


@dataclass(frozen=True, slots=True, init=False)
class Calls:
    """A section of calls, all written alike. `index` is the number of the first; `most` limits how many the model may write.

    `exact`: the white space of the markers around a call has to stand there, and none of them may be missing.
    """

    item: Nodes
    open: Nodes
    between: str
    close: Nodes
    values: Spelling
    index: int
    most: int | None
    exact: bool

    def __init__(
        self,
        *item: Node,
        open: Nodes = (),
        between: str = "",
        close: Nodes = (),
        values: Spelling = JSON,
        index: int = 0,
        most: int | None = None,
        exact: bool = False,
    ) -> None:
        for name, value in (
            ("item", item), ("open", open), ("between", between), ("close", close),
            ("values", values), ("index", index), ("most", most), ("exact", exact),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash((self.between, self.index, len(self.item)))


def holes_of(nodes: "Nodes") -> Iterator[Hole]:
    """The holes of nodes, in order."""
    for node in nodes:
        match node:
            case Hole():
                yield node
            case Obj():
                yield from (hole for field in node.fields for hole in field if isinstance(hole, Hole))
            case Opt() | Each() | Ident():
                yield from holes_of(node.nodes)
            case str() | OneOf():
                pass


@dataclass(frozen=True, slots=True)
class Thinks:
    """Reasoning between markers. `ended_by_calls`: a call may begin before the closer."""

    open: Nodes | str
    close: Nodes | str
    ended_by_calls: bool = False


@dataclass(frozen=True, slots=True)
class Says:
    """Text for the user between markers. `ended_by_calls`: a call may begin before the closer."""

    open: Nodes | str
    close: Nodes | str = ()
    ended_by_calls: bool = True


@dataclass(frozen=True, slots=True)
class Quotes:
    """Quoted text, such as code in a fence: it is text with its markers, and nothing in it is a call.

    `one_line`: it opens only where it is closed on the same line, as `code` between backticks.
    """

    open: Nodes | str
    close: Nodes | str
    one_line: bool = False


Part: TypeAlias = Calls | Thinks | Says | Quotes


@check_fields
@dataclass(frozen=True, slots=True)
class Format:
    """How a model family writes a turn. `ids` is the pattern of a call id; `drop` are markers that mean nothing by themselves.

    A marker of plain words counts only at the start of the turn, where it opens text or reasoning or is dropped. `detectors` are
    asked where no call is found otherwise.
    """

    name: str
    parts: tuple[Part, ...]
    aliases: tuple[str, ...] = ()
    ids: str = ""
    drop: tuple[str, ...] = ()
    detectors: tuple[type[BaseFormatDetector], ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def calls(self) -> Calls:
        """The part in which calls are written."""
        return next(part for part in self.parts if isinstance(part, Calls))

    @property
    def thinks(self) -> Thinks | None:
        """The part in which reasoning is written, if the family has one."""
        return next((part for part in self.parts if isinstance(part, Thinks)), None)

    def without_calls(self) -> "Format":
        """The same format without calls, for when no tool may be called: what looks like a call is text."""
        return replace(self, parts=tuple(part for part in self.parts if not isinstance(part, Calls)), detectors=())

    def also(self, *others: "Format") -> "Format":
        """The same format, extended to read what the others write."""
        parts, detectors = ([item for other in others for item in getattr(other, name)] for name in ("parts", "detectors"))
        return replace(self, parts=(*self.parts, *parts), detectors=(*self.detectors, *detectors))


def opt(*nodes: Node, write: bool = True) -> Opt:
    """`opt("<tool_call>\\n")`: nodes that may be missing."""
    return Opt(nodes, write)


def any_(*texts: str) -> OneOf:
    """`any_("<a>", "<b>")`: one of these literals; the first is written."""
    return OneOf(texts)


def each(*nodes: Node, between: str = "") -> Each:
    """`each(KEY, "=", VALUE, between=", ")`: the arguments one by one."""
    return Each(nodes, between)


def obj(*fields: tuple[str | Hole, Hole]) -> Obj:
    """`obj(("name", NAME), ("arguments", ARGS))`: a JSON object."""
    return Obj(fields)


def ident(*nodes: Node) -> Ident:
    """`ident("functions.", NAME, ":", INDEX)`: together they are the call's id."""
    return Ident(nodes)


def nodes_of(nodes: Nodes | str) -> Nodes:
    """The nodes themselves; a bare string is one literal."""
    return (nodes,) if isinstance(nodes, str) else nodes


def literals_of(node: Node) -> tuple[str, ...]:
    """The texts of a literal node; empty for any other node."""
    match node:
        case str():
            return (node,)
        case OneOf():
            return node.texts
        case _:
            return ()


def space_around(nodes: Nodes, position: int) -> tuple[str, str]:
    """The white space that the literals beside a node have at the edges toward it, as they are written."""
    before = literals_of(nodes[position - 1])[:1] if position else ()
    after = literals_of(nodes[position + 1])[:1] if position + 1 < len(nodes) else ()
    return "".join(text[len(text.rstrip()) :] for text in before), "".join(text[: -len(text.lstrip()) or None] for text in after)


@lru_cache(4096)
def first_literals(nodes: Nodes, follow: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The literals that nodes may begin with, also after missing optional nodes; `follow` is what may come after all nodes."""
    literals: list[str] = []
    for node in nodes:
        match node:
            case str() | OneOf():
                cores = [text.strip() for text in literals_of(node)]
                literals += [core for core in cores if core]
                if all(cores):
                    return tuple(dict.fromkeys(literals))
            case Opt() | Each():
                literals += first_literals(node.nodes)
            case Ident():
                return tuple(dict.fromkeys((*literals, *first_literals(node.nodes))))
            case Obj() | Hole.ARGS:
                return tuple(dict.fromkeys((*literals, "{")))
            case Hole.SKIP:
                continue
            case Hole():
                return tuple(dict.fromkeys(literals))
    return tuple(dict.fromkeys((*literals, *follow)))


@lru_cache(4096)
def is_strong(marker: str) -> bool:
    """Whether a marker hardly ever occurs in prose. After a weak marker, only the name of a known tool makes a call."""
    return len(marker) > 2 and any(mark in marker for mark in "<>|[]")
