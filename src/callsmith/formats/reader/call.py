"""Reading one call: a walk over the nodes of a `Calls` part."""

from collections.abc import Callable

from callsmith.formats.algebra import (
    ARGS,
    ID,
    NAME,
    Calls,
    Each,
    Hole,
    Ident,
    Node,
    Nodes,
    Obj,
    OneOf,
    Opt,
    first_literals,
    is_strong,
    literals_of,
)
from callsmith.formats.reader.arguments import ArgumentsReader
from callsmith.formats.reader.call_state import FENCES, CallState
from callsmith.formats.reader.envelope import EnvelopeReader
from callsmith.formats.reader.literals import NUMBER_AS_NAME, STRAY_CLOSERS, tool_by_arguments, tool_by_name
from callsmith.formats.reader.markers import SPECIAL_MARK, word_ends
from callsmith.formats.reader.source import Incremental, Mismatch
from callsmith.formats.reader.whole.patterns import mismatch_pattern, section_pattern


class CallReader(CallState):
    """Reads calls, one after another, and the markers around them."""

    __slots__ = ()

    def read(self, part: Calls, *, is_marked: bool = True, allows_any_name: bool = True, repair: str = "") -> Incremental[None]:
        """Read one call, written as the part's item.

        `is_marked`: a strong marker before it makes it a call. `allows_any_name`: so does any name, of a tool or not. `repair`
        names the repair that was needed before it.
        """
        self.reset()
        if repair:
            self.literals.repair(repair)
        self.part = part
        self.is_marked = is_marked
        self.allows_any_name = allows_any_name
        yield from self._walk(part.item)
        if not self.started:
            self.start()
        if not self.has_arguments:
            self.push("{}")

    def read_at_once(self, part: Calls, on_ready: Callable[[], None]) -> bool:
        """Read a section in which nothing is to be repaired; False, and nothing is read, where that is not certain.

        Only a text that has ended is sure to go on as it seems to.
        """
        source, literals = self.source, self.literals
        pattern = section_pattern(part, literals.ignored) if source.ended else None
        section = pattern and pattern.read(source.text, source.pos, self.tools, is_constrained=literals.is_constrained)
        if section is None:
            return False
        calls, source.pos = section
        for call in calls:
            self.reset()
            self.part = part
            self.name, self.id, text, self.parsed, _ = call
            self.start()
            self.push(text)
            on_ready()
        return True

    # --- markers ----------------------------------------------------------------------------------------------------------

    def read_markers(self, nodes: Nodes, optional: bool = False) -> Incremental[None]:
        """Read nodes that hold nothing of a call: openers, closers, headers. `optional`: each may be missing."""
        before, self.has_arguments = self.has_arguments, optional
        yield from self._walk(nodes)
        self.has_arguments = before

    def open_section(self, nodes: Nodes, lead: tuple[str, ...]) -> Incremental[bool]:
        """Read a section's opener; whether a strong marker was in it. A node may be missing where a call begins with `lead`."""
        strong = False
        fences = () if any("```" in text for node in nodes for text in literals_of(node)) else FENCES
        for node in nodes:
            if strong and fences:
                yield from self.literals.skip_markers(fences, "fenced")
            literals = literals_of(node.nodes[0] if isinstance(node, Opt) else node)
            yield from self.literals.skip_ignored()
            hit = yield from self.source.at(tuple(text.strip() for text in literals))
            if hit is not None:
                self.source.pos += len(hit)
                strong = strong or is_strong(hit)
                yield from self._skip_doubled(hit)
            elif not isinstance(node, Opt):
                if not lead or not (yield from self.source.at(lead)):
                    raise Mismatch(f"expected {literals[0]!r}")
                if self.literals.strict:
                    raise Mismatch("missing-section")
        return strong

    def cannot_be(self, nodes: Nodes) -> bool:
        """Whether these markers surely do not stand here."""
        pattern = mismatch_pattern(nodes, self.literals.ignored) if self.source.ended else None
        return pattern is not None and pattern.match(self.source.text, self.source.pos) is not None

    def at_name(self) -> Incremental[str | None]:
        """The next character, if a name may begin with it."""
        char = yield from self.source.peek()
        return char if char.isalpha() or char == "_" else None

    def joined_part(self, part: Calls) -> Incremental[Calls | None]:
        """The part without its outer markers, if the next call is inside the markers of the last one."""
        item = part.item
        start = max((at - (node is NAME) for at, node in enumerate(item) if node is NAME or isinstance(node, Obj)), default=0)
        if start < 1 or not (yield from self.source.at(first_literals(item[start:]))):
            return None
        return Calls(*item[start:], close=part.close, values=part.values)

    def _read_literal(self, node: str | OneOf, *, is_last: bool) -> Incremental[bool]:
        """Read a literal; whether it was a self-closing tag."""
        if self.part.exact:
            self.is_marked = is_strong((yield from self.literals.read_exactly(node)).strip()) or self.is_marked
            return False
        if self.has_arguments and not self.started:
            yield from self._skip_optional_closer(node)
            return False
        hit = yield from self.literals.read_literal(node, optional=self.has_arguments)
        if hit is None:
            return False
        self.is_marked = self.is_marked or is_strong(hit)
        if not is_last and not self.has_arguments:
            yield from self._skip_doubled(hit)
        return hit.endswith("/>")

    def _skip_doubled(self, marker: str) -> Incremental[None]:
        """Skip a second copy of a marker that was just read."""
        if is_strong(marker):
            yield from self.literals.skip_markers((marker,), "doubled-marker")

    def _skip_optional_closer(self, node: str | OneOf) -> Incremental[None]:
        """Skip a section's closer if it is there, and stray brackets before it."""
        cores = tuple(text.strip() for text in literals_of(node) if text.strip())
        if not (yield from self.source.at_after_space(cores)) and (yield from self.source.at_after_space(STRAY_CLOSERS)):
            yield from self.source.skip_space()
            yield from self.literals.skip_stray_closers(cores)
        if (yield from self.literals.is_present(Opt((node,), True), ())):
            yield from self.literals.read_literal(node)

    # --- the walk ---------------------------------------------------------------------------------------------------------

    def _walk(self, nodes: Nodes, follow: tuple[str, ...] = ()) -> Incremental[None]:
        """Read nodes one after another. `follow`: the literals that may stand behind them."""
        for position, node in enumerate(nodes):
            rest = nodes[position + 1 :]
            if self.name and not self.started and (yield from self._ends_early(node)):
                continue
            match node:
                case str() | OneOf():
                    if (yield from self._read_literal(node, is_last=not rest and not follow)):
                        return  # a self-closing tag: a call without arguments, and nothing else follows
                case Opt():
                    if (yield from self.literals.is_present(node, first_literals(rest, follow))):
                        yield from self._walk(node.nodes, first_literals(rest, follow))
                case Ident():
                    yield from self._read_ident(node, word_ends(self.part, rest, follow))
                case Obj():
                    yield from EnvelopeReader(self, node).read()
                case Each():
                    self.start()
                    arguments = ArgumentsReader(self.literals, self.part, self.schema, self.push)
                    yield from arguments.read(node, first_literals(rest, follow))
                    self.has_arguments = True
                case Hole():
                    yield from self._read_hole(node, word_ends(self.part, rest, follow))

    def _ends_early(self, node: Node) -> Incremental[bool]:
        """Whether the call ends where its arguments should begin; it is then completed without any."""
        closers = self.closers() if ARGS in self.part.item and (node is ARGS or literals_of(node)) else ()
        if not closers or not (yield from self.source.skip_space()) or not (yield from self.source.at(closers)):
            return False
        self.start()
        self.push_no_arguments()
        return True

    def _read_hole(self, hole: Hole, ends: tuple[str, ...]) -> Incremental[None]:
        if hole is ARGS and self.has_arguments:
            return
        if hole is ARGS:
            if self.tools and self.name not in self.tools and NUMBER_AS_NAME.fullmatch(self.name):
                yield from self._read_arguments_without_name()
            else:
                self.start()
                yield from self.read_arguments(self.part.values)
            self.has_arguments = True
            return
        word = yield from self.literals.read_word(ends, self.part.values, is_name=hole is NAME)
        if hole is NAME:
            if not word:
                raise Mismatch("a name is missing")
            self.name = word
        elif hole is ID:
            self.id = word

    def _read_arguments_without_name(self) -> Incremental[None]:
        """Read the arguments of a call with a number for a name: whole, since they tell which tool is meant."""
        yield from self.literals.skip_ignored()
        text = self.as_object((yield from self.read_buffered()))
        if not tool_by_name(self.name, self.tools) and (meant := tool_by_arguments(text, self.tools)):
            self.literals.repair("other-name")
            self.name = meant
        self.start()
        self.push(text)

    def _read_ident(self, node: Ident, follow: tuple[str, ...]) -> Incremental[None]:
        """Read nodes whose whole text is the call's id."""
        yield from self.source.skip_space()
        before = len(self.source.since_mark())
        yield from self._walk(node.nodes, follow)
        self.id = self.source.since_mark()[before:].strip().replace(SPECIAL_MARK, "")
