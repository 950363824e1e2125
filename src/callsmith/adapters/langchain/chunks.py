"""The events of an answer as LangChain message chunks."""
# pyright: basic, reportMissingImports=false

from typing import Any, assert_never

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import invalid_tool_call, tool_call_chunk
from langchain_core.outputs import ChatResult

from callsmith.adapters.frameworks.toolsets import new_call_id
from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Started,
    Stopped,
    StopReason,
    Text,
    Thought,
    Unreadable,
)
from callsmith.core.values import Usage
from callsmith.wire.calls import CallWriter
from callsmith.wire.logprobs import write_logprobs

_REASONS: dict[StopReason, str] = {"stop": "stop", "length": "length", "calls": "tool_calls"}
# Written behind arguments that broke off: LangChain completes partial JSON, and would run the call. Inside a string or not, this
# closes a bracket that is not open, which nothing completes.
_BROKEN = '"]"]'


class ChunkBuilder(CallWriter):
    """One answer: its chunks as they come, and what is put right when all are added up."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._numbers: dict[int, int] = {}  # of the calls in LangChain's message, by the model's: those may have gaps
        self._ids: dict[int, str] = {}
        self._reasons: dict[str, Unreadable] = {}  # why a call could not be read, by its id

    def add(self, event: ModelEvent) -> list[AIMessageChunk]:
        """The chunks that this event makes."""
        match event:
            case Text(text, logprobs):
                metadata = {"logprobs": {"content": write_logprobs(logprobs)}} if logprobs else {}
                return [AIMessageChunk(content=text, response_metadata=metadata)] if text else []
            case Thought(text):
                return [AIMessageChunk(content="", additional_kwargs={"reasoning_content": text})] if text else []
            case Unreadable(index=index) if index in self._ids:
                self._reasons[self._ids[index]] = event
            case CallStarted() | CallArguments() | CallReady() | Unreadable() | Started():
                pass
            case Stopped():
                return [self._last(event)]
            case _:
                assert_never(event)
        if isinstance(event, Started):
            return []
        return [AIMessageChunk(**made) for made in self.write_call(event)]

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

    def _last(self, event: Stopped) -> AIMessageChunk:
        metadata = {
            "finish_reason": _REASONS.get(event.reason, event.reason),
            "model_name": self.name,
            "model_provider": "callsmith",
        }
        return AIMessageChunk(
            content="", usage_metadata=_write_usage(event.usage), response_metadata=metadata, chunk_position="last"
        )

    def _start_call(self, index: int, name: str, id: str) -> list[dict[str, Any]]:
        number = self._numbers[index] = len(self._numbers)
        self._ids[index] = self._unique_id(id, new_call_id())
        return self._piece(name=name, args="", id=self._ids[index], index=number)

    def _write_arguments(self, index: int, text: str) -> list[dict[str, Any]]:
        return self._piece(args=text, index=self._numbers[index])

    def _end_call(self, index: int, unreadable: str | None) -> list[dict[str, Any]]:
        return [] if unreadable is None else self._piece(args=_BROKEN, index=self._numbers[index])

    def _write_text(self, text: str) -> list[dict[str, Any]]:
        return [{"content": text}]

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
