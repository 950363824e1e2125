"""The grammars of a format, built once for each set of tools and cached, and as fields of a chat request."""

import marshal
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.events import Unenforced
from callsmith.core.values import Choice, Json, Output, Request, Tool
from callsmith.engines.lru import LRU, IdentityLRU
from callsmith.engines.port import EngineInfo, UnenforcedBy
from callsmith.formats.algebra import Format
from callsmith.grammar.calls import grammar_for, list_unenforced
from callsmith.grammar.limits import refusing_depth
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import output_grammar
from callsmith.grammar.relay import Relay, relay_for
from callsmith.grammar.schema.loosen import STEPS, loosen
from callsmith.grammar.schema.normal_form import UnenforcedKeywords
from callsmith.grammar.targets.lark import to_lark
from callsmith.grammar.targets.upstream import for_llama_server, for_sglang, for_vllm
from callsmith.wire.upstream.quirks import GrammarFields

AnswerGrammar: TypeAlias = Grammar | Relay | None

_UPSTREAM_TARGETS: Final = {"vllm": for_vllm, "sglang": for_sglang, "llama-server": for_llama_server}
_BY_CONTENT: Final = 64  # sets of tools whose grammars are cached
_BY_OBJECTS: Final = 256  # the same sets as other objects
_TOOLS: Final = 1024  # whose unenforced keywords are cached


class Grammars:
    """Builds and caches the grammars of one format. `relays`: whether many tools may become a `Relay`.

    Where the engine says that a grammar is too large (`unenforced_by`), the schemas in it are loosened until it is not.
    Tools and outputs are values: a schema that is changed in place still gets the grammar of what it was.
    """

    def __init__(self, format: Format, *, relays: bool = False, unenforced_by: UnenforcedBy | None = None) -> None:
        self._format = format
        self._relays = relays
        self._unenforced_by = unenforced_by
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
        lenient: bool = False,
    ) -> AnswerGrammar:
        """The grammar of an answer, or a relay; None where nothing is to be constrained. `lenient`: calls of a tool whose
        schema no grammar can hold may have any arguments."""
        tools = tuple(tools)

        def at_step(step: int) -> AnswerGrammar:
            key = (choice.mode, choice.names, parallel, opened, thinking, step, lenient)  # of primitives: hashed on every request

            @refusing_depth
            def make() -> AnswerGrammar:
                let_go: UnenforcedKeywords = []
                known = [self._open_up(tool, let_go) for tool in tools] if lenient else tools
                known, loosened = [_loosen_tool(tool, step, let_go) for tool in known], _loosen_output(output, step, let_go)
                if self._relays and (output is None or choice.mode == "required"):
                    relay = relay_for(self._format, known, choice, parallel=parallel, opened=opened, thinking=thinking)
                    if relay is not None:
                        return relay
                grammar = grammar_for(
                    self._format, known, choice, parallel=parallel, opened=opened, thinking=thinking, output=loosened
                )
                return grammar and self._with_unenforced(grammar, let_go, step)

            def find() -> AnswerGrammar:  # requests often share their tools, but not the tuple
                return self._by_objects.get_or_make((output, *tools), lambda: self._make_once(key, tools, output, make), key)

            return self._by_objects.get_or_make((output, tools), find, key)

        for step in range(STEPS + 1):
            grammar = at_step(step)
            if self._unenforced_by is None or not isinstance(grammar, Grammar) or self._unenforced_by(grammar) is not None:
                return grammar
        raise UsageError("the tools make a grammar that is too large for the model's server, however loose", field="tools")

    def list_unenforced(self, tool: Tool, step: int = 0) -> tuple[Unenforced, ...]:
        """What the grammar of this tool's calls does not enforce, if its schema was loosened by so many steps."""

        @refusing_depth
        def find() -> tuple[Unenforced, ...]:
            let_go: UnenforcedKeywords = []
            loosened = _loosen_tool(tool, step, let_go)
            try:
                let_go += list_unenforced(self._format, loosened)
            except UnsupportedSchema as error:  # its calls may have any arguments
                return (Unenforced(tool.name, error.path, error.keyword),)
            if self._unenforced_by is not None:
                alone = grammar_for(self._format, (loosened,), Choice("required"), parallel=False)
                let_go += (alone and self._unenforced_by(alone)) or ()
            return tuple(Unenforced(tool.name, *keyword) for keyword in dict.fromkeys(let_go))

        return self._unenforced.get_or_make((tool,), find, step)

    def unenforced_of_output(self, output: Output, step: int = 0) -> tuple[Unenforced, ...]:
        """The same, of the schema of an output."""
        let_go: UnenforcedKeywords = []
        loosened = _loosen_output(output, step, let_go) or output
        constraint = output_grammar(self._format, loosened)
        let_go += constraint.unenforced
        if self._unenforced_by is not None:
            let_go += self._unenforced_by(Grammar(constraint.node)) or ()
        return tuple(Unenforced("", *keyword) for keyword in dict.fromkeys(let_go))

    def list_unheld(self, tools: Sequence[Tool]) -> list[str]:
        """The names of the tools whose schemas no grammar can hold."""
        return [tool.name for tool in tools if self._open_up(tool, []) is not tool]

    def _open_up(self, tool: Tool, let_go: UnenforcedKeywords) -> Tool:
        """The tool, or one of any arguments, where no grammar can hold its schema."""
        try:
            refusing_depth(list_unenforced)(self._format, tool)
        except UnsupportedSchema as error:
            let_go.append((error.path, error.keyword))
            return replace(tool, parameters={"type": "object"})
        return tool

    def _with_unenforced(self, grammar: Grammar, let_go: UnenforcedKeywords, step: int) -> Grammar:
        """The grammar, with all that it does not enforce in this engine."""
        by_engine = self._unenforced_by(grammar) if self._unenforced_by else None
        if not let_go and not by_engine and not step:
            return grammar
        return replace(
            grammar, unenforced=tuple(dict.fromkeys((*grammar.unenforced, *let_go, *(by_engine or ())))), loosened=step
        )

    def _make_once(
        self, key: Hashable, tools: Sequence[Tool], output: Output | None, make: Callable[[], AnswerGrammar]
    ) -> AnswerGrammar:
        digest = fingerprint(tools, output)
        if digest is None:
            return make()
        return (self._by_content.get((key, digest)) or self._by_content.put((key, digest), (make(),)))[0]


