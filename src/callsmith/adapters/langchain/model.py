"""ChatCallsmith: any model of ours as a LangChain chat model, in this process; the events of an answer are message chunks."""
# pyright: basic, reportMissingImports=false

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolMessage,
    convert_to_openai_messages,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call_chunk
from langchain_core.messages.utils import convert_to_messages
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, ConfigDict, Field

from callsmith.adapters.frameworks.asking import AskedModel, write_choice
from callsmith.adapters.frameworks.blocking import iterate, wait_for
from callsmith.adapters.frameworks.toolsets import new_call_id
from callsmith.adapters.langchain.parsing import JsonAnswerParser, PydanticAnswerParser
from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent, Stopped, StopReason, Unreadable
from callsmith.core.values import TokenLogprob, Usage
from callsmith.models.opening import Options
from callsmith.wire.answers import AnswerWriter
from callsmith.wire.calls import CallWriter
from callsmith.wire.sampling import write_logprobs

_METHODS = ("json_schema", "function_calling", "json_mode")
_REASONING = ("reasoning", "thinking")  # blocks of content, in LangChain's words and in Anthropic's
_CALLS = ("tool_call", "tool_call_chunk", "invalid_tool_call")
_REASONS: dict[StopReason, str] = {"filtered": "content_filter", "calls": "tool_calls"}
# Written behind arguments that broke off: LangChain completes partial JSON, and would run the call. Inside a string or not, this
# closes a bracket that is not open, which nothing completes.
_BROKEN = '"]"]'


class ChunkBuilder(CallWriter, AnswerWriter):
    """One answer: its chunks as they come, and what is put right when all are added up."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._numbers: dict[int, int] = {}  # of the calls in LangChain's message, by the model's: those may have gaps
        self._ids: dict[int, str] = {}
        self._reasons: dict[str, Unreadable] = {}  # why a call could not be read, by its id

    def add(self, event: ModelEvent) -> list[AIMessageChunk]:
        if isinstance(event, Unreadable) and event.index in self._ids:
            self._reasons[self._ids[event.index]] = event
        return [AIMessageChunk(**fields) for fields in self.write(event)]

    def finish(self, result: ChatResult) -> ChatResult:
        """The whole answer, with the text and the reason of each call that could not be read."""
        message = result.generations[0].message
        if self._reasons and isinstance(message, AIMessage):
            message.invalid_tool_calls = [self._explain(dict(call)) for call in message.invalid_tool_calls]
        return result

    def _explain(self, call: dict[str, Any]) -> Any:
        why = self._reasons.get(call.get("id") or "")
        if why is None:
            return call
        return invalid_tool_call(name=call.get("name"), args=why.text, id=call.get("id"), error=why.reason)

    def _start_call(self, index: int, name: str, id: str) -> list[dict[str, Any]]:
        number = self._numbers[index] = len(self._numbers)
        self._ids[index] = self._unique_id(id, new_call_id())
        return self._piece(name=name, args="", id=self._ids[index], index=number)

    def _write_arguments(self, index: int, text: str) -> list[dict[str, Any]]:
        return self._piece(args=text, index=self._numbers[index])

    def _end_call(self, index: int, unreadable: str | None) -> list[dict[str, Any]]:
        return [] if unreadable is None else self._piece(args=_BROKEN, index=self._numbers[index])

    def _write_text(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> list[dict[str, Any]]:
        metadata = {"response_metadata": {"logprobs": {"content": write_logprobs(logprobs)}}} if logprobs else {}
        return [{"content": text, **metadata}] if text else []

    def _write_thought(self, text: str) -> list[dict[str, Any]]:
        return [{"content": "", "additional_kwargs": {"reasoning_content": text}}]

    def _finish(self, event: Stopped) -> list[dict[str, Any]]:
        reason = _REASONS.get(event.reason, event.reason)
        metadata = {"finish_reason": reason, "model_name": self.name, "model_provider": "callsmith"}
        usage = _write_usage(event.usage)
        return [{"content": "", "usage_metadata": usage, "response_metadata": metadata, "chunk_position": "last"}]

    def _piece(self, **piece: Any) -> list[dict[str, Any]]:
        return [{"content": "", "tool_call_chunks": [tool_call_chunk(**piece)]}]


def _write_usage(usage: Usage) -> Any:
    return {
        "input_tokens": usage.prompt,
        "output_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "input_token_details": {"cache_read": usage.cached},
        "output_token_details": {"reasoning": usage.reasoning},
    }


class ChatCallsmith(BaseChatModel):
    """A chat model: `model` is a spec, as behind `--model`, or a model that is open. `options` say how a spec is opened.

    `model_kwargs`, and keyword arguments of a call, are any further fields of a chat completion: `top_k`, `logprobs`,
    `reasoning_effort`, …
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: Any
    options: Options = Field(default=Options(), exclude=True)
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: list[str] | None = None
    timeout: float | None = None
    streaming: bool = False
    model_kwargs: dict[str, Any] = Field(default_factory=dict)

    # No setting: a field, so that LangChain hands it on where it makes a model anew for each call, as `configurable_fields` does.
    asked: AskedModel | None = Field(default=None, exclude=True, repr=False)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self.asked = self.asked or AskedModel(self.model, self.options)

    @property
    def _asked(self) -> AskedModel:
        assert self.asked is not None
        return self.asked.of(self.model, self.options)  # which may have been changed

    @property
    def model_name(self) -> str:
        """What the model is called; LangChain looks here first, and takes `model` for a name where there is nothing."""
        return self._asked.name

    @property
    def _llm_type(self) -> str:
        return "callsmith"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self._asked.name, "options": repr(self.options), **self._settings()}

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        return super()._get_invocation_params(stop=stop or self.stop, **kwargs)  # caches tell answers apart by them

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        params = {"model": self._asked.name, **kwargs}
        return {**super()._get_ls_params(stop=stop or self.stop, **params), "ls_provider": "callsmith"}

    def close(self) -> None:
        """Close the model, if it was opened here."""
        wait_for(self._asked.close())

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """The tokens of the prompt that these messages become."""
        return wait_for(
            self._asked.count(
                self._body(messages, None, {"tools": [convert_to_openai_tool(listed_tool) for listed_tool in tools or ()]})
            )
        )

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools. `tool_choice`: "auto", "none", "any" or "required" (True), or the name of a tool.

        Where a call is required, the answer is one that fits its schema. `strict` holds calls to their schemas under "auto" too.
        """
        definitions = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        if tool_choice is not None:
            kwargs["tool_choice"] = write_choice(tool_choice, [tool["function"]["name"] for tool in definitions])
        return self.bind(tools=definitions, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        method: Literal["json_schema", "function_calling", "json_mode"] = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """The model, answering with values of a schema: a pydantic model, a TypedDict or a JSON Schema.

        By "json_schema" the answer is constrained to the schema, by "function_calling" a call is required that fits it, and by
        "json_mode" the answer is any JSON object, of which the prompt must say what it is to have.
        """
        schema = _unwrap(schema)
        if method not in _METHODS:
            raise UsageError(f"{method!r} is no method; expected one of {', '.join(_METHODS)}", field="method")
        if method == "function_calling":
            return super().with_structured_output(schema, include_raw=include_raw, strict=strict, **kwargs)
        if kwargs:
            raise UsageError(f"with_structured_output knows no {next(iter(kwargs))!r}", field=next(iter(kwargs)))
        wanted: dict[str, Any] = {"type": "json_object"}
        if method == "json_schema":
            answer_schema = {"name": "answer", "schema": _json_schema(schema), "strict": bool(strict)}
            wanted = {"type": "json_schema", "json_schema": answer_schema}
        traced = {"kwargs": {"method": method}, "schema": schema}
        model = self.bind(response_format=wanted, ls_structured_output_format=traced)
        parser: Any = JsonAnswerParser()
        if isinstance(schema, type) and is_basemodel_subclass(schema):
            parser = PydanticAnswerParser(pydantic_object=schema)
        if not include_raw:
            return model | parser
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
        unparsed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=model) | parsed.with_fallbacks([unparsed], exception_key="parsing_error")

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        builder = ChunkBuilder(self._asked.name)
        return builder.finish(generate_from_stream(iterate(self._chunks(builder, messages, stop, kwargs))))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        builder = ChunkBuilder(self._asked.name)
        return builder.finish(await agenerate_from_stream(self._chunks(builder, messages, stop, kwargs)))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in iterate(self._chunks(ChunkBuilder(self._asked.name), messages, stop, kwargs)):
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in self._chunks(ChunkBuilder(self._asked.name), messages, stop, kwargs):
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _chunks(
        self, builder: ChunkBuilder, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> AsyncIterator[ChatGenerationChunk]:
        builder.name = kwargs.get("model") or builder.name
        async for event in self._asked.stream(self._body(messages, stop, kwargs), seconds=kwargs.get("timeout", self.timeout)):
            for message in builder.add(event):
                yield ChatGenerationChunk(message=message)

    def _body(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The body of the chat completion that is asked for."""
        body = {**self._settings(), **kwargs, "messages": _write_messages(messages)}
        if stop or self.stop:
            body["stop"] = stop or self.stop
        return body

    def _settings(self) -> dict[str, Any]:
        own = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_tokens, "seed": self.seed}
        return {**{key: value for key, value in own.items() if value is not None}, **self.model_kwargs}


