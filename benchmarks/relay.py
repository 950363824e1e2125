"""What a gateway costs a token and a request: CPU time of its process, between clients and a server that streams like a model.

The server sends one token at a time to each of many streams, some twenty times a second, as one does that decodes in batches; so
what is read, understood and sent on is counted token by token. Short and long answers are measured: what the long ones cost more
is the tokens', the rest the request's. From that follows how many gateways carry how many tokens a second.
"""

import asyncio
import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.gateway import KEY, callsmith, cpu_times, running
from benchmarks.table import show

SHORT, LONG = 10, 110  # tokens of an answer
STREAMS = 64
ROUNDS = 3
BUSY = 0.6  # of a core, at most
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
        upstream = stack.enter_context(running([sys.executable, "-c", _UPSTREAM, "PORT"]))
        gateway = stack.enter_context(running(callsmith(upstream, folder)))
        costs = {name: asyncio.run(_cost(gateway, *way)) for name, way in WAYS.items()}
    heads = ("", "µs a token", "of it our own", "the kernel's", "ms a request")
    rows = [(name, *_micros(token), 1e3 * request) for name, (token, request) in costs.items()]
    show(f"CPU of a gateway, {STREAMS} streams at once of {SHORT} and {LONG} tokens, best of {ROUNDS}", heads, rows)
    dearest = max(token.all for token, _ in costs.values())
    print(f"\n  a gateway at {BUSY:.0%} of a core: {BUSY / dearest:,.0f} tokens a second at {dearest * 1e6:.0f} µs each")
    needed = [(f"{rate:,}", ceil(rate * dearest / BUSY)) for rate in RATES]
    show("gateways, for the tokens alone", ("tokens a second", "gateways"), needed)


def _micros(spent: Spent) -> tuple[float, float, float]:
    return 1e6 * spent.all, 1e6 * spent.own, 1e6 * spent.kernel


async def _cost(port: int, path: str, body: dict[str, Any]) -> tuple[Spent, float]:
    """What a token costs, and what a request costs besides its tokens, in seconds."""
    await _ask_all(port, path, body, SHORT)  # warm
    rounds = [[await _ask_all(port, path, body, tokens) for tokens in (SHORT, LONG)] for _ in range(ROUNDS)]
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
