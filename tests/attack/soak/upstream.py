"""An upstream that lies: a server with OpenAI's API that answers "lie KIND TEXT" in the way the kind says.

It cannot be trusted, but what comes of its lies can: a text that is whole, an error, or either (`LIES`). None of its calls
may run that nobody has allowed.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.models.remote.scripted import call_delta, chat, chunks, refusal
from tests.scripted_server import http
from tests.serving import free_port

# What the client of our server gets: the whole text, an error, or any of them.
LIES = {
    "honest": "whole",
    "absurd-usage": "whole",
    "busy-at-first": "whole",
    "broken-json": "error",
    "cut-off": "error",
    "without-end": "error",
    "html": "error",
    "fails": "error",
    "noise": "error",
    "hangs": "error",
    "endless": "error",
    "unknown-tool": "any",
    "wrong-arguments": "any",
    "half-a-call": "any",
    "same-call-twice": "any",
}
SLOW_LIES = ("hangs", "endless")
UNASKED = "never-"  # begins the references of calls that nobody is to allow
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Liar:
    """The upstream, which can go away and come back at the same address."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.told: dict[str, int] = {}
        self._busy: set[str] = set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def go_away(self) -> None:
        """Listen no more, and cut everybody off."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            sizes = [line.partition(":")[2] for line in head.split("\r\n") if line.lower().startswith("content-length:")]
            body = json.loads(await reader.readexactly(int(sizes[0]))) if sizes else None
            if body is None:
                writer.write(http(b'{"data": [{"id": "liar"}]}'))
            else:
                await self._answer(body["messages"], writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):  # at the end of the soak it still hangs
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, messages: list[Any], writer: asyncio.StreamWriter) -> None:
        said = next((message["content"] for message in reversed(messages) if message["role"] == "user"), "")
        if messages[-1]["role"] != "user" or not said.startswith("lie "):
            writer.write(chat({"content": "told"}))
            return
        _, kind, text = said.split(" ", 2)
        self.told[kind] = self.told.get(kind, 0) + 1
        if kind in _STREAMS:
            writer.write(_HEAD)
            async for piece in _STREAMS[kind](text):
                writer.write(piece)
                await writer.drain()
            if kind == "cut-off":
                writer.transport.abort()
        elif kind == "busy-at-first" and text not in self._busy:
            self._busy.add(text)
            writer.write(refusal("503 Busy", "warming up", retry_after="0"))
        else:
            self._busy.discard(text)
            writer.write(_WHOLE.get(kind, _honest)(text))


def _honest(text: str) -> bytes:
    return chat(*({"content": f"{word} "} for word in text.split(" ")))


def _absurd(text: str) -> bytes:
    return chat({"content": text}, usage={"prompt_tokens": -3 * 10**30, "completion_tokens": 10**30, "total_tokens": "many"})


def _calls(*calls: dict[str, Any]) -> Callable[[str], bytes]:
    return lambda text: chat(*calls, finish="tool_calls")


def _pay(text: str) -> str:
    return json.dumps({"reference": f"{UNASKED}{text.split(' ')[0]}"})


_WHOLE: dict[str, Callable[[str], bytes]] = {
    "absurd-usage": _absurd,
    "html": lambda text: http(f"<html><title>{text}</title></html>".encode(), kind="text/html"),
    "fails": lambda text: refusal("500 Oh", f"CUDA error in {text}"),
    "noise": lambda text: http(bytes(range(256)) * 40, kind="text/event-stream"),
    "unknown-tool": _calls(call_delta("erase_everything", "{}")),
    "wrong-arguments": _calls(call_delta("pay", '{"amount": 3, "reference": ["all of it"]}')),
    "half-a-call": lambda text: chat(call_delta("pay", _pay(text)[:-4]), finish="tool_calls"),
    "same-call-twice": lambda text: chat(*(call_delta("pay", _pay(text), index=at) for at in (0, 1)), finish="tool_calls"),
}


def _frames(text: str, finish: str | None = None) -> list[bytes]:
    made = chunks(*({"content": f"{word} "} for word in text.split(" ")), finish=finish)
    return [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in made]


async def _broken_json(text: str) -> AsyncIterator[bytes]:
    frames = _frames(text, "stop")
    yield b"".join(frames[:2])
    yield b'data: {"choices": [{"index": 0, "delta": {"content": "ha\n\n'
    yield b"".join(frames[2:])
    yield b"data: [DONE]\n\n"


async def _part(text: str) -> AsyncIterator[bytes]:
    yield b"".join(_frames(text)[:-1])


async def _hangs(text: str) -> AsyncIterator[bytes]:
    yield b"".join(_frames(text)[:1])
    await asyncio.sleep(600)


async def _endless(text: str) -> AsyncIterator[bytes]:
    frame = _frames(text)[1]
    while True:
        yield frame * 20
        await asyncio.sleep(0.02)


_STREAMS: dict[str, Callable[[str], AsyncIterator[bytes]]] = {
    "broken-json": _broken_json,
    "cut-off": _part,
    "without-end": _part,
    "hangs": _hangs,
    "endless": _endless,
}


@asynccontextmanager
async def lying() -> AsyncIterator[Liar]:
    """The upstream, until the block is left."""
    liar = Liar()
    await liar.listen()
    try:
        yield liar
    finally:
        with suppress(OSError):
            await liar.go_away()
