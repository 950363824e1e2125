"""A grammar for many tools as a relay of small ones: a large set costs hardly more than a small one.

What a call begins with is a literal that holds the tool's name. So the names alone make the first grammar; when only a few tools
are left, the grammar of their calls takes over, from what is already written on; and where another call may follow, it ends with
the text that announces one, and the names are asked for again. Nothing is decided twice: the switch happens within literals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from callsmith.core.values import Choice, Tool
from callsmith.formats.algebra import Format, Says, is_strong
from callsmith.grammar.calls import Section, after, common, framed, grammar_for, leading, merged, stripped
from callsmith.grammar.nodes import Alt, Free, Grammar, Lit, Many, Node, Seq, Until

FEW: Final = 5  # tools that one grammar holds as cheaply
_SLOT: Final = Tool("callsmith-slot", "", {"type": "object", "properties": {"callsmith": {"type": "string"}}})
_KEPT: Final = 256  # stretches of one relay
_NOTHING: Final = Seq(())


@dataclass(frozen=True, slots=True, eq=False)
class Relay:
    """The stretches of an answer. An engine goes from one to the next; `whole` is the same as one grammar, for those who cannot.

    `first` is what the first call begins with, by the tool's name, and `again` any later one (empty: there is only one).
    `close` ends the calls. `before` is what stands before them, if anything may. `prefix` is what the prompt has written of
    the first stretch. `triggers`: where there are any, nothing is constrained until one of them is written; the calls begin
    with it, and the text up to it is `before`.
    """

    first: Mapping[str, str]
    again: Mapping[str, str]
    close: str
    before: Node | None
    prefix: str
    triggers: tuple[str, ...]
    whole: Callable[[], Grammar]
    _section: Callable[[Sequence[str]], Section]
    _lead: Mapping[str, str]
    _made: dict[object, Grammar] = field(default_factory=dict[object, Grammar])

    def opening(self, end: str) -> Grammar:
        """What stands before the calls, up to and including their first letters `end`."""
        return self._once((end,), lambda: Grammar(Seq((self.before or _NOTHING, Lit(end))), prefix=self.prefix))

    def names(self, written: str, *, again: bool) -> Grammar:
        """Which call it is: the beginnings of all that are possible, from what is already written on."""

        def make() -> Grammar:
            leads = (self.again if again else self.first).values()
            rests = [lead[len(written) :] for lead in leads if lead.startswith(written)]
            shared = common(rests)
            return Grammar(Seq((Lit(shared), Alt(tuple(Lit(rest[len(shared) :]) for rest in rests)))))

        return self._once((written, again), make)

    def calls(self, names: tuple[str, ...], written: str, *, again: bool, more: str) -> Grammar:
        """A call of one of these tools, from what is already written on, and then the end, or `more` that announces another."""
        leads = self.again if again else self.first
        rests = {name: leads[name][len(written) :] for name in names}
        return self._once((names, written, again, more), lambda: self._calls(rests, more))

    def alone(self, name: str) -> Grammar:
        """The arguments of one tool: to see whether they can be had."""
        return self._calls({name: ""}, "")

    def _calls(self, rests: Mapping[str, str], more: str) -> Grammar:
        section = self._section(tuple(rests))
        ways = [merged(Seq((Lit(rests[name]), stripped(call, self._lead[name])))) for name, call in section.calls.items()]
        end = Alt((Lit(self.close), Lit(more))) if more else Lit(self.close)
        start = merged(Seq((Alt(tuple(ways)) if len(ways) > 1 else ways[0], end)))
        return Grammar(start, section.rules.nodes, unenforced=tuple(dict.fromkeys(section.rules.left)))

    def _once(self, key: object, make: Callable[[], Grammar]) -> Grammar:
        if len(self._made) > _KEPT:
            self._made.clear()
        return self._made.get(key) or self._made.setdefault(key, make())


def relay_for(
    format: Format, tools: Sequence[Tool], choice: Choice, *, parallel: bool = True, opened: str = "", thinking: bool = False
) -> Relay | None:
    """The relay for these tools; None where one grammar does: few tools, or a format whose calls do not begin with the name."""
    offered = {tool.name: tool for tool in choice.among(tools)}
    if len(offered) <= FEW:
        return None
    pattern = Section(format, (_SLOT,), parallel)
    slotted = leading(pattern.calls[_SLOT.name]).split(_SLOT.name)
    if len(slotted) == 1 or pattern.most not in (None, 1):
        return None
    lead = {name: name.join(slotted) for name in offered}
    head = pattern.open + common(list(lead.values()))
    prefix, before = after(format, head, _NOTHING, opened)
    if before is not _NOTHING:
        before = merged(before)
    elif thinking and not prefix and format.thinks:
        before = Many(framed(format, format.thinks), 0, 1)
    first, triggers = {name: pattern.open + text for name, text in lead.items()}, ()
    if choice.mode != "required":
        core = pattern.core()
        if prefix or any(isinstance(part, Says) for part in format.parts) or (is_strong(core) and core not in head):
            return None
        first, before, triggers = _awaited(pattern, first, core, before)
    elif before is not _NOTHING and not head:
        return None

    def whole() -> Grammar:
        made = grammar_for(format, tools, choice, parallel=parallel, opened=opened, thinking=thinking)
        assert made is not None
        return made

    return Relay(
        first,
        {name: pattern.part.between + text for name, text in lead.items()} if pattern.most is None else {},
        pattern.close,
        None if before is _NOTHING else before,
        prefix,
        triggers,
        whole,
        lambda names: Section(format, [offered[name] for name in names], parallel),
        lead,
    )


def _awaited(section: Section, first: dict[str, str], core: str, before: Node) -> tuple[dict[str, str], Node, tuple[str, ...]]:
    """Where a call may come: what it begins with from its trigger on, the text up to there and what follows, and the triggers."""
    others = section.others(core)
    if not is_strong(core):
        return first, Seq((before, Free(others))), tuple(first.values())
    return {name: text[text.index(core) :] for name, text in first.items()}, Seq((before, Until(core, others), Free())), (core,)
