"""A server that gives scripted answers on a real socket, as others' servers send them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, Thought
from callsmith.core.values import Call, Message, Request, Tool
from callsmith.engines.upstream import Upstream
from callsmith.models.remote.model import RemoteModel, RemoteTraits
from callsmith.models.remote.providers import Provider, providers
from callsmith.wire.upstream.dialects import dialect_named
from callsmith.wire.upstream.quirks import Quirks
from tests.scripted_server import QUICK, Scripted, http

WEATHER = Tool(
    "weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
)
ADD = Tool(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


def refusal(status: str, message: str, **headers: str) -> bytes:
    """A refusal as most servers write it."""
    return http(json.dumps({"error": {"message": message}}).encode(), status, **headers)


def sse(*chunks: Any, done: bool = True) -> bytes:
    """A stream of server-sent events, whole."""
    frames = [_frame(chunk) for chunk in chunks] + ([b"data: [DONE]\n\n"] if done else [])
    return http(b"".join(frames), kind="text/event-stream")


def _frame(chunk: Any) -> bytes:
    event_line = f"event: {chunk['type']}\n" if "type" in chunk else ""
    return f"{event_line}data: {json.dumps(chunk)}\n\n".encode()


def lines(*rows: Any) -> bytes:
    """Lines of JSON, as Ollama sends them."""
    return http(b"".join(json.dumps(row).encode() + b"\n" for row in rows), kind="application/x-ndjson")


def chat(*deltas: dict[str, Any], finish: str | None = "stop", usage: Any = None) -> bytes:
    """A streamed chat completion of these deltas."""
    return sse(*chunks(*deltas, finish=finish, usage=usage))


def chunks(*deltas: dict[str, Any], finish: str | None = "stop", usage: Any = None) -> list[Any]:
    """The chunks of a chat completion, as OpenAI's API sends them."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}

    ended = [chunk({}, finish)] if finish else []
    counted = [{**head, "choices": [], "usage": usage}] if usage else []
    return [chunk({"role": "assistant", "content": ""}), *map(chunk, deltas), *ended, *counted]


def call_delta(name: str, arguments: Any, id: str | None = "call_1", index: int = 0) -> dict[str, Any]:
    """The delta of one whole call."""
    call = {"index": index, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [call if id is None else {**call, "id": id}]}


def remote(
    server: Scripted | str | Sequence[Scripted],
    api: str = "chat",
    quirks: Quirks | None = None,
    *,
    provider: str = "",
    **traits: Any,
) -> RemoteModel:
    """A model at this server, or at several; as that of a provider, where one is named."""
    dialect = dialect_named(api)
    known = providers()[provider] if provider else Provider("", "")
    servers = [server] if isinstance(server, str | Scripted) else server
    urls = [dialect.base_url(server if isinstance(server, str) else server.url) for server in servers]
    upstream = Upstream(urls, headers=dialect.headers("secret-key"), retry_policy=QUICK)
    traits = {"provider": provider, "key_variable": "THE_KEY", **traits}
    return RemoteModel(upstream, dialect, "gpt", quirks or known.quirks.get(api, Quirks()), RemoteTraits(**traits))


ASK = Request((Message.user("What is the weather in Bonn?"),), (WEATHER, ADD))


async def answer(model: RemoteModel, request: Request = ASK, **changes: Any) -> list[ModelEvent]:
    """All events of an answer; the model is closed then."""
    try:
        return [event async for event in model.stream(replace(request, **changes))]
    finally:
        await model.close()


def text_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def thoughts_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Thought))


def calls_of(events: Sequence[ModelEvent]) -> list[tuple[str, Any]]:
    return [(event.call.name, event.call.arguments) for event in events if isinstance(event, CallReady)]


def made_calls(events: Sequence[ModelEvent]) -> list[Call]:
    return [event.call for event in events if isinstance(event, CallReady)]


def repairs_of(events: Sequence[ModelEvent]) -> list[tuple[str, ...]]:
    return [event.repairs for event in events if isinstance(event, CallReady)]


def end_of(events: Sequence[ModelEvent]) -> Stopped:
    last = events[-1]
    assert isinstance(last, Stopped)
    return last
