"""CallsmithLLM: any model of ours as an LLM of CrewAI, in this process."""
# pyright: basic, reportMissingImports=false

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from crewai.events.types.llm_events import LLMCallType
from crewai.llms.base_llm import BaseLLM, llm_call_context
from pydantic import BaseModel, PrivateAttr

from callsmith.adapters.frameworks.asking import AskedModel
from callsmith.adapters.frameworks.blocking import iterate, wait_for
from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent, Text, Thought, Unreadable
from callsmith.core.ports import Model
from callsmith.models.opening import Options
from callsmith.runtime.loop import AnswerBuilder
from callsmith.wire.openai.chat import write_call
from callsmith.wire.openai.common import write_usage

_SETTINGS = ("temperature", "top_p", "max_tokens", "seed", "frequency_penalty", "presence_penalty")
_USABLE = 0.85  # of the context, as CrewAI counts it for every model


@dataclass(slots=True)
class _LLMCall:
    """One call of the LLM: what is asked, for whom, and the answer so far."""

    messages: list[Any]
    tools: list[Any] | None
    functions: dict[str, Any] | None
    origin: dict[str, Any]
    response_model: type[BaseModel] | None
    answer: AnswerBuilder = field(default_factory=AnswerBuilder)


class CallsmithLLM(BaseLLM):
    """An LLM: `model` is a spec, as behind `--model`, or a model that is open. `options` say how a spec is opened.

    Further keyword arguments are fields of a chat completion: `top_k`, `reasoning_effort`, …
    """

    llm_type: str = "callsmith"
    provider: str = "callsmith"
    timeout: float | None = None

    _asked: AskedModel = PrivateAttr()

    def __init__(self, model: str | Model, *, options: Options = Options(), **settings: Any) -> None:
        lazy_model = AskedModel(model, options)
        super().__init__(model=lazy_model.name, **settings)
        self._asked = lazy_model

    def supports_function_calling(self) -> bool:
        """Calls come as calls, and not as text."""
        return True

    def get_context_window_size(self) -> int:
        """How many tokens prompt and answer may have, less what CrewAI keeps in reserve."""
        return int((self._asked.info.context or super().get_context_window_size()) * _USABLE)

    def get_input_tokens_count(self, messages: Any, tools: Any = None, response_model: Any = None) -> int:
        """The tokens of the prompt, counted by the model; estimated where it cannot count."""
        try:
            return wait_for(
                self._asked.count(self._body(_LLMCall(self._format_messages(messages), tools, None, {}, response_model)))
            )
        except UsageError:
            return super().get_input_tokens_count(messages, tools, response_model)

    def close(self) -> None:
        """Close the model, if it was opened here."""
        wait_for(self._asked.close())

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The answer: a text, a value of `response_model`, the calls, or what the function of the first call returns."""
        with self._asking(*args, **kwargs) as llm_call:
            for event in iterate(self._events(llm_call)):
                self._take(llm_call, event)
            return self._finish(llm_call)

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """The same, for async crews."""
        with self._asking(*args, **kwargs) as llm_call:
            async for event in self._events(llm_call):
                self._take(llm_call, event)
            return self._finish(llm_call)

    @contextmanager
    def _asking(
        self,
        messages: Any,
        tools: list[Any] | None = None,
        callbacks: list[Any] | None = None,
        available_functions: dict[str, Any] | None = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: type[BaseModel] | None = None,
    ) -> Iterator[_LLMCall]:
        """What is asked, from its beginning to its end."""
        with llm_call_context():
            origin = {"from_task": from_task, "from_agent": from_agent}
            self._emit_call_started_event(messages=messages, tools=tools, available_functions=available_functions, **origin)
            formatted = self._format_messages(messages)
            self._invoke_before_llm_call_hooks(formatted, from_agent)
            try:
                yield _LLMCall(formatted, tools, available_functions, origin, response_model)
            except Exception as error:  # CrewAI's listeners get every error
                self._emit_call_failed_event(error=str(error), **origin)
                raise

    def _events(self, llm_call: _LLMCall) -> AsyncIterator[ModelEvent]:
        return self._asked.stream(self._body(llm_call), seconds=self.timeout)

    def _body(self, llm_call: _LLMCall) -> dict[str, Any]:
        """The body of the chat completion that is asked for."""
        own = {name: getattr(self, name) for name in _SETTINGS if getattr(self, name) is not None}
        body: dict[str, Any] = {**own, **self.additional_params, "messages": llm_call.messages}
        if self.stop_sequences:
            body["stop"] = self.stop_sequences
        if llm_call.tools:
            body["tools"] = llm_call.tools
        if llm_call.response_model is not None:
            schema = {"name": llm_call.response_model.__name__, "schema": llm_call.response_model.model_json_schema()}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _take(self, llm_call: _LLMCall, event: ModelEvent) -> None:
        llm_call.answer.add(event)
        if not self._effective_stream():
            return
        match event:
            case Text(text) | Unreadable(text):
                self._emit_stream_chunk_event(text, call_type=LLMCallType.LLM_CALL, **llm_call.origin)
            case Thought(text):
                self._emit_thinking_chunk_event(text, **llm_call.origin)
            case _:
                pass

    def _finish(self, llm_call: _LLMCall) -> Any:
        answer, usage = llm_call.answer, write_usage(llm_call.answer.usage)
        self._track_token_usage_internal(usage)
        calls = [write_call(call) for call in answer.calls]
        text = "".join(answer.text)
        if not calls:
            text = self._invoke_after_llm_call_hooks(llm_call.messages, text, llm_call.origin["from_agent"])
        self._emit_call_completed_event(
            response=calls or text,
            call_type=LLMCallType.TOOL_CALL if calls else LLMCallType.LLM_CALL,
            messages=llm_call.messages,
            usage=usage,
            finish_reason=answer.reason,
            **llm_call.origin,
        )
        if calls and llm_call.functions:
            first = answer.calls[0]
            return self._handle_tool_execution(first.name, dict(first.arguments), llm_call.functions, **llm_call.origin)
        if calls:
            return calls
        return text if llm_call.response_model is None else llm_call.response_model.model_validate_json(text)
