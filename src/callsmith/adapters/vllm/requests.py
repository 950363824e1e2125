"""Requests to vLLM, and the grammar of ours that is put into them."""

import logging
from collections.abc import Mapping
from typing import Any

from callsmith.adapters.hosted import HostedModel
from callsmith.adapters.tool_request import ToolRequest
from callsmith.adapters.vllm import host
from callsmith.core.errors import UsageError
from callsmith.engines.lru import IdentityLRU
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.upstream import RequestFields, for_vllm

_log = logging.getLogger("vllm.callsmith")
_fields: IdentityLRU[RequestFields] = IdentityLRU(64)


def constrain(request: Any, tool_request: ToolRequest, model: HostedModel, variables: Mapping[str, Any]) -> Any:
    """The request with the grammar of its answer, where calls must be valid. Required calls replace an output format."""
    if model.needs_specials or tool_request.is_constrained:
        request.skip_special_tokens = False
        if hasattr(request, "spaces_between_special_tokens"):
            request.spaces_between_special_tokens = False
    if tool_request.choice.mode != "required" and request.extract_structured_outputs() is not None:
        return request
    opened = _find_opening(request, model, variables)
    begins_with_answer = hasattr(request, "_grammar_from_parser")
    if not begins_with_answer and model.is_thinking(opened):
        opened = ""  # the engine applies the grammar behind the reasoning
    try:
        grammar = model.grammar(tool_request, opened, thinking=variables.get("enable_thinking") is not False)
    except UsageError as error:
        raise ValueError(f"tools: {error}") from error
    if grammar is None:
        return request
    request.structured_outputs = host.StructuredOutputsParams(**_structured_outputs(grammar))
    for own in ("response_format", "text"):
        if getattr(request, own, None) is not None:
            setattr(request, own, None)
    if begins_with_answer:
        request._grammar_from_parser = True
    return request


def _structured_outputs(grammar: Grammar) -> Mapping[str, Any]:
    def make() -> RequestFields:
        fields = for_vllm(grammar)
        if fields.unenforced:
            left = ", ".join(f"{path or '#'} {keyword}" for path, keyword in fields.unenforced)
            _log.warning("these keywords of tool schemas are not enforced by the grammar: %s", left)
        return fields

    return _fields.get_or_make((grammar,), make).body["structured_outputs"]


def _find_opening(request: Any, model: HostedModel, variables: Mapping[str, Any]) -> str:
    if variables.get("continue_final_message") or variables.get("add_generation_prompt") is False:
        return ""
    names = {name: value for name, value in variables.items() if value is not None}
    messages: Any = getattr(request, "messages", None) or [{}]
    return model.opened_by(names, after_tool=messages[-1].get("role") == "tool")