def grammar_text(engine: EngineInfo, grammar: AnswerGrammar) -> str:
    """A grammar as the engine gets it, for a person to read; empty if there is none. Of a relay it is the first part."""
    if grammar is None:
        return ""
    remarks = [f"// from where one of these is written: {' '.join(map(repr, grammar.triggers))}"] if grammar.triggers else []
    if isinstance(grammar, Relay):
        remarks.append("// which tool is called; the grammar of its arguments follows when that is known")
        grammar = grammar.names("", again=False)
    text = engine.write_grammar(grammar) if engine.write_grammar else to_lark(grammar, engine.specials)
    return "\n".join((*remarks, text))


def grammar_fields(format: Format, tools: Sequence[Tool], request: Request, fields: GrammarFields) -> dict[str, Json]:
    """The fields that hold an answer to a required call; none where nothing is required, or the server takes no grammar."""
    if not fields or request.choice.mode != "required":
        return {}
    thinking = request.thinking_limit != 0 and format.thinks is not None
    grammar = grammar_for(format, tools, request.choice, parallel=request.parallel is not False, thinking=thinking)
    if grammar is None:
        return {}
    try:
        return dict(_UPSTREAM_TARGETS[fields](grammar).body)
    except UsageError:
        return {}  # what this target cannot say is validated


def _loosen_tool(tool: Tool, step: int, let_go: UnenforcedKeywords) -> Tool:
    return replace(tool, parameters=loosen(tool.parameters, step, let_go)) if step else tool


def _loosen_output(output: Output | None, step: int, let_go: UnenforcedKeywords) -> Output | None:
    if not step or output is None or output.schema is None:
        return output
    return replace(output, schema=loosen(output.schema, step, let_go))


def fingerprint(tools: Sequence[Tool], output: Output | None = None) -> bytes | None:
    """A digest of names and schemas, in their order; 1, 1.0 and true differ. None if a schema cannot be serialized."""
    shape = output and (output.schema, output.choices, output.pattern, output.grammar, output.strict, output.as_written)
    content: Any = ([(tool.name, tool.parameters) for tool in tools], shape)
    try:
        # Version 2 has no references: equal values are written alike, whoever shares them.
        return blake2b(marshal.dumps(content, 2), digest_size=20).digest()
    except ValueError:  # a mapping that is no dictionary
        return None
