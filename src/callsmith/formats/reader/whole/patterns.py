"""Regular expressions from the nodes of a format: what a section of calls is when it is written as it should be, and what cannot
open a part.

White space may be as the reader allows. Where nodes are such that a pattern could match what the walk over them reads in another
way (one marker begins like another, say), there is no pattern.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from callsmith.formats.algebra import (
    ARGS,
    ID,
    JSON,
    KEY,
    NAME,
    SKIP,
    VALUE,
    Calls,
    Each,
    Hole,
    Ident,
    Nodes,
    Notation,
    Obj,
    OneOf,
    Opt,
    first_literals,
    is_strong,
    literals_of,
    space_around,
)
from callsmith.formats.reader.markers import SPECIAL_MARK, closers_of, section_of, strong_closers_of, word_ends
from callsmith.formats.reader.source import NO_MATCH
from callsmith.formats.reader.whole.sections import CallPattern, EachPattern, SectionPattern
from callsmith.formats.reader.whole.values import SPACE

MARKS = ".-:/$@+#"  # besides letters, in names, keys and ids that mean no more than they say
FENCE = "```"
STRING_LIKE = rf'[^"\\\x00-\x1f{SPECIAL_MARK}]'


class Unsure(Exception):
    """No pattern is certain to read what the walk over the nodes reads."""


@lru_cache(1024)
def section_pattern(part: Calls, ignored: tuple[str, ...]) -> SectionPattern | None:
    """The pattern of a section of calls; None where there is none. `ignored` are control tokens that may stand anywhere."""
    try:
        return _PatternMaker(part, ignored).section()
    except (Unsure, re.error):
        return None


class _PatternMaker:
    """Makes the patterns of one part."""

    def __init__(self, part: Calls, ignored: tuple[str, ...]) -> None:
        self._part = part
        self._ignored = ignored
        self._names = 0  # groups of names so far
        literals = [text.strip() for text in _literals((*part.open, *part.item)) if text.strip()]
        skipped = (*ignored, *filter(is_strong, literals))  # where they come twice, or at all
        self._no_words = _any_of(text for text in skipped if text[0].isalnum() or text[0] in f"_{MARKS}")
        if any(text[0] == "{" for text in skipped) or any(closer[0] == '"' for closer in closers_of(part)):
            raise Unsure
        if any(literal.startswith(token) for literal in literals for token in ignored):
            raise Unsure

    # --- a section --------------------------------------------------------------------------------------------------------

    def section(self) -> SectionPattern:
        part, section = self._part, section_of(self._part)
        lead, close, between = section.lead, section.close, section.between
        if not lead and part.item[0] is not NAME:
            raise Unsure
        for text in (*close, *([between] if between else ())):
            if (text.startswith(lead) or _begin_with(lead, text)) if lead else text[0].isalpha() or text[0] == "_":
                raise Unsure
        opener = "".join(self._of_section(node, part.open[at + 1 :], lead) for at, node in enumerate(part.open))
        named = "" if lead else f"(?={SPACE}[A-Za-z_])"
        ended = rf"(?={SPACE}\Z)"
        if close:
            closer = "".join(self._of_section(node, part.close[at + 1 :], ()) for at, node in enumerate(part.close))
            ended = f"(?={SPACE}{_any_of(close)}){closer}|{ended}"
        elif lead:
            ended = f"(?!{SPACE}{_any_of((*lead, *section.separators))})|{ended}"
        return SectionPattern(
            re.compile(opener + named), self._call(), re.compile(SPACE + re.escape(between) + named), re.compile(ended)
        )

    def _of_section(self, node: object, rest: Nodes, follow: tuple[str, ...]) -> str:
        """A marker around the calls."""
        literal = node.nodes[0] if isinstance(node, Opt) and len(node.nodes) == 1 else node
        if not isinstance(literal, str | OneOf):
            raise Unsure
        self._check_doubled(literal, first_literals(rest, follow))
        pattern = SPACE + _any_of(text.strip() for text in literals_of(literal))
        return f"(?>{pattern}|{self._missing((*first_literals((literal,)), FENCE))})" if isinstance(node, Opt) else pattern

    def _missing(self, texts: tuple[str, ...]) -> str:
        """Where none of these is, nor anything that would be skipped to find one."""
        return f"(?!{SPACE}{_any_of((*texts, *self._ignored))})"

    def _check_doubled(self, node: str | OneOf, following: tuple[str, ...]) -> None:
        """Nothing that may follow a literal looks like a second copy of it."""
        if any(is_strong(text.strip()) and other.startswith(text.strip()) for text in literals_of(node) for other in following):
            raise Unsure

    # --- a call -----------------------------------------------------------------------------------------------------------

    def _call(self) -> CallPattern:
        item = self._part.item
        at = next((at for at, node in enumerate(item) if node is ARGS or isinstance(node, Each | Obj)), None)
        if at is None:
            raise Unsure
        body, rest = item[at], item[at + 1 :]
        before, behind = self._before(item[:at], item[at:]), self._behind(rest)
        arguments: Notation | EachPattern = JSON
        if isinstance(body, Obj):
            opened, closed = self._envelope(body)
            before, behind = before + opened, closed + behind
        elif isinstance(body, Each):
            arguments = self._each(body, first_literals(rest))
        elif isinstance(self._part.values, Notation):
            arguments = self._part.values
        if not isinstance(arguments, EachPattern):
            before += rf"{SPACE}(?=\{{)"
            if arguments.python:
                raise Unsure
        if not self._names:
            raise Unsure
        return CallPattern(re.compile(before), f"name{self._names - 1}", arguments, re.compile(behind))

    def _before(self, nodes: Nodes, rest: Nodes, follow: tuple[str, ...] = ()) -> str:
        """Nodes before the arguments. `rest` comes behind them, and then one of `follow`."""
        pattern = ""
        closers = strong_closers_of(self._part) if ARGS in self._part.item else ()
        for at, node in enumerate(nodes):
            ahead = nodes[at + 1 :] + rest
            following = first_literals(ahead, follow)
            match node:
                case str() | OneOf():
                    self._check_doubled(node, following)
                    if any(text.startswith(closers) or _begin_with(closers, text) for text in first_literals((node,))):
                        raise Unsure  # there the call would end
                    pattern += self._literal(node)
                case Opt() if self._part.exact:
                    raise Unsure
                case Opt((str() | OneOf(), *_)):
                    pattern += f"(?>{self._before(node.nodes, (), following)}|{self._missing(first_literals(node.nodes))})"
                case Opt() if following:
                    pattern += f"(?>{SPACE}(?={_any_of(following)})|{self._before(node.nodes, (), following)})"
                case Ident():
                    inner = self._before(node.nodes, (), word_ends(self._part, ahead, follow))
                    pattern += f"{SPACE}(?P<id>{inner})"
                case Hole():
                    pattern += self._word(node, word_ends(self._part, ahead, follow))
                case Obj() | Each() | Opt():
                    raise Unsure
        return pattern

    def _behind(self, nodes: Nodes) -> str:
        """Nodes behind the arguments."""
        pattern = ""
        for node in nodes:
            match node:
                case str() | OneOf():
                    pattern += self._literal(node)
                case Opt((str() | OneOf(), *_)) if not self._part.exact:
                    pattern += f"(?>{self._behind(node.nodes)}|{self._missing(first_literals(node.nodes))})"
                case _:
                    raise Unsure
        return pattern

    def _literal(self, node: str | OneOf) -> str:
        if self._part.exact:
            return _any_of(literals_of(node))
        cores = [text.strip() for text in literals_of(node)]
        if not all(cores):
            return SPACE
        closed = _any_of(core for core in cores if core.endswith("/>"))  # a tag with nothing in it
        return SPACE + (f"(?!{closed})" if closed else "") + _any_of(cores)

    def _word(self, hole: Hole, ends: tuple[str, ...], group: str = "") -> str:
        """A word in which none of its ends begins."""
        firsts = {end[0] for end in ends}
        if self._part.exact or not ends or any(first.isalnum() or first == "_" for first in firsts):
            raise Unsure
        if hole is NAME:
            group = f"name{self._names}"
            self._names += 1
        elif hole is ID:
            group = "id"
        letters = rf"[\w{re.escape(''.join(mark for mark in MARKS if mark not in firsts))}]"
        word = f"{letters}{{{0 if hole is SKIP else 1},99}}+"
        return SPACE + (f"(?!{self._no_words})" if self._no_words else "") + (f"(?P<{group}>{word})" if group else word)

    def _envelope(self, node: Obj) -> tuple[str, str]:
        """An object's text before the arguments and behind them: fields in the order in which they are written."""
        before, behind = SPACE + r"\{", SPACE
        has_arguments = False
        for key, hole in node.fields:
            name = rf"(?P<name{self._names}>[\w{re.escape(MARKS)}]{{1,99}}+)" if isinstance(key, Hole) else re.escape(key)
            field = f'{SPACE}"{name}"{SPACE}:{SPACE}'
            if hole is ARGS and not has_arguments:
                self._names += isinstance(key, Hole)
                before, has_arguments = before + field, True
            elif hole is NAME and not has_arguments:
                before += f'{field}"(?P<name{self._names}>{STRING_LIKE}++)"{SPACE},'
                self._names += 1
            elif hole is ID:
                field += f'"(?P<id>{STRING_LIKE}*+)"{SPACE}'
                before, behind = (before, f"{behind}(?:,{field})?+") if has_arguments else (f"{before}(?:{field},)?+", behind)
            else:
                raise Unsure
        if not has_arguments:
            raise Unsure
        return before, behind + r"\}"

    # --- arguments --------------------------------------------------------------------------------------------------------

    def _each(self, node: Each, ends: tuple[str, ...]) -> EachPattern:
        """The patterns of one argument."""
        part, nodes, between = self._part, node.nodes, node.between.strip()
        at = nodes.index(VALUE) if VALUE in nodes else 0
        if not at or part.exact or (isinstance(part.values, Notation) and not part.values.python):
            raise Unsure
        follow = (between, *ends) if between else ends
        lead = first_literals(nodes) if isinstance(nodes[0], str | OneOf) else ()
        outer = [text for text in (*closers_of(part), *first_literals(part.item)) if is_strong(text)]
        no_lead = _any_of(text for text in (*ends, *outer) if text not in lead and text.startswith(lead))
        patterns = [self._of_argument(nodes, position, follow, lead) for position in range(len(nodes))]
        return EachPattern(
            re.compile((f"(?!{SPACE}{no_lead})" if no_lead else "") + "".join(patterns[:at])),
            re.compile("".join(patterns[at + 1 :])),
            re.compile(SPACE + re.escape(between)) if between else None,
            first_literals(nodes[at + 1 :], follow),
            space_around(nodes, at),
            part,
            nodes,
        )

    def _of_argument(self, nodes: Nodes, position: int, follow: tuple[str, ...], lead: tuple[str, ...]) -> str:
        """The pattern of one of an argument's nodes."""
        node, ends = nodes[position], first_literals(nodes[position + 1 :], follow)
        match node:
            case str() | OneOf():
                own = first_literals((node,))
                lacks_value = KEY in nodes[:position] and VALUE not in nodes[:position]
                if lacks_value and any(text not in own and text.startswith(own) for text in (*lead, *follow)):
                    raise Unsure
                return self._literal(node)
            case Opt((str() as literal, Hole() as hole), _):
                return f"(?>{self._literal(literal)}{self._word(hole, ends, 'flag')}|{self._missing((literal.strip(),))})"
            case Hole.VALUE:
                return ""
            case Hole():
                return self._word(node, ends, "key" if node is KEY and KEY not in nodes[:position] else "")
            case _:
                raise Unsure


