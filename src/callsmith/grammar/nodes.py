"""The grammar IR: what an answer may look like, independent of any grammar engine.

A `Grammar` is a start node and named rules. Emitters (`lark.py`, …) turn it into an engine's own language.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from callsmith.core.values import Schema


@dataclass(frozen=True, slots=True)
class Lit:
    """Exactly this text. Where it contains a special token of the tokenizer, that token is meant, never its letters."""

    text: str


@dataclass(frozen=True, slots=True)
class Seq:
    """One after another."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of these."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Many:
    """Repeated: at least, at most (None: no bound)."""

    item: "Node"
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Members with a separator between them, each at most once: the required ones all, in this order, and each of the others
    anywhere behind the required ones that stand before it here."""

    items: tuple["Node", ...]
    required: tuple[bool, ...]
    separator: str = ""


@dataclass(frozen=True, slots=True)
class Ref:
    """A rule of the grammar, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text that matches a regular expression (the common subset: classes, repetition, alternatives, no look-around)."""

    regex: str


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A JSON value that satisfies the schema, with fixed separators as the model family writes them."""

    schema: Schema
    item_separator: str = ", "
    key_separator: str = ": "


@dataclass(frozen=True, slots=True)
class Until:
    """Any text up to and including the first `close`.

    None of `without` occurs in it, and it does not begin with one of the characters `unlike` (behind white space, if any).
    `apart`: what else may stand in its place has no character `close` begins with, before it ends.
    """

    close: str
    without: tuple[str, ...] = ()
    unlike: str = ""
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Free:
    """Any text in which none of `stops` occurs; it may end anywhere."""

    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """A grammar of the user's own, in Lark: `start` is what it says."""

    lark: str


Node: TypeAlias = Lit | Seq | Alt | Many | Record | Ref | Pattern | JsonValue | Until | Free | Own


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint on an answer.

    `prefix` is what the prompt has already written of it: an engine lets its matcher consume that first.
    `triggers`: where there are any, nothing is constrained until the answer has written one of them (and so costs nothing);
    the grammar then holds for the whole answer, also for what was written before.
    `unenforced` lists (path, keyword) of schema keywords it does not enforce; they are validated after generation.
    """

    start: Node
    rules: Mapping[str, Node] = field(default_factory=dict[str, Node])
    prefix: str = ""
    triggers: tuple[str, ...] = ()
    unenforced: tuple[tuple[str, str], ...] = ()
