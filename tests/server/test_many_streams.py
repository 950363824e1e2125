"""Many streams at once over a real socket: nothing is dropped, and nothing comes out of order."""

import asyncio
from typing import Any

import uvicorn

from benchmarks.server import DIALECTS, WORDS, many, model_of
from callsmith.server.app import create_app
from callsmith.server.service import Settings


async def test_two_hundred_streams_at_once_lose_and_mix_up_nothing():
    app: Any = create_app({"m": model_of(WORDS)}, settings=Settings(queue=200))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        await many(server.servers[0].sockets[0].getsockname()[1], *DIALECTS["chat completions"], 200)  # it checks each of them
    finally:
        server.should_exit = True
        await task
