"""What the server costs a streamed chunk: the CPU time of its process, over a real socket, with an engine that only talks.

The server runs in a process of its own, so that the client's work is not counted. Taken apart: what the engine and the model
cost without a server, what the application adds to that, and what uvicorn and the socket cost an application that only sends as
many chunks, at the pace of a model: a write to a client that already waits for it costs three times one to a client that is busy.
Then many streams at once, each checked word for word.
"""

import asyncio
import json
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import uvicorn
import uvloop

from benchmarks.measure import compare, in_turn
from benchmarks.table import goal, show
from callsmith.core.values import Message, Request
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.settings import Settings

CHUNKS = 2_000  # of one answer
ANSWERS = 8
PROCESSES = 5  # one and the same write costs some of them twice what it costs others
STREAMS = 200
PACE = 30.0  # µs of CPU before each chunk of the application that only sends
SHORT = 100  # chunks of an answer among many
GOAL = 25.0  # µs a chunk
WORDS = "".join(f"{number:04d} " for number in range(CHUNKS))
DIALECTS = {
    "chat completions": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "responses": ("/v1/responses", {"input": "hi", "store": False}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10**6}),
    "Ollama": ("/api/chat", {"messages": [{"role": "user", "content": "hi"}]}),
}


def model_of(words: str) -> LocalModel:
    return LocalModel(Scripted([words], chunk=5, repeat=True), format_named("hermes"), Template(CHATML))


def main(model: str) -> None:
    alone = asyncio.run(_alone())
    ways = {"": ("/bare", {}), **DIALECTS}
    sockets = in_turn({name: partial(_socket, *way) for name, way in ways.items()}, PROCESSES, warm=0)
    bare = [spent - PACE for spent in sockets[""]]
    rows: list[tuple[str, float, float, float, float]] = [("nothing but sending", 0.0, *_spread(bare))]
    for name, (path, body) in DIALECTS.items():
        spent = [spent_seconds - alone for spent_seconds in sockets[name]]
        compare(f"{name}, a chunk of a stream", "µs", spent, "uvicorn that only sends", bare)
        rows.append((name, asyncio.run(_application(path, body)) - alone, *_spread(spent)))
    heads = ("", "the application", "with the socket: best", "median", "worst")
    how = f"the best of {ANSWERS} answers of {CHUNKS} in each of {PROCESSES} processes; the model alone: {alone:.1f}"
    show(f"µs of CPU a streamed chunk, {how}", heads, rows)
    for name, _, _, middle, _ in rows[1:]:
        goal(f"{name}: µs a chunk without the model, in the median,", middle, GOAL)
    path, body = DIALECTS["chat completions"]
    seconds = _in_server(lambda port, _: many(port, path, body, STREAMS))
    show(f"{STREAMS} streams at once", ("", "chunks a second"), [("chat completions", STREAMS * SHORT / seconds)])


def _spread(spent: list[float]) -> tuple[float, float, float]:
    return min(spent), median(spent), max(spent)


async def _alone() -> float:
    """µs of CPU an event costs before there is a server."""
    model, request = model_of(WORDS), Request((Message.user("hi"),))
    best = float("inf")
    for _ in range(ANSWERS):
        began = time.process_time()
        async for _ in model.stream(request):
            pass
        best = min(best, time.process_time() - began)
    return best / CHUNKS * 1e6


async def _application(path: str, body: dict[str, Any]) -> float:
    """µs of CPU a chunk costs where nobody listens."""
    app = create_app({"m": model_of(WORDS)})
    content = json.dumps({"model": "m", "stream": True, **body}).encode()
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": [], "http_version": "1.1"}
    best, incoming = float("inf"), list[Any]()

    async def receive() -> Any:
        return incoming.pop() if incoming else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        pass

    for _ in range(ANSWERS):
        incoming.append({"type": "http.request", "body": content})
        began = time.process_time()
        await app(dict(scope), receive, send)
        best = min(best, time.process_time() - began)
    return best / CHUNKS * 1e6


def _socket(path: str, body: dict[str, Any]) -> float:
    """µs of CPU a chunk costs the process that serves it."""

    async def measured(port: int, spent: Callable[[], float]) -> float:
        best = float("inf")
        for _ in range(ANSWERS):
            began = spent()
            await read_stream(port, path, body)
            best = min(best, spent() - began)
        return best

    return _in_server(measured) / CHUNKS * 1e6


async def many(port: int, path: str, body: dict[str, Any], streams: int) -> float:
    """Seconds until all of these streams have been read and found complete and in order."""
    began = time.perf_counter()
    texts = await asyncio.gather(*(read_stream(port, path, {**body, "max_tokens": SHORT}) for _ in range(streams)))
    for raw in texts:
        frames = [json.loads(line[6:]) for line in raw.decode().split("\n") if line.startswith("data: {")]
        text = "".join(frame["choices"][0]["delta"].get("content") or "" for frame in frames)
        if text != WORDS[: 5 * SHORT] or not raw.rstrip().endswith(b"data: [DONE]\n\n\r\n0"):
            raise AssertionError("a stream has lost something or mixed it up")
    return time.perf_counter() - began


async def read_stream(port: int, path: str, body: dict[str, Any]) -> bytes:
    """The body of the response, without the sizes of its chunks. Next to no work: the machine is to be the server's."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps({"model": "m", "stream": True, **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    raw = await reader.read(-1)
    writer.close()
    if not raw.startswith(b"HTTP/1.1 200"):
        raise AssertionError(raw[:500].decode())
    return raw


def _in_server(work: Callable[[int, Callable[[], float]], Awaitable[float]]) -> float:
    """Do this beside a server in a process of its own. It is told the port, and can ask for the CPU seconds spent there."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()

    def spent() -> float:
        ours.send("spent")
        return ours.recv()

    try:
        return asyncio.run(work(ours.recv(), spent))  # type: ignore[arg-type]
    finally:
        ours.send("end")
        process.join(10)


def _serve(pipe: Connection) -> None:
    uvloop.run(_serving(pipe))  # as `callsmith serve` does


async def _serving(pipe: Connection) -> None:
    ours = create_app({"m": model_of(WORDS)}, settings=Settings(queue=STREAMS))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (_bare(send) if scope["path"] == "/bare" else ours(scope, receive, send))

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    pipe.send(server.servers[0].sockets[0].getsockname()[1])
    while True:
        if pipe.poll():
            if pipe.recv() == "end":
                break
            pipe.send(time.process_time())
        await asyncio.sleep(0.005)
    server.should_exit = True
    await task


async def _bare(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for number in range(CHUNKS):
        until = time.thread_time() + PACE / 1e6
        while time.thread_time() < until:
            pass
        await send({"type": "http.response.body", "body": b"data: " + b"x" * 200 + b"\n\n", "more_body": number < CHUNKS - 1})
        await asyncio.sleep(0)
