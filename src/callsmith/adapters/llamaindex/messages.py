"""LlamaIndex's messages as those of chat completions, and the events of an answer as its responses."""
# pyright: basic, reportMissingImports=false

import json
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms.llm import ToolSelection

from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, Thought, Unreadable
from callsmith.runtime.loop import AnswerBuilder
from callsmith.wire.openai.common import write_usage

_ROLES = {"chatbot": "assistant", "model": "assistant", "function": "tool"}  # what others call the same


def write_message(message: ChatMessage) -> dict[str, Any]:
    """A message as it stands in the body of a chat completion."""
    role = _ROLES.get(message.role.value, message.role.value)
    written: dict[str, Any] = {"role": role, "content": _write_content(message)}
    if thoughts := "".join(block.content or "" for block in message.blocks if isinstance(block, ThinkingBlock)):
        written["reasoning_content"] = thoughts
    if calls := [_write_call(block) for block in message.blocks if isinstance(block, ToolCallBlock)]:
        written["tool_calls"] = calls
    for key in ("tool_call_id", "name"):
        if message.additional_kwargs.get(key):
            written[key] = message.additional_kwargs[key]
    return written


def _write_content(message: ChatMessage) -> Any:
    shown: list[Any] = [block for block in message.blocks if not isinstance(block, ThinkingBlock | ToolCallBlock)]
    if all(isinstance(block, TextBlock) for block in shown):
        return "\n".join(block.text for block in shown)
    return [_write_part(block) for block in shown]


def _write_part(block: Any) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ImageBlock):
        url = str(block.url) if block.url and block.image is None else block.inline_url()
        return {"type": "image_url", "image_url": {"url": url, **({"detail": block.detail} if block.detail else {})}}
    return {"type": block.block_type}  # refused by that name


def _write_call(block: ToolCallBlock) -> dict[str, Any]:
    arguments = block.tool_kwargs if isinstance(block.tool_kwargs, str) else json.dumps(block.tool_kwargs, ensure_ascii=False)
    return {"id": block.tool_call_id, "type": "function", "function": {"name": block.tool_name, "arguments": arguments}}


def read_calls(message: ChatMessage) -> list[ToolSelection]:
    """The calls of an answer."""
    calls: list[Any] = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    return [ToolSelection(tool_id=one.tool_call_id or "", tool_name=one.tool_name, tool_kwargs=one.tool_kwargs) for one in calls]


class ResponseBuilder:
    """One answer, put together from its events. Calls are in it as soon as they are complete."""

    def __init__(self) -> None:
        self._answer = AnswerBuilder()
        self._ended = False

    def add(self, event: ModelEvent) -> str | None:
        """Take an event, and return the text that is new with it; None where nothing is."""
        self._answer.add(event)
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
        """The answer so far."""
        answer, blocks = self._answer, list[Any]()
        if answer.thought:
            blocks.append(ThinkingBlock(content="".join(answer.thought)))
        if answer.text or not answer.calls:
            blocks.append(TextBlock(text="".join(answer.text)))
        for call in answer.calls:
            blocks.append(ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=dict(call.arguments)))
        usage = write_usage(answer.usage) if self._ended else {}
        message = ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks)
        raw = {"usage": usage, "finish_reason": answer.reason} if self._ended else None
        return ChatResponse(message=message, delta=delta, raw=raw, additional_kwargs=_counts(usage))


def _counts(usage: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in usage.items() if isinstance(value, int)}
