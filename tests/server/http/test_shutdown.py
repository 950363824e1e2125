"""A server that is told to stop ends what is under way, and says so in the client's dialect."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.http.shutdown import GracefulShutdown
from tests.serving import served

ASK = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}


@asynccontextmanager
async def slow_server() -> AsyncIterator[tuple[GracefulShutdown, str]]:
    """A server whose model takes for ever to say what it has to say."""
    engine = Scripted(["word " * 10_000], pause=0.01, repeat=True)
    app = GracefulShutdown(create_app({"scripted": LocalModel(engine, format_named("hermes"), Template(CHATML))}))
    async with served(app) as url:
        yield app, url


async def test_a_stream_that_is_ended_ends_with_an_error_frame():
    async with slow_server() as (app, url), httpx2.AsyncClient() as client:
        lines: list[str] = []
        async with client.stream("POST", f"{url}/v1/chat/completions", json=ASK | {"stream": True}) as answer:
            async for line in answer.aiter_lines():
                lines += [line] if line else []
                if len(lines) == 5:
                    app.stop()
    last: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))
    assert last["error"]["message"] == "the server is shutting down"


async def test_an_answer_that_has_not_begun_is_refused_with_503():
    async with slow_server() as (app, url), httpx2.AsyncClient() as client:
        asking = asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=ASK))
        await asyncio.sleep(0.2)
        app.stop()
        answer = await asking
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "the server is shutting down"


async def test_the_last_word_is_in_the_clients_dialect():
    async with slow_server() as (app, url), httpx2.AsyncClient() as client:
        lines: list[str] = []
        async with client.stream("POST", f"{url}/v1/messages", json=ASK | {"stream": True, "max_tokens": 9999}) as answer:
            async for line in answer.aiter_lines():
                lines += [line] if line else []
                if len(lines) == 8:
                    app.stop()
    assert lines[-2] == "event: error"
    last: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))
    assert (last["type"], last["error"]["message"]) == ("error", "the server is shutting down")


async def test_until_it_is_told_to_stop_it_changes_nothing():
    engine = Scripted(["Hello!"], repeat=True)
    inner = create_app({"scripted": LocalModel(engine, format_named("hermes"), Template(CHATML))})
    for app in (inner, GracefulShutdown(inner)):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.post("/v1/chat/completions", json=ASK)
            assert answer.json()["choices"][0]["message"]["content"] == "Hello!"
            assert (await client.get("/nowhere")).status_code == 404
