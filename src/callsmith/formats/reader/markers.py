"""The markers of a format, compiled for reading: which of them open which parts, and which end each part.

They are derived from the nodes of the format, and cached by format, special tokens and tool names.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from callsmith.formats.algebra import (
    ARGS,
    ID,
    SKIP,
    VALUE,
    Calls,
    Each,
    Format,
    Ident,
    Nested,
    Node,
    Nodes,
    Notation,
    Obj,
    OneOf,
    Opt,
    Part,
    Quotes,
    Says,
    Thinks,
    first_literals,
    holes_of,
    is_strong,
    literals_of,
    nodes_of,
)
from callsmith.formats.reader.source import Stops, stops
from callsmith.formats.write import literal_text

# Tokens that tokenizers add around turns. Servers that do not strip them let them into the text, where they have no meaning.
CONTROL_TOKENS = (
    "<bos>", "<eos>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>",
    "<end_of_turn>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
)  # fmt: skip
WORDS = re.compile(r"[\w\s,.:']+")
SPECIAL_MARK = "\ufdd0"  # put before the text of a special token, to tell it from ordinary text; a noncharacter, never real text


@dataclass(frozen=True, slots=True, eq=False)
class Markers:
    """The markers of a format. `openers` lists, by marker, the parts it may open, in order.

    `prompt_stops` are all markers. `text_stops`, searched for in the model's text, are without the `start_words`: markers
    of plain words, which count only at the start of the turn. `drop` are markers without meaning; those of `ignored_in_calls` are
    neither part of a call nor the start of another marker, so that they can be skipped even between two nodes of a call.
    """

    format: Format
    openers: dict[str, tuple[Part, ...]]
    text_stops: Stops
    prompt_stops: Stops
    start_words: tuple[str, ...]
    drop: frozenset[str]
    ignored_in_calls: tuple[str, ...]

    @lru_cache(1024)  # noqa: B019
    def part_stops(self, part: Says | Thinks | Quotes) -> Stops:
        """The markers to search for inside a part: its closer, and the openers of parts that may begin before it is closed."""
        close = first_literals(nodes_of(part.close))
        if isinstance(part, Quotes):
            return stops(close)
        return stops((*close, *self._early_openers(part, close), *self.drop))

    def _early_openers(self, part: Says | Thinks, close: tuple[str, ...]) -> list[str]:
        own = first_literals(nodes_of(part.open))
        if isinstance(part, Says):
            return [opener for opener in self.openers if part.ended_by_calls and (is_strong(opener) or not close)]
        if not part.ended_by_calls:
            return [opener for opener in own if not ends_reasoning(self.openers[opener])]
        calls = [opener for opener, parts in self.openers.items() if ends_reasoning(parts) and is_strong(opener)]
        return [*own, *(self.only_special(calls) or calls)]

    def only_special(self, markers: Iterable[str]) -> list[str]:
        """Those of the markers that are special tokens, where tokens are known: in reasoning, the same text is only a mention."""
        return [marker for marker in markers if SPECIAL_MARK in marker]


def ends_reasoning(parts: tuple[Part, ...]) -> bool:
    """Whether one of the parts a marker opens ends reasoning: calls or text."""
    return any(isinstance(part, Calls | Says) for part in parts)


def openers_of(part: Part) -> tuple[str, ...]:
    """The markers a part may begin with. A section's opener may be missing where its calls have a strong marker."""
    if not isinstance(part, Calls):
        return first_literals(nodes_of(part.open))
    opening = first_literals(part.open, first_literals(part.item))
    return (*opening, *(lead for lead in first_literals(part.item) if is_strong(lead)))


@lru_cache(1024)
def compile_markers(format: Format, specials: frozenset[str] = frozenset(), names: frozenset[str] = frozenset()) -> Markers:
    """The markers of a format. `names` are those of the tools: a call without any marker is recognized by them."""
    marked = with_marked_specials(format, specials)
    openers: dict[str, tuple[Part, ...]] = {}
    for part in marked.parts:
        for marker in dict.fromkeys(openers_of(part) or tuple(f"{name}(" for name in sorted(names))):
            openers[marker] = (*openers.get(marker, ()), part)
    closers = {closer for part in marked.parts for closer in strong_closers_of(part)} - set(openers)
    meaningless = {*marked.drop, *(mark_specials(text, specials) for text in CONTROL_TOKENS)}
    drop = frozenset(meaningless - closers - set(openers))
    known = (*openers, *closers, *drop)
    frames = {opener for opener, parts in openers.items() if not any(isinstance(part, Calls) for part in parts)}
    words = tuple(text for text in known if text in frames | drop and WORDS.fullmatch(text))
    in_calls = {text for part in marked.parts if isinstance(part, Calls) for text in _texts_of(part.item)}
    ignored = frozenset(text for text in drop - in_calls if not any(other != text and other.startswith(text) for other in known))
    text_stops = stops(tuple(text for text in known if text not in words))
    return Markers(marked, openers, text_stops, stops(known), words, drop - {*words}, tuple(sorted(ignored - {*words})))


