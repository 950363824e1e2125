"""A plugin of the command-line tool `llm`: the models of the catalogue, as callsmith/NAME, with tools and schemas.

    pip install 'callsmith[llama]' llm
    llm -m callsmith/qwen2.5-coder-1.5b "Why is the sky blue?"

Sync and async models of `llm` ask the same models of ours, which are loaded once.
"""
# pyright: basic, reportMissingImports=false

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any, ClassVar

import llm
from llm.parts import ReasoningPart, StreamEvent, TextPart, ToolCallPart, ToolResultPart

from callsmith.adapters.frameworks.asking import AskedModel
from callsmith.adapters.frameworks.blocking import iterate
from callsmith.core.events import CallReady, Stopped, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.models.weights.catalogue import catalogue
from callsmith.wire.openai.chat import write_call
from callsmith.wire.tools import write_function


class SamplingOptions(llm.Options):
    """What `llm -o NAME VALUE` sets."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None


class _Described:
    """What both kinds of models have in common."""

    can_stream = True
    supports_schema = True
    supports_tools = True
    Options: ClassVar = SamplingOptions

    def __init__(self, name: str, model: AskedModel) -> None:
        self.model_id = name
        self._asked = model


class CallsmithModel(_Described, llm.Model):
    """A model of ours for `llm`."""

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[StreamEvent]:
        return iterate(_answer(self._asked, prompt, response))


class AsyncCallsmithModel(_Described, llm.AsyncModel):
    """A model of ours for `llm`, in async code."""

    async def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> AsyncGenerator[StreamEvent, None]:
        async for event in _answer(self._asked, prompt, response):
            yield event


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Register the models of the catalogue. None is loaded before it is asked."""
    for name in catalogue():
        model = AskedModel(name)
        register(CallsmithModel(f"callsmith/{name}", model), AsyncCallsmithModel(f"callsmith/{name}", model))


async def _answer(model: AskedModel, prompt: Any, response: Any) -> AsyncIterator[StreamEvent]:
    async for event in model.stream(_body(prompt)):
        match event:
            case Text(text) | Unreadable(text):
                yield StreamEvent("text", text)
            case Thought(text):
                yield StreamEvent("reasoning", text)
            case CallReady(_, call):
                response.add_tool_call(llm.ToolCall(call.name, dict(call.arguments), call.id or None))
            case Stopped(_, usage):
                response.set_usage(input=usage.prompt, output=usage.completion)
            case _:
                pass


def _body(prompt: Any) -> dict[str, Any]:
    """The prompt as the body of a chat completion."""
    body: dict[str, Any] = {"messages": [entry for message in prompt.messages for entry in _messages(message)]}
    body |= {name: value for name, value in prompt.options.model_dump().items() if value is not None}
    if prompt.tools:
        body["tools"] = [write_function(Tool(tool.name, tool.description or "", tool.input_schema)) for tool in prompt.tools]
    if prompt.schema:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": prompt.schema}}
    return body


def _messages(message: Any) -> Iterator[dict[str, Any]]:
    """A message of `llm`: several of ours where it holds the results of several calls."""
    of = {kind: [part for part in message.parts if isinstance(part, kind)] for kind in (TextPart, ToolCallPart, ToolResultPart)}
    for result in of[ToolResultPart]:
        yield {"role": "tool", "tool_call_id": result.tool_call_id, "content": result.output}
    fields: dict[str, Any] = {"role": message.role, "content": "".join(part.text for part in of[TextPart])}
    if message.role == "assistant":
        fields["reasoning_content"] = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
        calls = [Call(part.name, part.arguments, part.tool_call_id) for part in of[ToolCallPart]]
        fields["tool_calls"] = [write_call(call) for call in calls]
    if message.role != "tool":
        yield {name: value for name, value in fields.items() if value or name == "content"}
