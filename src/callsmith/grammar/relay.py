"""A grammar for many tools as a relay: a sequence of small grammars, each compiled only when the answer reaches it.

A call begins with a literal that contains the tool's name. The first grammar allows just these beginnings. When only a few tools
remain possible, the grammar of their calls takes over, from the text that is already written. Where another call may follow, that
grammar ends with the text that begins one, and the names are next again. Grammars change only inside literals, so that no choice
is left open across a change. In this way many tools cost hardly more than a few.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from callsmith.core.values import Choice, Tool
from callsmith.formats.algebra import Format, is_strong
from callsmith.grammar.calls import (
    CallsGrammar,
    common_prefix,
    drop_literal,
    flatten,
    framed_text,
    grammar_for,
    leading_literal,
    with_prefix,
)
from callsmith.grammar.limits import is_simple_schema
from callsmith.grammar.nodes import NOTHING, Alt, FreeText, Grammar, Lit, Many, Node, Seq, Until
from callsmith.grammar.output import text_part

MAX_TOOLS_IN_ONE_GRAMMAR: Final = 5  # up to here one grammar is as cheap
_PLACEHOLDER: Final = Tool("callsmith-slot", "", {"type": "object", "properties": {"callsmith": {"type": "string"}}})
_MAX_CACHED: Final = 256  # grammars of one relay


@dataclass(frozen=True, slots=True, eq=False)
class Relay:
    """The grammars of the stages of an answer. An engine goes from one to the next; `whole` makes one grammar of all of them.

    `first` is the literal that the first call begins with, by the tool's name, and `again` that of a later call (empty: there is
    only one call). `close` ends the calls. `before` is what may come before them. `prefix` is the part of the first stage that
    the prompt contains. `triggers`: if there are any, nothing is constrained until the model has written one of them; the calls
    begin with it, and the text up to it is `before`.
    """

    first: Mapping[str, str]
    again: Mapping[str, str]
    close: str
    before: Node | None
    prefix: str
    triggers: tuple[str, ...]
    whole: Callable[[], Grammar]
    _tools: Mapping[str, Tool]
    _grammar_of: Callable[[Sequence[str]], CallsGrammar]
    _starts: Mapping[str, str]
    _cache: dict[object, Grammar] = field(default_factory=dict[object, Grammar])

    def opening(self, end: str) -> Grammar:
        """The stage before the calls, up to and including `end`, the text that calls begin with."""
        return self._get_or_make((end,), lambda: Grammar(Seq((self.before or NOTHING, Lit(end))), prefix=self.prefix))

    def names(self, text: str, *, again: bool) -> Grammar:
        """The stage that decides on the tool: the literals that possible calls begin with, after what is already written."""

        def make() -> Grammar:
            starts = (self.again if again else self.first).values()
            rests = [start[len(text) :] for start in starts if start.startswith(text)]
            shared = common_prefix(rests)
            return Grammar(Seq((Lit(shared), Alt(tuple(Lit(rest[len(shared) :]) for rest in rests)))))

        return self._get_or_make((text, again), make)

    def calls(self, names: tuple[str, ...], text: str, *, again: bool, more: str) -> Grammar:
        """The stage of a call of one of these tools, after what is already written; then comes the end, or `more` for another."""
        starts = self.again if again else self.first
        rests = {name: starts[name][len(text) :] for name in names}
        return self._get_or_make((names, text, again, more), lambda: self._calls(rests, more))

    def arguments_of(self, name: str) -> Grammar:
        """The arguments of one tool alone: to see whether a grammar for them can be compiled."""
        return self._calls({name: ""}, "")

    def costly(self) -> list[str]:
        """The tools whose grammar may be costly to compile."""
        return [name for name, tool in self._tools.items() if not is_simple_schema(tool.parameters)]

    def _calls(self, rests: Mapping[str, str], more: str) -> Grammar:
        grammar = self._grammar_of(tuple(rests))
        ways = [flatten(Seq((Lit(rests[name]), drop_literal(call, self._starts[name])))) for name, call in grammar.calls.items()]
        # Where only white space announces another call, it cannot also be the end.
        ends = dict.fromkeys((self.close, grammar.space if more.strip() else self.close, more or self.close))
        end = Alt(tuple(map(Lit, ends))) if len(ends) > 1 else Lit(self.close)
        start = flatten(Seq((Alt(tuple(ways)) if len(ways) > 1 else ways[0], end)))
        return Grammar(start, grammar.rules.nodes, unenforced=grammar.rules.list_unenforced())

    def _get_or_make(self, key: object, make: Callable[[], Grammar]) -> Grammar:
        if len(self._cache) > _MAX_CACHED:
            self._cache.clear()
        return self._cache.get(key) or self._cache.setdefault(key, make())


def relay_for(
    format: Format, tools: Sequence[Tool], choice: Choice, *, parallel: bool = True, opened: str = "", thinking: bool = False
) -> Relay | None:
    """The relay for these tools; None where one grammar is as good: for few tools, or where calls do not begin with the name."""
    offered = {tool.name: tool for tool in choice.among(tools)}
    if len(offered) <= MAX_TOOLS_IN_ONE_GRAMMAR:
        return None
    model = CallsGrammar(format, (_PLACEHOLDER,), parallel)
    around_name = leading_literal(model.calls[_PLACEHOLDER.name]).split(_PLACEHOLDER.name)
    if len(around_name) == 1 or model.max_calls not in (None, 1):
        return None
    starts = {name: name.join(around_name) for name in offered}
    head = model.open + common_prefix(list(starts.values()))
    prefix, before = with_prefix(format, head, NOTHING, opened, choice)
    if before is not NOTHING:
        before = flatten(before)
    elif thinking and not prefix and format.thinks:
        before = Many(framed_text(format, format.thinks), 0, 1)
    first, triggers = {name: model.open + text for name, text in starts.items()}, ()
    if choice.mode != "required":
        marker = model.marker()
        if prefix or text_part(format) or (is_strong(marker) and marker not in head):
            return None
        first, before, triggers = _after_trigger(model, first, marker, before)
    elif before is not NOTHING and not head:
        return None

    def whole() -> Grammar:
        grammar = grammar_for(format, tools, choice, parallel=parallel, opened=opened, thinking=thinking)
        assert grammar is not None
        return grammar

    return Relay(
        first,
        {name: model.part.between + text for name, text in starts.items()} if model.max_calls is None else {},
        model.close,
        None if before is NOTHING else before,
        prefix,
        triggers,
        whole,
        offered,
        lambda names: CallsGrammar(format, [offered[name] for name in names], parallel),
        starts,
    )


def _after_trigger(
    model: CallsGrammar, first: dict[str, str], marker: str, before: Node
) -> tuple[dict[str, str], Node, tuple[str, ...]]:
    """For optional calls: what each begins with from its trigger on, the text before and at the trigger, and the triggers."""
    others = model.other_markers(marker)
    if not is_strong(marker):
        return first, Seq((before, FreeText(others))), tuple(first.values())
    starts = {name: text[text.index(marker) :] for name, text in first.items()}
    return starts, Seq((before, Until(marker, others), FreeText())), (marker,)
