"""The names of SGLang that the plug-in uses, wherever this release has them."""

from functools import partial

from callsmith.adapters.hosted import find

_find = partial(find, "sglang")

BaseFormatDetector = _find("BaseFormatDetector", "sglang.srt.function_call.base_format_detector")
FunctionCallParser = _find("FunctionCallParser", "sglang.srt.function_call.function_call_parser")
ToolCallItem = _find("ToolCallItem", "sglang.srt.function_call.core_types")
StreamingParseResult = _find("StreamingParseResult", "sglang.srt.function_call.core_types")
BaseReasoningFormatDetector = _find("BaseReasoningFormatDetector", "sglang.srt.parser.reasoning_parser")
ReasoningParser = _find("ReasoningParser", "sglang.srt.parser.reasoning_parser")
ReasoningResult = _find("StreamingParseResult", "sglang.srt.parser.reasoning_parser")
HookRegistry = _find("HookRegistry", "sglang.srt.plugins.hook_registry")
HookType = _find("HookType", "sglang.srt.plugins.hook_registry")
StructuralTag = _find("StructuralTag", "xgrammar")