def _texts_of(nodes: Nodes) -> Iterator[str]:
    """The literals of nodes, without white space at their edges."""
    for node in nodes:
        yield from (text.strip() for text in literals_of(node))
        if isinstance(node, Opt):
            yield from _texts_of(node.nodes)


def strong_closers_of(part: Part) -> tuple[str, ...]:
    """The strong markers that close a part. Where nothing is open, they are dropped: a doubled `</think>`."""
    closers = closers_of(part) if isinstance(part, Calls) else first_literals(nodes_of(part.close))
    return tuple(closer for closer in closers if is_strong(closer))


def closers_of(part: Calls) -> tuple[str, ...]:
    """The literals that end a call or its section."""
    last = part.item[-1]
    nodes = (last.nodes if isinstance(last, Opt) else (last,)) + part.close
    return tuple(text.strip() for node in nodes for text in literals_of(node) if text.strip())


@dataclass(frozen=True, slots=True)
class Section:
    """What the reader asks of a section of calls: the literals that a call begins with, what stands between two, and what may
    close the section. `has_id_last`: a call's id comes after its arguments.
    """

    lead: tuple[str, ...]
    between: str
    close: tuple[str, ...]
    separators: tuple[str, ...]
    is_enveloped: bool
    has_id_last: bool


@lru_cache(1024)
def section_of(part: Calls) -> Section:
    """The section of calls that a part describes."""
    between, holes = part.between.strip(), list(holes_of(part.item))
    return Section(
        first_literals(part.item),
        between,
        first_literals(part.close),
        (between or ",", ",", ";"),
        any(isinstance(node, Obj) for node in part.item),
        ID in holes and any(hole in (ARGS, VALUE) for hole in holes[: holes.index(ID)]),
    )


def word_ends(part: Calls, rest: Nodes, follow: tuple[str, ...]) -> tuple[str, ...]:
    """The texts that end a word of a call: what may come next, white space before a skipped word, and the end of the call."""
    ends = first_literals(rest, follow)
    for node in rest:
        if node is SKIP or (isinstance(node, Opt) and node.nodes == (SKIP,)):
            ends = (*ends, " ")
        elif isinstance(node, Each):
            ends = (*ends, "{")
        elif not isinstance(node, Opt) and any(text.strip() for text in literals_of(node)):
            break
    return (*ends, *strong_closers_of(part), "```") if ARGS in rest and ends else ends


def trimmed_edges(part: Says | Thinks | Quotes | None) -> tuple[bool, bool]:
    """Whether white space at the start and at the end of a part belongs to its markers: always in reasoning."""
    if isinstance(part, Says):
        opener, closer = literal_text(nodes_of(part.open)), literal_text(nodes_of(part.close))
        return opener[-1:].isspace(), closer[:1].isspace()
    thought = isinstance(part, Thinks)
    return thought, thought


def with_marked_specials(format: Format, specials: frozenset[str]) -> Format:
    """The format with every special token in its literals marked with `SPECIAL_MARK`."""
    if not specials:
        return format
    return replace(
        format,
        parts=tuple(_mark_part(part, specials) for part in format.parts),
        drop=tuple(mark_specials(text, specials) for text in format.drop),
    )


def mark_specials(text: str, specials: frozenset[str]) -> str:
    """The text with `SPECIAL_MARK` before each special token in it."""
    pattern = stops(tuple(sorted(specials))).pattern if specials else None
    return pattern.sub(lambda hit: SPECIAL_MARK + hit[0], text) if pattern else text


def _mark_part(part: Part, specials: frozenset[str]) -> Part:
    def over(nodes: Nodes | str) -> Nodes:
        return tuple(_mark_node(node, specials) for node in nodes_of(nodes))

    if not isinstance(part, Calls):
        return replace(part, open=over(part.open), close=over(part.close))
    values = part.values
    if isinstance(values, Notation):
        values = replace(values, quotes=tuple(mark_specials(quote, specials) for quote in values.quotes))
    elif isinstance(values, Nested):
        values = replace(values, prefix=mark_specials(values.prefix, specials))
    return Calls(
        *over(part.item),
        open=over(part.open),
        between=mark_specials(part.between, specials),
        close=over(part.close),
        values=values,
        index=part.index,
        most=part.most,
        exact=part.exact,
    )


def _mark_node(node: Node, specials: frozenset[str]) -> Node:
    match node:
        case str():
            return mark_specials(node, specials)
        case OneOf():
            return OneOf(tuple(mark_specials(text, specials) for text in node.texts))
        case Opt() | Each() | Ident():
            return replace(node, nodes=tuple(_mark_node(inner, specials) for inner in node.nodes))
        case _:
            return node
