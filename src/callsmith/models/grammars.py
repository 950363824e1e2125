"""What holds an answer to its tools, made once for each set of them."""

import marshal
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from callsmith.core.events import Unenforced
from callsmith.core.values import Choice, Output, Tool
from callsmith.engines.lru import LRU
from callsmith.formats.algebra import Format
from callsmith.grammar.calls import grammar_for, unenforced
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay, relay_for

Made: TypeAlias = Grammar | Relay | None
Left: TypeAlias = tuple[Unenforced, ...]

_SETS: Final = 64  # sets of tools whose grammars are kept
_SEEN: Final = 256  # the same, known by the objects: that spares looking into them
_TOOLS: Final = 4096


class Grammars:
    """The grammars of one format, kept by what they are made of. `relays`: whether a relay will do for many tools.

    Tools and outputs are values: whoever changes the dictionaries in one gets the grammar of what it was.
    """

    def __init__(self, format: Format, *, relays: bool = False) -> None:
        self._format = format
        self._relays = relays
        self._same: LRU[tuple[object, Made]] = LRU(_SEEN)
        self._seen: LRU[tuple[object, Made]] = LRU(_SEEN)
        self._sets: LRU[tuple[Made]] = LRU(_SETS)
        self._left: LRU[tuple[Left]] = LRU(_TOOLS)

    def made(
        self,
        tools: Sequence[Tool],
        choice: Choice,
        *,
        parallel: bool = True,
        opened: str = "",
        thinking: bool = False,
        output: Output | None = None,
    ) -> Made:
        """The grammar of an answer, or a relay; None where nothing is to be constrained."""
        tools = tuple(tools)  # which a tuple is already: seen before, it is the same tools, however many there are
        asked = (choice, parallel, opened, thinking)
        whole = (asked, id(output), id(tools))
        if known := self._same.get(whole):
            return known[1]

        def make() -> Made:
            if self._relays and (output is None or choice.mode == "required"):
                relay = relay_for(self._format, tools, choice, parallel=parallel, opened=opened, thinking=thinking)
                if relay is not None:
                    return relay
            return grammar_for(self._format, tools, choice, parallel=parallel, opened=opened, thinking=thinking, output=output)

        objects = (asked, id(output), *map(id, tools))
        kept = (tools, output)  # as long as they are, their ids are theirs
        known = self._seen.get(objects) or self._seen.put(objects, (kept, self._by_content(asked, tools, output, make)))
        return self._same.put(whole, (kept, known[1]))[1]

    def unenforced(self, tool: Tool) -> Left:
        """What the grammar of this tool's calls leaves to be checked."""
        mark = fingerprint((tool,))
        if mark is None:
            return self._left_by(tool)
        return (self._left.get(mark) or self._left.put(mark, (self._left_by(tool),)))[0]

    def _left_by(self, tool: Tool) -> Left:
        return tuple(Unenforced(tool.name, *one) for one in unenforced(self._format, tool))

    def _by_content(self, asked: Hashable, tools: Sequence[Tool], output: Output | None, make: Callable[[], Made]) -> Made:
        mark = fingerprint(tools, output)
        if mark is None:
            return make()
        return (self._sets.get((asked, mark)) or self._sets.put((asked, mark), (make(),)))[0]


def fingerprint(tools: Sequence[Tool], output: Output | None = None) -> bytes | None:
    """What tells sets of tools apart: names and schemas, in their order, 1 not being 1.0 nor true. None: it cannot be told."""
    said = output and (output.schema, output.choices, output.pattern, output.grammar, output.strict)
    content: Any = ([(tool.name, tool.parameters) for tool in tools], said)
    try:
        # Version 2 has no references: equal values are written alike, whoever shares them.
        return blake2b(marshal.dumps(content, 2), digest_size=20).digest()
    except ValueError:  # a mapping that is no dictionary
        return None
