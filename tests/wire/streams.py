"""Streams of every dialect, byte for byte as the application sends them, and what is in them."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from starlette.applications import Starlette

from callsmith.core.errors import ModelError
from callsmith.core.events import ConfirmationNeeded, ModelEvent
from callsmith.core.ports import Context
from callsmith.core.values import Call, Request, Result, Sampling, Tool
from callsmith.engines.port import Finished, Piece
from callsmith.engines.scripted import Scripted
from callsmith.formats import formats
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.grammar.nodes import Grammar
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from tests.files_tools import Files
from tests.wire.shapes import Sent, parse_events, parse_lines

DIALECTS = ("chat", "responses", "anthropic", "ollama")
PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}, "size": {"type": "integer"}}, "required": ["text"]}
NAMES = ("note", "now")


def body_of(dialect: str, limit: int) -> tuple[str, dict[str, Any]]:
    """Where and what is asked in this dialect."""
    body: dict[str, Any] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    functions = [{"name": name, "parameters": PARAMETERS if name == "note" else {"type": "object"}} for name in NAMES]
    wrapped = [{"type": "function", "function": function} for function in functions]
    match dialect:
        case "chat":
            return "/v1/chat/completions", {
                **body, "tools": wrapped, "max_tokens": limit, "stream_options": {"include_usage": True}
            }  # fmt: skip
        case "responses":
            tools = [{"type": "function", **function} for function in functions]
            return "/v1/responses", {
                "model": "m", "stream": True, "store": False, "input": "hi", "tools": tools, "max_output_tokens": limit
            }  # fmt: skip
        case "anthropic":
            tools = [{"name": function["name"], "input_schema": function["parameters"]} for function in functions]
            return "/v1/messages", {**body, "tools": tools, "max_tokens": limit}
        case _:
            return "/api/chat", {**body, "tools": wrapped, "options": {"num_predict": limit}}


async def streamed(app: Starlette, path: str, body: dict[str, Any]) -> bytes:
    """What the application sends, byte for byte."""
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path}
    scope |= {"raw_path": path.encode(), "query_string": b"", "headers": [], "scheme": "http", "server": ("callsmith", 80)}
    incoming = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    pieces: list[bytes] = []

    async def receive() -> Any:
        if incoming:
            return incoming.pop()
        return await asyncio.Event().wait()  # the client stays

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200, message
        pieces.append(message.get("body", b""))

    await app({**scope, "state": {}}, receive, send)
    return b"".join(pieces)


class Breaking(Scripted):
    """Breaks down in the middle of what it says."""

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        pieces = [piece async for piece in super().generate(prompt, sampling, grammar)]
        for piece in pieces[: max(1, len(pieces) // 2)]:
            yield piece
        raise ModelError("out of memory")


class Lent:
    """A model that is another one each time: an application is dear, a model cheap."""

    def __init__(self) -> None:
        self.model: LocalModel | None = None

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        assert self.model is not None
        return self.model.stream(request)


LENT, TEMPLATE = Lent(), Template(CHATML)
APP = create_app({"m": LENT})
RUNNING = create_app({"m": LENT}, tools=Files(a="Hello", empty=""))


async def stream_of(dialect: str, model: LocalModel, limit: int = 10**6) -> list[Sent]:
    path, body = body_of(dialect, limit)
    LENT.model = model
    raw = await streamed(APP, path, body)
    return parse_lines(raw) if dialect == "ollama" else parse_events(raw)


SERVERS = [{"type": "mcp_toolset", "mcp_server_name": name} for name in ("files", "clock")]


async def running(texts: list[str], chunk: int, scenario: str = "") -> list[Sent]:
    """The stream of an answer for which tools of MCP servers run, beside those of the client's."""
    path, body = body_of("anthropic", 10**6)
    body["tools"] = [*body["tools"][:1], *SERVERS]
    LENT.model = LocalModel((Breaking if scenario == "error" else Scripted)(texts, chunk=chunk), formats()["hermes"], TEMPLATE)
    return parse_events(await streamed(RUNNING, path, body))


class Notes:
    """Tools of an MCP server: some that run, one that fails, one that is asked about."""

    async def tools(self) -> Sequence[Tool]:
        names = ("note", "now", "pay")
        return [Tool(name, parameters=PARAMETERS if name == "note" else {}, source="mcp:notes") for name in names]

    async def call(self, call: Call, context: Context) -> AsyncIterator[Result | ConfirmationNeeded]:
        if call.name == "pay":
            yield ConfirmationNeeded("confirm_1", call)
            return
        await context.starting()
        yield Result(call.id, call.name, "so", ok=call.name == "note")


async def with_mcp(scenario: str = "") -> list[Sent]:
    """A stream with a list, a call that ran, one that failed, one that was refused, an approval, and a function of the client."""
    format = formats()["hermes"]
    calls = [Call("note", {"text": "Hello"}), Call("now"), Call("note", {}), Call("own", {"a": 1}), Call("pay", {"euros": 5})]
    texts = [write(format, calls[:3], text="Let me see."), write(format, calls[3:], text="And now.")]
    model = LocalModel((Breaking if scenario else Scripted)(texts, chunk=5), format, TEMPLATE)
    own = {"type": "function", "name": "own", "parameters": {"type": "object"}}
    body = {"model": "m", "stream": True, "input": "hi", "tools": [{"type": "mcp", "server_label": "notes"}, own]}
    return parse_events(await streamed(create_app({"m": model}, tools=Notes()), "/v1/responses", body))
