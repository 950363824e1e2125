"""The classes that vLLM composes its parser of: `HostParser` reads answers, the other two are what its registries want.

vLLM makes one parser of a tool parser and a reasoning parser that know nothing of each other, and each gets a part of the text.
There is no registry for a parser that does both. So the function that composes them is wrapped: where ours are asked for, the
result is a `HostParser`, in which one `Reader` reads all of the answer.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from callsmith.adapters.answer import AnswerDelta, HostedAnswer, read_whole
from callsmith.adapters.hosted import TAIL_TOKENS, HostedModel, ToolRequest, read_tool_request
from callsmith.adapters.vllm import host
from callsmith.core.errors import UsageError
from callsmith.engines.lru import IdentityLRU
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.upstream import GrammarFields, for_vllm

_log = logging.getLogger("vllm.callsmith")


class CallsmithToolParser(host.ToolParser):  # pyright: ignore[reportUntypedBaseClass]
    """The name of callsmith among vLLM's tool parsers. `HostParser` does its work."""

    supports_required_and_named = False  # such calls are in the model's own format, too

    def __init__(self, tokenizer: Any, tools: Any = None, **_: Any) -> None:
        super().__init__(tokenizer, tools)  # pyright: ignore[reportUnknownMemberType]
        self.model = HostedModel.of(tokenizer)


class CallsmithReasoningParser(host.ReasoningParser):  # pyright: ignore[reportUntypedBaseClass]
    """Says where reasoning ends, for vLLM's engine: it applies the grammars that requests bring behind it.

    Grammars of ours contain the reasoning, and begin with the answer.
    """

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)  # pyright: ignore[reportUnknownMemberType]
        self._tokenizer = tokenizer
        self.model = HostedModel.of(tokenizer)
        self._open, self._close = self.model.thought_markers

    @property
    def reasoning_start_str(self) -> str | None:
        return self._open or None

    @property
    def reasoning_end_str(self) -> str | None:
        return self._close or None

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Whether no reasoning is open at the end of these tokens."""
        return not self.model.is_thinking(self.model.opened_in(decode_tail(self._tokenizer, input_ids)))

    def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
        """Whether reasoning has been closed within the last tokens."""
        recent = len(list(delta_ids)) + len(self._close)
        return not self._close or self._close in decode_tail(self._tokenizer, input_ids, recent)

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        """The tokens behind the reasoning."""
        for start in range(len(input_ids)):
            if self._close and self._close not in decode_tail(self._tokenizer, input_ids[start:], len(input_ids)):
                return input_ids[start:] if start else []
        return []


class HostParser(host.Parser):  # pyright: ignore[reportUntypedBaseClass]
    """Reads the answers of one request: reasoning, text and calls by one reader, whole or streamed."""

    always_adjust_request = True

    def __init__(
        self, tokenizer: Any, tools: Any = None, *args: Any, chat_template_kwargs: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        kwargs["chat_template_kwargs"] = chat_template_kwargs
        super().__init__(tokenizer, tools, *args, **kwargs)  # pyright: ignore[reportUnknownMemberType]
        self._tokenizer = tokenizer
        self._variables = chat_template_kwargs or {}
        self._prompt_ids: Sequence[int] | None = None
        self._answer: HostedAnswer | None = None
        self.model = HostedModel.of(tokenizer)

    def adjust_request(self, request: Any) -> Any:
        """Constrain the answer by a grammar where calls must be valid, and keep the tokens that calls are marked with."""
        return constrain(request, self._tool_request(request), self.model, self._variables)

    def set_prompt_token_ids(self, prompt_token_ids: Sequence[int]) -> None:
        """The prompt of the answer that is read next."""
        self._prompt_ids = prompt_token_ids

    def is_reasoning_end(self, input_ids: list[int]) -> bool:
        """Whether the answer to this prompt begins behind the reasoning: grammars of the request's own begin there."""
        opened = self.model.opened_in(decode_tail(self._tokenizer, input_ids))
        return not self.model.thinks or (not self.model.is_thinking(opened) and self.model.thought_markers[1] in opened)

    def parse(
        self, model_output: str, request: Any, enable_auto_tools: bool = False, model_output_token_ids: Sequence[int] = ()
    ) -> tuple[str | None, str | None, list[Any] | None]:
        """The reasoning, the text and the calls of a whole answer."""
        self._answer = self._new_answer(request)
        read = read_whole(self._answer, model_output)
        calls = [host.FunctionCall(id=call.id, name=call.name, arguments=call.arguments) for call in read.calls]
        return read.reasoning or None, read.content or None, calls or None

    def parse_delta(
        self,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *,
        finished: bool,
    ) -> Any:
        """What the next piece of a streamed answer adds; None if that is nothing yet."""
        if self._answer is None:
            self._prompt_ids = self._prompt_ids if prompt_token_ids is None else prompt_token_ids
            self._answer = self._new_answer(request)
        deltas = [self._answer.feed(delta_text)]
        if finished:
            deltas.append(self._answer.close())
        return _message(deltas, shows_reasoning=request.include_reasoning)

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """How many tokens the reasoning of the answer has that was read."""
        reasoning = self._answer.reasoning if self._answer else ""
        return min(len(self._tokenizer.encode(reasoning, add_special_tokens=False)), len(token_ids)) if reasoning else 0

    def _tool_request(self, request: Any) -> ToolRequest:
        if self.tool_parser_cls is None:
            return ToolRequest()
        level = self.tool_strict_level
        try:
            return read_tool_request(request, all_strict=level >= host.ToolStrictLevel.FUNCTION)
        except UsageError as error:  # what vLLM answers with status 400
            raise ValueError(f"tools: {error}") from error

    def _new_answer(self, request: Any) -> HostedAnswer:
        if self._prompt_ids is None:
            opened = self.model.opened_by(self._variables)
        else:
            opened = self.model.opened_in(decode_tail(self._tokenizer, self._prompt_ids))
        return HostedAnswer(
            self.model, self._tool_request(request), opened, separates_reasoning=self.reasoning_parser_cls is not None
        )


