"""The grammar of a text, as a tool's argument may have one (`x-grammar`): read, checked, and held against texts.

    >>> grammar = read_text_grammar({"syntax": "lark", "definition": 'start: "a" start "b" | "c"'})
    >>> grammar.misfit("aacb")
    Misfit(at=4, is_unknown=False)

`definition` is a Lark grammar, or a regular expression that the whole text has to match. Parts take what they like: a text fits
if there is any way to read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

from callsmith.core.errors import UsageError
from callsmith.core.schema import GRAMMAR, add_keyword
from callsmith.grammar.languages.lark import read_lark
from callsmith.grammar.languages.productions import ROOT, drop_left_recursion, find_left_recursion, to_productions, to_rules
from callsmith.grammar.languages.recognizer import Misfit, Recognizer
from callsmith.grammar.languages.regular import to_regex, unroll
from callsmith.grammar.limits import check_pattern
from callsmith.grammar.nodes import Node, Pattern, Ref
from callsmith.grammar.patterns.automaton import Follower, TooLarge
from callsmith.grammar.patterns.regex import Regex, UnsupportedRegex, unparse
from callsmith.grammar.patterns.user_regex import parse_user_regex

_MAX_STEPS = 5_000_000  # a few seconds


@dataclass(frozen=True)
class TextGrammar:
    """The texts that `rules` have, beginning with `start`; none begins with itself. `regex`: they are those of an expression."""

    start: Node
    rules: Mapping[str, Node]
    regex: Regex | None

    def misfit(self, text: str) -> Misfit | None:
        """Where the text stops being one of the grammar; None if it is one."""
        try:
            at = self._follower.follow(text, _MAX_STEPS) if self._follower else 0
        except TooLarge:
            return Misfit(0, is_unknown=True)
        if at is None:
            return None
        return Misfit(at) if self._follower and self.regex is not None else self._recognizer.follow(text)

    @cached_property
    def unrolled(self) -> Regex | None:
        """The expression of all texts, or of those in which no rule is too often in itself; None if it would be too large."""
        return self.regex or unroll(self.start, self.rules)

    @cached_property
    def _follower(self) -> Follower | None:
        """Follows the unrolled expression: most texts are found by it, and at once."""
        try:
            return None if self.unrolled is None else Follower(self.unrolled)
        except TooLarge:
            return None

    @cached_property
    def _recognizer(self) -> Recognizer:
        return Recognizer(self.start, self.rules)


def read_text_grammar(value: Any) -> TextGrammar:
    """The grammar of an `x-grammar`; a UsageError says what is wrong with it, and in which line."""
    match value:
        case {"syntax": "lark" | "regex" as syntax, "definition": str(definition)}:
            try:
                return _read(cast(str, syntax), definition)
            except RecursionError:
                raise UsageError("grammar: it is nested too deeply", field="grammar") from None
        case _:
            raise UsageError('a grammar has a "syntax", lark or regex, and its text as "definition"', field="grammar")


@lru_cache(256)
def _read(syntax: str, definition: str) -> TextGrammar:
    if syntax == "regex":
        check_pattern(definition, "grammar")
        try:
            tree = parse_user_regex(definition)
        except UnsupportedRegex as error:
            raise UsageError(f"grammar: the expression has what is not supported: {error}", field="grammar") from None
        return TextGrammar(Pattern(unparse(tree)), {}, tree)
    start, rules = read_lark(definition)
    regex = to_regex(start, rules)
    if regex is None:
        productions = to_productions(start, rules, by_character=False)
        if find_left_recursion(productions):
            rules = to_rules(drop_left_recursion(productions))
            start = Ref(ROOT)
    return TextGrammar(start, rules, regex)


class _GrammarKeyword:
    """The keyword `x-grammar` where values are validated."""

    def __init__(self, schema: Any, value: Any, path: Any) -> None:
        self.grammar = read_text_grammar(value)

    def validate(self, instance: Any) -> None:
        """Raise a ValueError, for the model that wrote it, if this is a text that does not fit."""
        if not isinstance(instance, str):
            return
        misfit = self.grammar.misfit(instance)
        if misfit is None:
            return
        if misfit.is_unknown:
            raise ValueError(f"the text is too long to be held against its grammar, which it fits for {misfit.at} characters")
        rest = instance[misfit.at : misfit.at + 20]
        where = f"at character {misfit.at}, {rest!r}" if rest else "it ends too early"
        raise ValueError(f"the text does not fit its grammar: {where}")


add_keyword(GRAMMAR, _GrammarKeyword)
