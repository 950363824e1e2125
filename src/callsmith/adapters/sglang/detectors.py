"""The detectors that SGLang reads answers with: one for reasoning, and behind it one for calls.

SGLang gives the text of an answer to the reasoning detector, and what that leaves over to the call detector. Here the first one
reads all of it, with the tools of the request, and hands its calls to the second in the text, between two characters that are
none (Unicode's noncharacters, which no tokenizer has). Without a reasoning parser the call detector reads by itself.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from callsmith.adapters.answer import AnswerDelta, CallDelta, HostedAnswer, read_whole
from callsmith.adapters.hosted import FORMAT_VARIABLE, HostedModel, ToolRequest, read_tool_fields, read_tool_request
from callsmith.adapters.sglang import host
from callsmith.core.errors import UsageError
from callsmith.formats.algebra import Calls
from callsmith.formats.reader.markers import compile_markers, openers_of
from callsmith.grammar.targets.upstream import for_sglang

_OPEN, _CLOSE, _READ = "\ufdd1", "\ufdd2", "\ufdd3"  # around the pieces of a call; before text that is read already
_HANDED: Final = re.compile(f"{_READ}|{_OPEN}([^{_CLOSE}]*){_CLOSE}")

_log = logging.getLogger("sglang.callsmith")


class CallsmithDetector(host.BaseFormatDetector):  # pyright: ignore[reportUntypedBaseClass]
    """Finds calls in an answer, or takes those that the reasoning detector has found."""

    def __init__(self, tokenizer: Any = None) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.model = _model(tokenizer)
        self._answer: HostedAnswer | None = None
        self._is_handed = False

    def has_tool_call(self, text: str) -> bool:
        """Whether there may be more in this text than text for the user: SGLang asks before it says which tools there are."""
        if _HANDED.search(text):
            return True
        markers = compile_markers(self.model.read_format)
        has_bare_calls = any(isinstance(part, Calls) and not openers_of(part) for part in markers.format.parts)
        return has_bare_calls or any(marker in text for marker in markers.text_stops.texts)

    def detect_and_parse(self, text: str, tools: Sequence[Any]) -> Any:
        """The calls and the text of a whole answer."""
        if _HANDED.search(text):
            return self._result(*_read_deltas([text]))
        read = read_whole(self._new_answer(tools), text)
        return self._result(read.content, read.calls)

    def parse_streaming_increment(self, new_text: str, tools: Sequence[Any]) -> Any:
        if not new_text:
            return self._result("", ())
        if self._answer is None and (self._is_handed or _HANDED.search(new_text)):
            self._is_handed = True
            return self._result(*_read_deltas([new_text]))
        if self._answer is None:
            self._answer = self._new_answer(tools)
        delta = self._answer.feed(new_text)
        return self._result(delta.content, delta.calls)

    def finish(self, tools: Sequence[Any]) -> Any:
        delta = self._answer.close() if self._answer else AnswerDelta()
        return self._result(delta.content, delta.calls)

    def supports_structural_tag(self) -> bool:
        """The tag is `get_structural_tag`'s; there are none made of a beginning and an end."""
        return False

    def parses_required_natively(self) -> bool:
        """Required calls come in the model's own format, too."""
        return True

    def structure_info(self) -> Any:
        """Not used: see `supports_structural_tag`."""
        raise UsageError("calls are constrained by a grammar, and not between a beginning and an end")

    def get_structural_tag(
        self,
        tools: Sequence[Any] | None = None,
        tool_choice: Any = "auto",
        thinking_mode: bool = False,
        parallel_tool_calls: bool = True,
    ) -> Any:
        """The grammar of the answer. `thinking_mode`: reasoning is part of it; else SGLang waits for the end of reasoning."""
        tool_request = read_tool_fields(tools or (), tool_choice, parallel_tool_calls)
        opened = self.model.opened_by()
        if not thinking_mode and self.model.is_thinking(opened):
            opened = ""
        grammar = self.model.grammar(tool_request, opened, thinking=thinking_mode)
        if grammar is None:
            return None
        fields = for_sglang(grammar)
        if fields.unenforced:
            unenforced = ", ".join(f"{path or '#'} {keyword}" for path, keyword in fields.unenforced)
            _log.warning("these keywords of tool schemas are not enforced by the grammar: %s", unenforced)
        if "structural_tag" in fields.body:
            return host.StructuralTag.model_validate(json.loads(fields.body["structural_tag"]))
        return host.StructuralTag.model_validate(
            {"type": "structural_tag", "format": {"type": "grammar", "grammar": fields.body["ebnf"]}}
        )

    def _new_answer(self, tools: Sequence[Any]) -> HostedAnswer:
        tool_request = read_tool_fields(tools, "auto", None)
        return HostedAnswer(self.model, tool_request, self.model.opened_by(), separates_reasoning=False)

    def _result(self, text: str, calls: Sequence[CallDelta]) -> Any:
        items = [host.ToolCallItem(tool_index=call.index, name=call.name, parameters=call.arguments) for call in calls]
        for call in calls:  # what SGLang looks at when the stream ends: nothing is left to be sent
            if call.name is not None:
                self.prev_tool_call_arr.append({"name": call.name, "arguments": ""})
                self.streamed_args_for_tool.append("")
            self.streamed_args_for_tool[call.index] += call.arguments
            self.prev_tool_call_arr[call.index]["arguments"] = self.streamed_args_for_tool[call.index]
        return host.StreamingParseResult(normal_text=text, calls=items)