def register(name: str) -> None:
    """Enter the parsers in vLLM's registries, and have it compose a `HostParser` of them. Doing it again changes nothing."""
    host.ToolParserManager.register_module(name, module=CallsmithToolParser)
    host.ReasoningParserManager.register_module(name, module=CallsmithReasoningParser)
    compose = host.ParserManager.get_parser
    if not isinstance(compose, _Composing):
        host.ParserManager.get_parser = _Composing(compose)


class _Composing:
    """vLLM's function that composes parsers, with one reader where ours are asked for."""

    def __init__(self, compose: Callable[..., Any]) -> None:
        self._compose = compose

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _with_one_reader(self._compose(*args, **kwargs))


def _with_one_reader(composed: Any) -> Any:
    """A `HostParser` in place of what vLLM has composed, where that has our tool parser or our reasoning parser in it."""
    tools, reasoning = getattr(composed, "tool_parser_cls", None), getattr(composed, "reasoning_parser_cls", None)
    if tools is not CallsmithToolParser and reasoning is not CallsmithReasoningParser:
        return composed
    if composed.parse_delta is not host.DelegatingParser.parse_delta:
        _log.warning("this model has a parser of its own in vLLM (%s), which is used instead of callsmith's", composed.__name__)
        return composed
    if tools not in (CallsmithToolParser, None):
        raise TypeError(
            f"--reasoning-parser callsmith reads tool calls too and cannot be combined with the tool parser {tools.__name__}: "
            "give --tool-call-parser callsmith as well, or another reasoning parser"
        )
    level = composed.tool_strict_level
    members = {"tool_parser_cls": tools, "reasoning_parser_cls": reasoning, "tool_strict_level": level}
    return type("CallsmithParser", (HostParser,), members)


def decode_tail(tokenizer: Any, ids: Sequence[int], most: int = TAIL_TOKENS) -> str:
    """The text of the last tokens, with special ones."""
    return cast(str, tokenizer.decode(list(ids[-most:]), skip_special_tokens=False)) if len(ids) else ""


def _message(deltas: Sequence[AnswerDelta], *, shows_reasoning: bool) -> Any:
    fields: dict[str, Any] = {}
    if content := "".join(delta.content for delta in deltas):
        fields["content"] = content
    if shows_reasoning and (reasoning := "".join(delta.reasoning for delta in deltas)):
        fields["reasoning"] = reasoning
    if calls := [_call(call) for delta in deltas for call in delta.calls]:
        fields["tool_calls"] = calls
    return host.DeltaMessage(**fields) if fields else None


def _call(piece: Any) -> Any:
    if piece.name is None:
        return host.DeltaToolCall(index=piece.index, function=host.DeltaFunctionCall(arguments=piece.arguments))
    function = host.DeltaFunctionCall(name=piece.name, arguments=piece.arguments)
    return host.DeltaToolCall(index=piece.index, id=piece.id, type="function", function=function)


_log = logging.getLogger("vllm.callsmith")
_fields: IdentityLRU[GrammarFields] = IdentityLRU(64)


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
    def make() -> GrammarFields:
        fields = for_vllm(grammar)
        if fields.unenforced:
            unenforced = ", ".join(f"{path or '#'} {keyword}" for path, keyword in fields.unenforced)
            _log.warning("these keywords of tool schemas are not enforced by the grammar: %s", unenforced)
        return fields

    return _fields.get_or_make((grammar,), make).body["structured_outputs"]


def _find_opening(request: Any, model: HostedModel, variables: Mapping[str, Any]) -> str:
    if variables.get("continue_final_message") or variables.get("add_generation_prompt") is False:
        return ""
    names = {name: value for name, value in variables.items() if value is not None}
    messages: Any = getattr(request, "messages", None) or [{}]
    return model.opened_by(names, after_tool=messages[-1].get("role") == "tool")
