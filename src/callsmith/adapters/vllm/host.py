"""The names of vLLM that the plug-in uses, wherever this release has them."""

from functools import partial

from callsmith.adapters.hosted import find

_PROTOCOL = (
    "vllm.entrypoints.generate.base.protocol",
    "vllm.entrypoints.openai.engine.protocol",
    "vllm.entrypoints.openai.protocol",
)
_find = partial(find, "vllm")
ToolParser = _find("ToolParser", "vllm.tool_parsers", "vllm.entrypoints.openai.tool_parsers")
ToolParserManager = _find("ToolParserManager", "vllm.tool_parsers", "vllm.entrypoints.openai.tool_parsers")
ReasoningParser = _find("ReasoningParser", "vllm.reasoning")
ReasoningParserManager = _find("ReasoningParserManager", "vllm.reasoning")
Parser = _find("Parser", "vllm.parser", "vllm.parser.abstract_parser")
DelegatingParser = _find("DelegatingParser", "vllm.parser.abstract_parser", "vllm.parser")
ParserManager = _find("ParserManager", "vllm.parser", "vllm.parser.parser_manager")
DeltaMessage = _find("DeltaMessage", *_PROTOCOL)
DeltaToolCall = _find("DeltaToolCall", *_PROTOCOL)
DeltaFunctionCall = _find("DeltaFunctionCall", *_PROTOCOL)
FunctionCall = _find("FunctionCall", *_PROTOCOL)
StructuredOutputsParams = _find("StructuredOutputsParams", "vllm.sampling_params")
ToolStrictLevel = _find("ToolStrictLevel", "vllm.tool_parsers.tool_strict_level", "vllm.tool_parsers")