@lru_cache(1024)
def mismatch_pattern(nodes: Nodes, ignored: tuple[str, ...]) -> re.Pattern[str]:
    """What matches only text that these markers surely do not begin."""
    return re.compile(_mismatch(nodes, ignored, ()))


def _mismatch(nodes: Nodes, ignored: tuple[str, ...], previous: tuple[str, ...]) -> str:
    """Text that goes on with none of these nodes, nor with what may stand before them: control tokens, the last marker again."""
    if not nodes:
        return NO_MATCH
    node, rest = nodes[0], nodes[1:]
    match node:
        case str() | OneOf():
            cores = tuple(text.strip() for text in literals_of(node))
            if not all(cores):
                return _mismatch(rest, ignored, previous)
            other = rf"(?!{_any_of((*cores, *ignored, *previous))})[^ \t\r\n]"
            return f"{SPACE}(?>{other}|{_any_of(cores)}{_mismatch(rest, ignored, cores)})"
        case Opt((str() | OneOf(), *_)):
            first = first_literals(node.nodes)
            present = f"(?={SPACE}{_any_of(first)}){_mismatch(node.nodes + rest, ignored, previous)}"
            return f"(?>{present}|(?!{SPACE}{_any_of((*first, *ignored, *previous))}){_mismatch(rest, ignored, previous)})"
        case _:
            return NO_MATCH


def _literals(nodes: Nodes) -> Iterator[str]:
    """The literals of nodes."""
    for node in nodes:
        yield from literals_of(node)
        if isinstance(node, Opt | Each | Ident):
            yield from _literals(node.nodes)


def _begin_with(texts: tuple[str, ...], start: str) -> bool:
    return any(text.startswith(start) for text in texts)


def _any_of(texts: Iterable[str]) -> str:
    """A pattern of one of these texts, the longest that is there; empty if there are none."""
    alternatives = sorted({*texts}, key=len, reverse=True)
    return f"(?>{'|'.join(map(re.escape, alternatives))})" if alternatives else ""
