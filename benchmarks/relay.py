"""What a gateway costs a token and a request: CPU time of its process, between clients and a server that streams like a model.

The server sends one token at a time to each of many streams, some twenty times a second, as one does that decodes in batches; so
what is read, understood and sent on is counted token by token. Short and long answers are measured: what the long ones cost more
is the tokens', the rest the request's. From that follows how many gateways carry how many tokens a second.

Beside it, in turn, a bare relay is measured: the same HTTP libraries, each chunk parsed as JSON and passed on as it came. It
knows no keys, no dialects, no limits and no deadlines. And the floor: the event loop and its sockets alone, without HTTP and
without tasks, each chunk parsed once.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.gateway import KEY, callsmith, cpu_times, running
from benchmarks.measure import compare
from benchmarks.table import goal, show

SHORT, LONG = 10, 110  # tokens of an answer
STREAMS = 64
ROUNDS = 3
BUSY = 0.6  # of a core, at most
MOST_MICROS, MOST_TIMES = 40, 2  # the goals: of a token, and beside the bare relay
BARE, FLOOR = "a bare relay", "sockets and one parse"
RATES = (10_000, 100_000, 1_000_000, 10_000_000)  # tokens a second
CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Any = {"name": "weather", "description": "The weather.", "parameters": CITY}
HI: Any = [{"role": "user", "content": "Tell me the numbers."}]
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat completions": ("/v1/chat/completions", {"messages": HI}),
    "with a tool (calls in the text are looked for)": (
        "/v1/chat/completions",
        {"messages": HI, "tools": [{"type": "function", "function": TOOL}]},
    ),
    "responses": ("/v1/responses", {"input": "Tell me the numbers.", "store": False}),
    "messages": ("/v1/messages", {"messages": HI}),
}

_RELAY = r"""
import json, sys
import aiohttp, uvicorn
session = None
async def app(scope, receive, send):
    global session
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message.get("more_body")
    json.loads(body)
    session = session or aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    async with session.post(sys.argv[1], data=body, headers={"content-type": "application/json"}) as response:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        rest = b""
        async for data in response.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if event != b"data: [DONE]":
                    json.loads(event[6:])
            if events:
                await send({"type": "http.response.body", "body": b"\n\n".join(events) + b"\n\n", "more_body": True})
    await send({"type": "http.response.body", "body": b""})
fast = {"loop": "uvloop", "http": "httptools"} if sys.platform != "win32" else {}
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error", access_log=False, lifespan="off", **fast)
"""

_SOCKETS = r"""
import asyncio, json, sys
try:
    from uvloop import run
except ImportError:
    from asyncio import run
class Upstream(asyncio.Protocol):
    def __init__(self, client, request):
        self.client, self.request = client, request
    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)
    def data_received(self, data):
        for line in data.split(b"\r\n"):
            if line.startswith(b"data: {"):
                json.loads(line[6:])
        self.client.write(data)
        if data.endswith(b"0\r\n\r\n"):
            self.client.close()
            self.transport.close()
class Client(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data = transport, b""
    def data_received(self, data):
        self.data += data
        head, _, body = self.data.partition(b"\r\n\r\n")
        if len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 1):
            loop = asyncio.get_running_loop()
            upstream = loop.create_connection(lambda: Upstream(self.transport, self.data), "127.0.0.1", int(sys.argv[1]))
            self.asking = loop.create_task(upstream)
async def main():
    server = await asyncio.get_running_loop().create_server(Client, "127.0.0.1", int(sys.argv[2]))
    await server.serve_forever()
run(main())
"""

_UPSTREAM = r"""
import asyncio, json, sys
head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
def frame(delta, reason=None):
    data = json.dumps({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]})
    return chunked(f"data: {data}\n\n".encode())
def chunked(data):
    return b"%x\r\n%s\r\n" % (len(data), data)
begin = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
begin += frame({"role": "assistant", "content": ""})
token, end = frame({"content": "word "}), frame({}, "stop") + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"
streams = {}

