"""A format made ready for reading: which markers open which parts, and what ends each of them.

Nobody writes these lists: they follow from the nodes. Made once a format (and tokenizer) and kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from callsmith.formats.algebra import (
    Calls,
    Each,
    Format,
    Ident,
    Nested,
    Node,
    Nodes,
    Notation,
    OneOf,
    Opt,
    Part,
    Quotes,
    Says,
    Thinks,
    first_literals,
    is_strong,
    literals_of,
    nodes_of,
)
from callsmith.formats.reader.source import Stops, stops

# What tokenizers add around turns. A server that does not strip them lets them into the text, where they mean nothing.
CONTROL_TOKENS = (
    "<bos>", "<eos>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>",
    "<end_of_turn>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
)  # fmt: skip
SPECIAL_MARK = "\ufdd0"  # stands before a special token's text, to tell it from the same letters; a noncharacter, never real text


@dataclass(frozen=True, slots=True)
class Markers:
    """`openers` lists, by marker, the parts it may open, in order. `plain` are the markers that end plain text.

    `drop` are those that mean nothing; of them, `noise` begins no other marker and may stand even between two nodes of a call.
    """

    format: Format
    openers: dict[str, tuple[Part, ...]]
    text_stops: Stops
    drop: frozenset[str]
    ignored_in_calls: frozenset[str]

    def part_stops(self, part: Says | Thinks | Quotes) -> Stops:
        """The markers that end a framed part: its closer, and other parts where they may begin without it."""
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
        """Those that are special tokens, as far as tokens are known. In a thought the same letters are mere talk of them."""
        return [marker for marker in markers if SPECIAL_MARK in marker]


def ends_reasoning(parts: tuple[Part, ...]) -> bool:
    """Whether a marker opens something that ends reasoning."""
    return any(isinstance(part, Calls | Says) for part in parts)


def openers_of(part: Part) -> tuple[str, ...]:
    """The markers a part may begin with. A section's opener may be missing where its calls have a marker of their own."""
    if not isinstance(part, Calls):
        return first_literals(nodes_of(part.open))
    opening = first_literals(part.open, first_literals(part.item))
    return (*opening, *(lead for lead in first_literals(part.item) if is_strong(lead)))


@lru_cache(1024)
def compile_markers(format: Format, specials: frozenset[str] = frozenset(), names: frozenset[str] = frozenset()) -> Markers:
    """The format, made ready. `names` are the tools': calls without a marker of their own are known by them."""
    ready = with_marked_specials(format, specials)
    openers: dict[str, tuple[Part, ...]] = {}
    for part in ready.parts:
        for marker in dict.fromkeys(openers_of(part) or tuple(f"{name}(" for name in sorted(names))):
            openers[marker] = (*openers.get(marker, ()), part)
    closers = {closer for part in ready.parts for closer in strong_closers_of(part)} - set(openers)
    noise = {*ready.drop, *(mark_specials(text, specials) for text in CONTROL_TOKENS)}
    drop = frozenset(noise - closers - set(openers))
    known = (*openers, *closers, *drop)
    alone = frozenset(text for text in drop if not any(other != text and other.startswith(text) for other in known))
    return Markers(ready, openers, stops(known), drop, alone)


def strong_closers_of(part: Part) -> tuple[str, ...]:
    """Markers that close a part and may stand where nothing is open: a doubled `</think>`, a second `</tool_call>`."""
    found = closers_of(part) if isinstance(part, Calls) else first_literals(nodes_of(part.close))
    return tuple(closer for closer in found if is_strong(closer))


def closers_of(part: Calls) -> tuple[str, ...]:
    """What ends a call or its section."""
    last = part.item[-1]
    nodes = (last.nodes if isinstance(last, Opt) else (last,)) + part.close
    return tuple(text.strip() for node in nodes for text in literals_of(node) if text.strip())


def with_marked_specials(format: Format, specials: frozenset[str]) -> Format:
    """The format as a token-aware reader sees it: every special token in a literal is marked as such."""
    if not specials:
        return format
    return replace(
        format,
        parts=tuple(_mark_part(part, specials) for part in format.parts),
        drop=tuple(mark_specials(text, specials) for text in format.drop),
    )


def mark_specials(text: str, specials: frozenset[str]) -> str:
    """The text with each special token in it marked."""
    found = stops(tuple(sorted(specials))).pattern if specials else None
    return found.sub(lambda hit: SPECIAL_MARK + hit[0], text) if found else text


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