def _write_messages(messages: list[BaseMessage]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    for message in convert_to_messages(messages):
        if isinstance(message, AIMessage):
            thoughts, message = _split_reasoning(message)
            entries += convert_to_openai_messages([message])
            if invalid := [call for call in message.invalid_tool_calls if call["name"] and call["id"] in answered]:
                entries[-1]["tool_calls"] = [*entries[-1].get("tool_calls", ()), *map(_write_invalid, invalid)]
            if thoughts:
                entries[-1]["reasoning_content"] = thoughts
        else:
            entries += convert_to_openai_messages([message])
    return entries


def _write_invalid(call: InvalidToolCall) -> dict[str, Any]:
    """A call that could not be read, for the message that says so. Arguments that are no JSON are taken by few."""
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": "{}"}}


def _split_reasoning(message: AIMessage) -> tuple[str, AIMessage]:
    """The reasoning in a message, wherever it stands, and the message without it; calls are in `tool_calls` already."""
    thoughts: str = message.additional_kwargs.get("reasoning_content") or ""
    if isinstance(message.content, str):
        return thoughts, message
    kept: list[Any] = []
    block: Any
    for block in message.content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in _REASONING:
            thoughts = thoughts or block.get(kind) or ""
        elif kind not in _CALLS:
            kept.append(block)
    return thoughts, message.model_copy(update={"content": kept})


def _unwrap(schema: dict[str, Any] | type) -> dict[str, Any] | type:
    """The JSON Schema in what OpenAI's API has as a response format, or in the part of it that names the schema."""
    named: Any = schema.get("json_schema", schema) if isinstance(schema, dict) else None
    is_named = isinstance(named, dict) and "name" in named and isinstance(named.get("schema"), dict)
    return {"title": named["name"], **named["schema"]} if is_named else schema


def _json_schema(schema: dict[str, Any] | type) -> dict[str, Any]:
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return schema.model_json_schema()
    return convert_to_json_schema(schema)