class Upstream(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data = transport, b""
    def connection_lost(self, error):
        streams.pop(self.transport, None)
    def data_received(self, data):
        self.data += data
        while (at := self.data.find(b"\r\n\r\n")) >= 0:
            size = int(self.data[:at].lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if len(self.data) < at + 4 + size:
                return
            body = json.loads(self.data[at + 4:at + 4 + size])
            self.data = self.data[at + 4 + size:]
            self.transport.write(begin)
            streams[self.transport] = body["max_tokens"]

async def main():
    await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", int(sys.argv[1]))
    while True:
        await asyncio.sleep(0.05)
        for transport, left in list(streams.items()):
            transport.write(token if left else end)
            streams[transport] = left - 1
            if not left:
                del streams[transport]
asyncio.run(main())
"""


@dataclass(frozen=True)
class Spent:
    """CPU seconds of the gateway: its own, and the kernel's for it."""

    own: float
    kernel: float

    @property
    def all(self) -> float:
        return self.own + self.kernel

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.own - other.own, self.kernel - other.kernel)

    def __truediv__(self, number: float) -> "Spent":
        return Spent(self.own / number, self.kernel / number)


def main(model: str) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spent = asyncio.run(rounds(ways(stack, folder, WAYS)))
    heads = ("", "µs a token", "of it our own", "the kernel's", "ms a request")
    costs = {name: cost(taken) for name, taken in spent.items()}
    rows = [(name, *_micros(token), 1e3 * request) for name, (token, request) in costs.items()]
    show(f"CPU of a gateway, {STREAMS} streams at once of {SHORT} and {LONG} tokens, best of {ROUNDS}", heads, rows)
    micros = {name: [_micros(cost([one])[0])[0] for one in taken] for name, taken in spent.items()}
    for name in WAYS:
        compare(f"a token, {name}", "µs", micros[name], BARE, micros[BARE], goal=1 / MOST_TIMES)
    goal("µs a token of chat completions", 1e6 * costs["chat completions"][0].all, MOST_MICROS)
    dearest = max(costs[name][0].all for name in WAYS)
    print(f"\n  a gateway at {BUSY:.0%} of a core: {BUSY / dearest:,.0f} tokens a second at {dearest * 1e6:.0f} µs each")
    needed = [(f"{rate:,}", ceil(rate * dearest / BUSY)) for rate in RATES]
    show("gateways, for the tokens alone", ("tokens a second", "gateways"), needed)


def ways(stack: ExitStack, folder: Path, names: Iterable[str]) -> dict[str, tuple[int, str, dict[str, Any]]]:
    """The bare relay and our gateway, running: where they are asked, and for what."""
    upstream = stack.enter_context(running([sys.executable, "-c", _UPSTREAM, "PORT"]))
    gateway = stack.enter_context(running(callsmith(upstream, folder)))
    relay = [sys.executable, "-c", _RELAY, f"http://127.0.0.1:{upstream}/v1/chat/completions", "PORT"]
    sockets = [sys.executable, "-c", _SOCKETS, str(upstream), "PORT"]
    beside = {name: stack.enter_context(running(command)) for name, command in {FLOOR: sockets, BARE: relay}.items()}
    asked = WAYS["chat completions"]
    return {name: (port, *asked) for name, port in beside.items()} | {name: (gateway, *WAYS[name]) for name in names}


def _micros(spent: Spent) -> tuple[float, float, float]:
    return 1e6 * spent.all, 1e6 * spent.own, 1e6 * spent.kernel


async def rounds(
    ways: Mapping[str, tuple[int, str, dict[str, Any]]], times: int = ROUNDS
) -> dict[str, list[tuple[Spent, Spent]]]:
    """What short and long answers cost each way, round after round, in turn."""
    spent: dict[str, list[tuple[Spent, Spent]]] = {name: [] for name in ways}
    for way in ways.values():
        await _ask_all(*way, SHORT)  # warm
    for _ in range(times):
        for name, way in ways.items():
            spent[name].append((await _ask_all(*way, SHORT), await _ask_all(*way, LONG)))
    return spent


def cost(rounds: Sequence[tuple[Spent, Spent]]) -> tuple[Spent, float]:
    """What a token costs, and what a request costs besides its tokens, in seconds: by the best of the rounds."""
    short, long = (min(spent, key=lambda cost: cost.all) for spent in zip(*rounds, strict=True))
    token = (long - short) / (LONG - SHORT)
    return token, short.all - SHORT * token.all


async def _ask_all(port: int, path: str, body: dict[str, Any], tokens: int) -> Spent:
    """What the gateway spends on a request, of many at once that are asked for answers of so many tokens."""
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    content = json.dumps({"model": "m", "stream": True, limit: tokens, **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    asking = f"{head}authorization: Bearer {KEY}\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asking)
        answer = await reader.read(-1)
        writer.close()
        return answer

    before = Spent(*cpu_times(port))
    for answer in await asyncio.gather(*(ask() for _ in range(STREAMS))):
        if b" 200 " not in answer[:20] or answer.count(b'"word ') < tokens:
            raise AssertionError(answer[-2000:].decode())
    return (Spent(*cpu_times(port)) - before) / STREAMS
