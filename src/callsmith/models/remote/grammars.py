"""Grammars for servers that take one with a chat request: what the calls of a prompted format must be."""

from collections.abc import Sequence

from callsmith.core.errors import UsageError
from callsmith.core.values import Json, Request, Tool
from callsmith.formats.algebra import Format
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.targets.upstream import for_llama_server, for_sglang, for_vllm
from callsmith.wire.upstream.quirks import GrammarFields

_TARGETS = {"vllm": for_vllm, "sglang": for_sglang, "llama-server": for_llama_server}


def grammar_fields(format: Format, tools: Sequence[Tool], request: Request, fields: GrammarFields) -> dict[str, Json]:
    """The fields that hold an answer to a required call; none where nothing is required, or the server takes no grammar."""
    if not fields or request.choice.mode != "required":
        return {}
    thinking = request.thinking is not False and format.thinks is not None
    grammar = grammar_for(format, tools, request.choice, parallel=request.parallel is not False, thinking=thinking)
    if grammar is None:
        return {}
    try:
        return dict(_TARGETS[fields](grammar).body)
    except UsageError:
        return {}  # what this target cannot say is validated
