"""CallsmithLLM: any model of ours as a function calling LLM of LlamaIndex, in this process."""
# pyright: basic, reportMissingImports=false

import json
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
    ImageBlock,
    LLMMetadata,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.bridge.pydantic import BaseModel, Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool

from callsmith.adapters.frameworks.asking import AskedModel, write_choice
from callsmith.adapters.frameworks.blocking import iterate, wait_for
from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, Thought, Unreadable
from callsmith.models.opening import Options
from callsmith.runtime.loop import AnswerBuilder
from callsmith.wire.openai.chat import write_call
from callsmith.wire.openai.common import write_usage

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

    _first_asked: AskedModel = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._first_asked = AskedModel(self.model, self.options)

    @property
    def _asked(self) -> AskedModel:
        return self._first_asked.of(self.model, self.options)  # which may have been changed

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
        return wait_for(self._answer(messages, kwargs))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return await self._answer(messages, kwargs)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The answer as it grows: what there is so far, and what came last."""
        return iterate(self._responses(messages, kwargs))

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """The answer as it grows: what there is so far, and what came last."""
        return self._responses(messages, kwargs)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return _completion(wait_for(self._answer(_user(prompt), kwargs)))

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return _completion(await self._answer(_user(prompt), kwargs))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        return (_completion(response) for response in iterate(self._responses(_user(prompt), kwargs)))

    @llm_completion_callback()
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        return (_completion(response) async for response in self._responses(_user(prompt), kwargs))

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
        question = _user(user_msg) if isinstance(user_msg, str) else [user_msg] if user_msg else []
        definitions = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        for tool in definitions if self.strict else ():
            tool["function"]["strict"] = True
        offered: dict[str, Any] = {"tools": definitions, "parallel_tool_calls": allow_parallel_tool_calls} if definitions else {}
        choice = kwargs.pop("tool_choice", None) or ("required" if tool_required else None)
        if choice is not None and definitions:
            offered["tool_choice"] = write_choice(choice, [tool["function"]["name"] for tool in definitions])
        return {"messages": [*(chat_history or []), *question], **offered, **kwargs}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
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
        return {**set_here, **self.additional_kwargs, **kwargs, "messages": [write_message(message) for message in messages]}


def _user(prompt: str) -> list[ChatMessage]:
    return [ChatMessage(role=MessageRole.USER, content=prompt)]


def _completion(response: ChatResponse) -> CompletionResponse:
    return CompletionResponse(
        text=response.message.content or "",
        delta=response.delta,
        raw=response.raw,
        additional_kwargs=response.additional_kwargs,
    )


_ROLES = {"chatbot": "assistant", "model": "assistant", "function": "tool"}  # what others call the same


def write_message(message: ChatMessage) -> dict[str, Any]:
    """A message as it stands in the body of a chat completion."""
    role = _ROLES.get(message.role.value, message.role.value)
    fields: dict[str, Any] = {"role": role, "content": _write_content(message)}
    if thoughts := "".join(block.content or "" for block in message.blocks if isinstance(block, ThinkingBlock)):
        fields["reasoning_content"] = thoughts
    calls = [_write_call_block(block) for block in message.blocks if isinstance(block, ToolCallBlock)]
    if calls or (calls := [_plain(call) for call in message.additional_kwargs.get("tool_calls") or ()]):  # as others keep them
        fields["tool_calls"] = calls
    for key in ("tool_call_id", "name"):
        if message.additional_kwargs.get(key):
            fields[key] = message.additional_kwargs[key]
    return fields


def _write_content(message: ChatMessage) -> Any:
    blocks: list[Any] = [block for block in message.blocks if not isinstance(block, ThinkingBlock | ToolCallBlock)]
    if all(isinstance(block, TextBlock) for block in blocks):
        return "\n".join(block.text for block in blocks)
    return [_write_part(block) for block in blocks]


def _write_part(block: Any) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ImageBlock):
        url = str(block.url) if block.url and block.image is None else block.inline_url()
        return {"type": "image_url", "image_url": {"url": url, **({"detail": block.detail} if block.detail else {})}}
    return {"type": block.block_type}  # refused by that name


def _write_call_block(block: ToolCallBlock) -> dict[str, Any]:
    arguments = block.tool_kwargs if isinstance(block.tool_kwargs, str) else json.dumps(block.tool_kwargs, ensure_ascii=False)
    return {"id": block.tool_call_id, "type": "function", "function": {"name": block.tool_name, "arguments": arguments}}


def _plain(call: Any) -> Any:
    """A call as a dict; OpenAI's client has a class of its own."""
    return call.model_dump(exclude_none=True) if isinstance(call, BaseModel) else call


def read_calls(message: ChatMessage) -> list[ToolSelection]:
    """The calls of an answer."""
    calls: list[Any] = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    return [
        ToolSelection(tool_id=call.tool_call_id or "", tool_name=call.tool_name, tool_kwargs=call.tool_kwargs) for call in calls
    ]


class ResponseBuilder:
    """One answer, put together from its events. Calls are in it as soon as they are complete."""

    def __init__(self) -> None:
        self._answer = AnswerBuilder()
        self._thought = ""  # what came last, where that is reasoning
        self._ended = False

    def add(self, event: ModelEvent) -> str | None:
        """Take an event, and return the text that is new with it; None where nothing is."""
        self._answer.add(event)
        self._thought = event.text if isinstance(event, Thought) else ""
        match event:
            case Text(text) | Unreadable(text):
                return text or None
            case Thought() | CallReady():
                return ""
            case Stopped():
                self._ended = True
                return ""
            case _:
                return None

    def response(self, delta: str | None = None) -> ChatResponse:
        answer, blocks = self._answer, list[Any]()
        if answer.thought:
            blocks.append(ThinkingBlock(content="".join(answer.thought)))
        if answer.text or not answer.calls:
            blocks.append(TextBlock(text="".join(answer.text)))
        for call in answer.calls:
            blocks.append(ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=dict(call.arguments)))
        usage = write_usage(answer.usage) if self._ended else {}
        # Where LlamaIndex's structured predictions look for calls.
        extra = {"tool_calls": [write_call(call) for call in answer.calls]} if answer.calls else {}
        message = ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=extra)
        raw = {"usage": usage, "finish_reason": answer.reason} if self._ended else None
        counts = {key: value for key, value in usage.items() if isinstance(value, int)}
        thinking = {"thinking_delta": self._thought} if delta is not None and self._thought else {}
        return ChatResponse(message=message, delta=delta, raw=raw, additional_kwargs={**counts, **thinking})
