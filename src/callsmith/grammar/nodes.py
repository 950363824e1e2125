"""The intermediate representation of grammars: which answers are allowed, independent of any grammar engine.

A `Grammar` is a start node and named rules. The modules in `targets/` write it in an engine's own language.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from callsmith.core.values import Schema


@dataclass(frozen=True, slots=True)
class Lit:
    """Exactly this text. Where it contains the text of a special token, it means that token and not its letters."""

    text: str


@dataclass(frozen=True, slots=True)
class Seq:
    """A sequence: one item after another."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """A choice: one of these items."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A repetition, `least` to `most` times (None: no limit)."""

    item: "Node"
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Members with a separator between them, each at most once.

    All required ones are there, in this order. An optional one may come anywhere after the required ones listed before it.
    """

    items: tuple["Node", ...]
    required: tuple[bool, ...]
    separator: str = ""


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a rule of the grammar, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text that matches a regular expression: classes, repetition and alternatives, but no look-around."""

    regex: str


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A JSON value that fits the schema, with the separators that the model family writes.

    `as_written`: members in any order, and values in any way of writing them, as far as the target can.
    """

    schema: Schema
    item_separator: str = ", "
    key_separator: str = ": "
    as_written: bool = False


@dataclass(frozen=True, slots=True)
class Until:
    """Any text up to and including the first `close`.

    None of the texts `excluded` occurs in it. Its first character that is not white space is none of `not_starting_with`.
    `is_distinct`: no alternative to this text contains the first character of `close` before it ends.
    """

    close: str
    excluded: tuple[str, ...] = ()
    not_starting_with: str = ""
    is_distinct: bool = False


@dataclass(frozen=True, slots=True)
class FreeText:
    """Any text in which none of `stops` occurs."""

    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """Text that matches a regular expression and in which none of the texts `excluded` occurs, and `close` behind it.

    `deeper` is the grammar that the expression is a part of, if it is: it refers to itself.
    """

    regex: str
    close: str
    excluded: tuple[str, ...]
    deeper: "Grammar | None" = None


@dataclass(frozen=True, slots=True)
class UserGrammar:
    """A grammar that the user wrote, in Lark; it begins with its rule `start`."""

    lark: str


NOTHING = Seq(())

Node: TypeAlias = Lit | Seq | Alt | Many | Record | Ref | Pattern | JsonValue | Until | FreeText | Closed | UserGrammar


def items_of(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside a node."""
    match node:
        case Seq() | Alt() | Record():
            return node.items
        case Many():
            return (node.item,)
        case _:
            return ()


def references(node: Node) -> list[str]:
    """The names of the rules that a node refers to, in their order."""
    return [node.name] if isinstance(node, Ref) else [name for item in items_of(node) for name in references(item)]


def map_leaves(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with what `change` makes of the nodes in its sequences, choices and repetitions that are none of these."""
    match node:
        case Many(item, least, most):
            return Many(map_leaves(item, change), least, most)
        case Seq(items):
            return Seq(tuple(map_leaves(item, change) for item in items))
        case Alt(items):
            return Alt(tuple(map_leaves(item, change) for item in items))
        case _:
            return change(node)


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint on an answer.

    `prefix` is the beginning of the answer that the prompt already contains: an engine's matcher consumes it first.
    `triggers`: if there are any, nothing is constrained until the model has written one of them, so that text before it costs
    nothing; from then on the grammar applies to the whole answer, including the text before.
    `unenforced` lists (path, keyword) of schema keywords that the grammar does not enforce; they are validated after generation.
    `loosened` is by how many steps the schemas in it were loosened, so that it fits where it is used.
    """

    start: Node
    rules: Mapping[str, Node] = field(default_factory=dict[str, Node])
    prefix: str = ""
    triggers: tuple[str, ...] = ()
    unenforced: tuple[tuple[str, str], ...] = ()
    loosened: int = 0
