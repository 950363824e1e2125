"""A bus of scripted capabilities, the application around it, and calls of it over HTTP and WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
from starlette.applications import Starlette
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall
from callsmith.server.app import create_app
from callsmith.server.parts.bus.part import BusPart
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from callsmith.wire.capability.requests import PATH, SUBPROTOCOL
from tests.fakes import FakeModel
from tests.server.asking import says

QUERY = Descriptor(
    "rag.query",
    request_schema={"type": "object", "properties": {"input": {"type": "object", "required": ["query"]}}, "required": ["input"]},
    response_schema={"type": "object", "properties": {"output": {"type": "object"}}, "required": ["output"]},
    params={"corpus": ["village", "city"]},
)
CHAT = Descriptor("llm.chat", (2, 0), stream_schema={"type": "object"}, timeout_seconds=20)
BODY: Any = {"params": {"corpus": "village"}, "input": {"query": "hall"}}
CLOCK = (
    Frame("tool_call_delta", {"id": "tc_1", "name": "clock", "arguments_delta": '{"zone": '}),
    Frame("tool_call_delta", {"id": "tc_1", "arguments_delta": '"UTC"}'}),
    Frame("tool_call", {"id": "tc_1", "name": "clock", "arguments": {"zone": "UTC"}}),
)


@dataclass
class Scripted:
    """Handlers that do what the input of a call says, and what they have seen."""

    running: int = 0
    cancelled: int = 0
    calls: list[CapabilityCall] = field(default_factory=list[CapabilityCall])

    async def query(self, call: CapabilityCall) -> dict[str, Any]:
        self.calls.append(call)
        self.running += 1
        try:
            await asyncio.sleep(call.input.get("sleep", 0))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return {"output": {"found": call.input["query"], "corpus": call.params.get("corpus")}, "meta": {}}

    async def chat(self, call: CapabilityCall) -> AsyncIterator[Frame]:
        """Tokens; a tool call, whose result is waited for unless the messages have it; then more tokens."""
        self.calls.append(call)
        self.running += 1
        try:
            chat_input = call.input
            if chat_input.get("fail") == "first":
                raise BusError("rate_limited", "later", seconds=2)
            for number in range(chat_input.get("tokens", 0)):
                yield Frame("token", {"text": f"t{number}", **({"pad": "x" * chat_input["pad"]} if "pad" in chat_input else {})})
            if "event" in chat_input:
                yield Frame(chat_input["event"], {})
            if chat_input.get("tool"):
                results = [message["content"] for message in chat_input.get("messages", ()) if message["role"] == "tool"]
                if not results:
                    for frame in CLOCK:
                        yield frame
                    reply = await call.receive()
                    assert reply is not None
                    results = [json.dumps(reply["body"])]
                yield Frame("token", {"text": f"It is {json.loads(results[0])['time']}."})
            until = asyncio.get_running_loop().time() + chat_input.get("stubborn", 0)
            while asyncio.get_running_loop().time() < until:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(chat_input.get("sleep", 0))
            if chat_input.get("fail") == "late":
                raise BusError("timeout", "too late")
            yield Frame("done", {"tokens_out": chat_input.get("tokens", 0), "stop_reason": "end"})
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        finally:
            self.running -= 1


def scripted_bus(**options: Any) -> tuple[CapabilityBus, Scripted]:
    bus, scripted = CapabilityBus(**options), Scripted()
    bus.register(QUERY, scripted.query)
    bus.register(CHAT, scripted.chat)
    return bus, scripted


def scripted_app(**options: Any) -> tuple[Starlette, Scripted]:
    bus, scripted = scripted_bus()
    return create_app({"m": FakeModel(says("hi"))}, parts=[BusPart(bus)], **options), scripted


def envelope(capability: str = "llm.chat", version: str = "2.0", body: Any = None, **fields: Any) -> dict[str, Any]:
    return {"capability": capability, "version": version, "body": {"input": {}} if body is None else body, **fields}


def chat(stream: bool = True, **fields: Any) -> dict[str, Any]:
    """The body of a request that calls llm.chat."""
    return {"envelope": envelope(body={"input": fields}, stream=stream)}


def query_headers(**more: str) -> dict[str, str]:
    return {"x-hearthnet-capability": "rag.query", "x-hearthnet-capability-version": "1.0", **more}


def sse_frames(text: str) -> list[tuple[str, Any]]:
    """The events of a stream, by name and data."""
    events = [block.split("\n") for block in text.split("\n\n") if block.startswith("event: ")]
    return [(lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))) for lines in events]


async def post(client: httpx2.AsyncClient, body: Any, **headers: str) -> httpx2.Response:
    return await client.post(PATH, json=body, headers=headers)


@asynccontextmanager
async def socket_to(url: str, protocol: str | None = SUBPROTOCOL, **options: Any) -> AsyncIterator[ClientConnection]:
    """A WebSocket connection to the bus at this address."""
    protocols: Any = [protocol] if protocol else None
    async with connect(url.replace("http", "ws", 1) + PATH, subprotocols=protocols, **options) as socket:
        yield socket


async def send(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message))


async def call(socket: ClientConnection, **fields: Any) -> None:
    await send(socket, type="call", **chat(**fields))


async def frames_of(socket: ClientConnection, *, acks: bool = True) -> list[dict[str, Any]]:
    """All frames up to the last one, acknowledged as they come."""
    frames: list[dict[str, Any]] = []
    while not frames or frames[-1]["event"] not in ("done", "error"):
        frames.append(json.loads(await asyncio.wait_for(socket.recv(), 20)))
        if acks and frames[-1]["seq"] % 8 == 0:
            with suppress(ConnectionClosed):  # all has been sent already
                await send(socket, type="ack", upto=frames[-1]["seq"])
    return frames
