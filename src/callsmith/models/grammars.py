"""The grammars of a format, built once for each set of tools and cached."""

import marshal
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from callsmith.core.events import Unenforced
from callsmith.core.values import Choice, Output, Tool
from callsmith.engines.lru import LRU, IdentityLRU
from callsmith.formats.algebra import Format
from callsmith.grammar.calls import grammar_for, unenforced
from callsmith.grammar.limits import refusing_depth
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay, relay_for

AnswerGrammar: TypeAlias = Grammar | Relay | None

_BY_CONTENT: Final = 64  # sets of tools whose grammars are cached
_BY_OBJECTS: Final = 256  # the same sets as other objects
_TOOLS: Final = 1024  # whose unenforced keywords are cached


class Grammars:
    """Builds and caches the grammars of one format. `relays`: whether many tools may become a `Relay`.

    Tools and outputs are values: a schema that is changed in place still gets the grammar of what it was.
    """

    def __init__(self, format: Format, *, relays: bool = False) -> None:
        self._format = format
        self._relays = relays
        self._by_objects: IdentityLRU[AnswerGrammar] = IdentityLRU(_BY_OBJECTS)
        self._by_content: LRU[tuple[AnswerGrammar]] = LRU(_BY_CONTENT)
        self._unenforced: IdentityLRU[tuple[Unenforced, ...]] = IdentityLRU(_TOOLS)

    def get(
        self,
        tools: Sequence[Tool],
        choice: Choice,
        *,
        parallel: bool = True,
        opened: str = "",
        thinking: bool = False,
        output: Output | None = None,
    ) -> AnswerGrammar:
        """The grammar of an answer, or a relay; None where nothing is to be constrained."""
        tools = tuple(tools)
        key = (choice.mode, choice.names, parallel, opened, thinking)  # of primitives: hashed on every request

        @refusing_depth
        def make() -> AnswerGrammar:
            if self._relays and (output is None or choice.mode == "required"):
                relay = relay_for(self._format, tools, choice, parallel=parallel, opened=opened, thinking=thinking)
                if relay is not None:
                    return relay
            return grammar_for(self._format, tools, choice, parallel=parallel, opened=opened, thinking=thinking, output=output)

        def find() -> AnswerGrammar:  # requests often share their tools, but not the tuple
            return self._by_objects.get_or_make((output, *tools), lambda: self._make_once(key, tools, output, make), key)

        return self._by_objects.get_or_make((output, tools), find, key)

    def unenforced(self, tool: Tool) -> tuple[Unenforced, ...]:
        """What the grammar of this tool's calls does not enforce."""

        @refusing_depth
        def find() -> tuple[Unenforced, ...]:
            return tuple(Unenforced(tool.name, *one) for one in unenforced(self._format, tool))

        return self._unenforced.get_or_make((tool,), find)

    def _make_once(
        self, key: Hashable, tools: Sequence[Tool], output: Output | None, make: Callable[[], AnswerGrammar]
    ) -> AnswerGrammar:
        digest = fingerprint(tools, output)
        if digest is None:
            return make()
        return (self._by_content.get((key, digest)) or self._by_content.put((key, digest), (make(),)))[0]


def fingerprint(tools: Sequence[Tool], output: Output | None = None) -> bytes | None:
    """A digest of names and schemas, in their order; 1, 1.0 and true differ. None if a schema cannot be serialized."""
    said = output and (output.schema, output.choices, output.pattern, output.grammar, output.strict)
    content: Any = ([(tool.name, tool.parameters) for tool in tools], said)
    try:
        # Version 2 has no references: equal values are written alike, whoever shares them.
        return blake2b(marshal.dumps(content, 2), digest_size=20).digest()
    except ValueError:  # a mapping that is no dictionary
        return None