class CallsmithReasoningDetector(host.BaseReasoningFormatDetector):  # pyright: ignore[reportUntypedBaseClass]
    """Reads an answer: its reasoning goes out, its text and its calls on to the call detector, where there is one."""

    def __init__(self, tokenizer: Any = None, tool_call_parser_active: bool = False, **options: Any) -> None:
        self.model = _model(tokenizer) if tokenizer is not None or os.environ.get(FORMAT_VARIABLE) else None
        markers = self.model.thought_markers if self.model and self.model.format.thinks else ("<think>", "</think>")
        super().__init__(*markers, **options)  # pyright: ignore[reportUnknownMemberType]
        self._hands_calls_on = tool_call_parser_active
        self._tool_request = ToolRequest()
        self._variables: dict[str, Any] = {}
        self._after_tool = False
        self._answer: HostedAnswer | None = None
        self._has_begun = False

    def use_request(self, request: Any) -> None:
        """Take over from the request what its answer is read with: tools, choice, and the variables of its template."""
        try:
            self._tool_request = read_tool_request(request)
        except UsageError as error:  # what SGLang answers with status 400
            raise ValueError(f"tools: {error}") from error
        self._variables = dict(getattr(request, "chat_template_kwargs", None) or {})
        messages = getattr(request, "messages", None)
        self._after_tool = bool(messages) and getattr(messages[-1], "role", "") == "tool"

    def get_think_end_token_ids(self, tokenizer: Any) -> list[int]:
        """The tokens that end reasoning, behind which SGLang applies grammars."""
        model = _model(tokenizer)
        close = model.thought_markers[1] if model.format.thinks else self.think_end_token
        return list(tokenizer.encode(close, add_special_tokens=False))

    def detect_and_parse(self, text: str) -> Any:
        """The reasoning of a whole answer, and what is left over."""
        read = read_whole(self._new_answer(), text)
        normal = read.content
        if self._hands_calls_on and (read.calls or _reads_otherwise(self._model, self._tool_request, normal)):
            normal = _READ + normal + "".join(_write_deltas(read.calls))
        return host.ReasoningResult(normal_text=normal, reasoning_text=read.reasoning)

    def parse_streaming_increment(self, new_text: str) -> Any:
        if self._answer is None:
            self._answer = self._new_answer()
        return self._result(self._answer.feed(new_text))

    def finish(self) -> Any:
        return self._result(self._answer.close() if self._answer else AnswerDelta())

    @property
    def _model(self) -> HostedModel:
        return self.model or _model(None)

    def _new_answer(self) -> HostedAnswer:
        opened = self._model.opened_by(self._variables, after_tool=self._after_tool)
        return HostedAnswer(self._model, self._tool_request, opened)

    def _result(self, delta: AnswerDelta) -> Any:
        normal = delta.content
        if self._hands_calls_on and (normal or delta.calls):
            begun, self._has_begun = self._has_begun, True
            normal = ("" if begun else _READ) + normal + "".join(_write_deltas(delta.calls))
        return host.ReasoningResult(normal_text=normal, reasoning_text=delta.reasoning)


def register(name: str) -> None:
    """Enter the detectors in SGLang's registries, and have the reasoning detector see the request."""
    host.FunctionCallParser.ToolCallParserEnum[name] = CallsmithDetector
    host.ReasoningParser.DetectorMap[name] = CallsmithReasoningDetector
    host.HookRegistry.register("sglang.srt.parser.reasoning_parser.ReasoningParser.__init__", _show_request, host.HookType.AFTER)


def _show_request(_: Any, parser: Any, *args: Any, **kwargs: Any) -> None:
    """After a reasoning parser was made: its fourth argument is the request."""
    request = kwargs.get("request", args[3] if len(args) > 3 else None)
    if request is not None and isinstance(parser.detector, CallsmithReasoningDetector):
        parser.detector.use_request(request)


def _model(tokenizer: Any) -> HostedModel:
    return HostedModel(None, format=os.environ.get(FORMAT_VARIABLE)) if tokenizer is None else HostedModel.of(tokenizer)


def _reads_otherwise(model: HostedModel, tool_request: ToolRequest, text: str) -> bool:
    """Whether text that was read already would be read as something else once more."""
    again = read_whole(HostedAnswer(model, tool_request, separates_reasoning=False), text)
    return bool(again.calls) or again.content != text


def _write_deltas(calls: Sequence[CallDelta]) -> Iterator[str]:
    for call in calls:
        yield _OPEN + json.dumps(asdict(call), ensure_ascii=True) + _CLOSE


def _read_deltas(pieces: Sequence[str]) -> tuple[str, list[CallDelta]]:
    """The text and the calls out of what `_write_deltas` has written."""
    text = "".join(pieces)
    return _HANDED.sub("", text), [CallDelta(**json.loads(fields)) for fields in _HANDED.findall(text) if fields]
