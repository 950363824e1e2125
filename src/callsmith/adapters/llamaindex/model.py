"""CallsmithLLM: any model of ours as a function calling LLM of LlamaIndex, in this process."""
# pyright: basic, reportMissingImports=false

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool

from callsmith.adapters.frameworks.asking import AskedModel
from callsmith.adapters.frameworks.blocking import iterate, wait_for
from callsmith.adapters.llamaindex.messages import ResponseBuilder, read_calls, write_message
from callsmith.models.opening import Options

_CONTEXT = 8192  # tokens, where a model does not say


class CallsmithLLM(FunctionCallingLLM):
    """A model: `model` is a spec, as behind `--model`, or a model that is open. `options` say how a spec is opened.

    `additional_kwargs`, and keyword arguments of a call, are any further fields of a chat completion: `top_p`, `seed`, `stop`, …
    """

    model: Any
    options: Options = Field(default=Options(), exclude=True)
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    strict: bool = Field(default=False, description="Hold calls to their schemas also where the model may choose to make them.")
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)

    _asked: AskedModel = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._asked = AskedModel(self.model, self.options)

    @classmethod
    def class_name(cls) -> str:
        return "CallsmithLLM"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            context_window=self._asked.info.context or _CONTEXT,
            num_output=self.max_tokens or -1,
            is_chat_model=True,
            is_function_calling_model=True,
            model_name=self._asked.name,
        )

    def close(self) -> None:
        """Close the model, if it was opened here."""
        wait_for(self._asked.close())

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The whole answer."""
        return wait_for(self._answer(messages, kwargs))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The whole answer."""
        return await self._answer(messages, kwargs)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The answer as it grows: what there is so far, and what came last."""

        def responses() -> ChatResponseGen:
            yield from iterate(self._responses(messages, kwargs))

        return responses()

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """The answer as it grows: what there is so far, and what came last."""
        return self._responses(messages, kwargs)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The whole answer to a text."""
        return _completion(wait_for(self._answer(_user(prompt), kwargs)))

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The whole answer to a text."""
        return _completion(await self._answer(_user(prompt), kwargs))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The answer to a text as it grows."""

        def responses() -> CompletionResponseGen:
            for response in iterate(self._responses(_user(prompt), kwargs)):
                yield _completion(response)

        return responses()

    @llm_completion_callback()
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """The answer to a text as it grows."""

        async def responses() -> AsyncGenerator[CompletionResponse, None]:
            async for response in self._responses(_user(prompt), kwargs):
                yield _completion(response)

        return responses()

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        asked = (
            [ChatMessage(role=MessageRole.USER, content=user_msg)]
            if isinstance(user_msg, str)
            else [user_msg]
            if user_msg
            else []
        )
        written = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        for tool in written if self.strict else ():
            tool["function"]["strict"] = True
        offered: dict[str, Any] = {"tools": written, "parallel_tool_calls": allow_parallel_tool_calls} if written else {}
        choice = kwargs.pop("tool_choice", None) or ("required" if tool_required else None)
        if choice is not None and written:
            offered["tool_choice"] = choice
        return {"messages": [*(chat_history or []), *asked], **offered, **kwargs}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls of an answer."""
        calls = read_calls(response.message)
        if not calls and error_on_no_tool_call:
            raise ValueError(f"Expected at least one tool call, got the answer: {response.message.content}")
        return calls

    async def _answer(self, messages: Sequence[ChatMessage], kwargs: dict[str, Any]) -> ChatResponse:
        builder = ResponseBuilder()
        async for event in self._asked.stream(self._body(messages, kwargs), seconds=self.timeout):
            builder.add(event)
        return builder.response()

    async def _responses(self, messages: Sequence[ChatMessage], kwargs: dict[str, Any]) -> AsyncGenerator[ChatResponse, None]:
        builder = ResponseBuilder()
        async for event in self._asked.stream(self._body(messages, kwargs), seconds=self.timeout):
            if (delta := builder.add(event)) is not None:
                yield builder.response(delta)

    def _body(self, messages: Sequence[ChatMessage], kwargs: dict[str, Any]) -> dict[str, Any]:
        own = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        set_here = {key: value for key, value in own.items() if value is not None}
        return {**set_here, **self.additional_kwargs, **kwargs, "messages": [write_message(one) for one in messages]}


def _user(prompt: str) -> list[ChatMessage]:
    return [ChatMessage(role=MessageRole.USER, content=prompt)]


def _completion(response: ChatResponse) -> CompletionResponse:
    return CompletionResponse(
        text=response.message.content or "",
        delta=response.delta,
        raw=response.raw,
        additional_kwargs=response.additional_kwargs,
    )
