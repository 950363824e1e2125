"""Conversations through our gateway and a router of others stay with one replica: vllm-router, and SGLang's model gateway (smg).

The routers are real and in processes of their own; the replicas are scripted. `make test-routers` installs the routers.
"""

import asyncio
import json
import os
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from callsmith import open_model
from callsmith.server.app import create_app
from tests.models.remote.scripted import chunks
from tests.serving import served, served_apart

pytestmark = pytest.mark.routers

PROGRAMS = Path(os.environ.get("CALLSMITH_ROUTERS", Path(__file__).parents[2] / ".venv-routers")) / "bin"
ROUTERS = {
    "vllm-router": ["--policy", "consistent_hash", "--log-level", "error"],
    "smg": ["--policy", "manual", "--log-level", "error"],
}
STARTS_WITHIN = 120.0  # seconds
REPLICAS, CONVERSATIONS, TURNS = 3, 12, 4


class Replica:
    """A server of a model that remembers the first words of the conversations it is asked in."""

    def __init__(self) -> None:
        self.conversations: list[str] = []

    def app(self) -> Starlette:
        def known(**fields: Any) -> Any:
            async def answer(_: Request) -> JSONResponse:
                return JSONResponse(fields)

            return answer

        info = {"model_path": "m", "served_model_name": "m", "is_generation": True, "max_model_len": 4096}
        return Starlette(
            routes=[
                Route("/health", known(status="ok")),
                Route("/v1/models", known(object="list", data=[{"id": "m", "object": "model", "owned_by": "vllm"}])),
                *(Route(path, known(**info)) for path in ("/server_info", "/get_server_info", "/model_info", "/get_model_info")),
                Route("/v1/chat/completions", self.answer, methods=["POST"]),
            ]
        )

    async def answer(self, request: Request) -> StreamingResponse:
        body = await request.json()
        self.conversations.append(body["messages"][0]["content"])

        async def frames() -> AsyncIterator[str]:
            for chunk in chunks({"content": "fine"}):
                yield f"data: {json.dumps(chunk)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        return [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


@contextmanager
def running(router: str, replicas: list[str], folder: Path) -> Iterator[str]:
    """The address of a router in front of the replicas."""
    program = PROGRAMS / router
    if not program.exists():
        pytest.skip(f"{program} is not installed: make test-routers")
    port, metrics = free_ports(2)
    command = [str(program), *(["launch"] if router == "smg" else []), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(metrics), "--worker-urls", *replicas, *ROUTERS[router]]
    log = folder / f"{router}.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=folder) as process:
        try:
            wait_until_it_answers(f"http://127.0.0.1:{port}/v1", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


def wait_until_it_answers(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + STARTS_WITHIN
    body = {"model": "m", "messages": [{"role": "user", "content": "are you there?"}], "stream": True}
    while True:
        try:
            if httpx2.post(f"{url}/chat/completions", json=body, timeout=10).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        assert process.poll() is None and time.monotonic() < until, log.read_text()[-4000:]
        time.sleep(0.3)


@pytest.fixture
def replicas() -> Iterator[tuple[list[Replica], list[str]]]:
    started = [Replica() for _ in range(REPLICAS)]
    with ExitStack() as stack:
        yield started, [stack.enter_context(served_apart(item.app())) for item in started]


def placed(replicas: list[Replica]) -> dict[str, set[int]]:
    """The replicas by the conversations they were asked in."""
    replicas_by_key = defaultdict[str, set[int]](set)
    for number, replica in enumerate(replicas):
        for conversation in replica.conversations:
            replicas_by_key[conversation].add(number)
    replicas_by_key.pop("are you there?", None)
    return replicas_by_key


def are_well_placed(conversations: dict[str, set[int]]) -> bool:
    """Whether each conversation is at one replica, and not all of them at the same."""
    return all(len(at) == 1 for at in conversations.values()) and len(set.union(*conversations.values())) > 1


async def converse(client: httpx2.AsyncClient, path: str, conversation: int) -> None:
    messages = [{"role": "user", "content": f"conversation {conversation}"}]
    for turn in range(TURNS):
        answer = await client.post(path, json={"model": "m", "messages": messages, "stream": True})
        assert (answer.status_code, "fine" in answer.text) == (200, True), answer.text
        messages += [{"role": "assistant", "content": "fine"}, {"role": "user", "content": f"turn {turn}"}]


@pytest.mark.parametrize("router", ROUTERS)
async def test_each_conversation_stays_with_one_replica(
    router: str, replicas: tuple[list[Replica], list[str]], tmp_path: Path
) -> None:
    servers, urls = replicas
    with running(router, urls, tmp_path) as url:
        async with httpx2.AsyncClient(timeout=60) as client:
            await asyncio.gather(*(converse(client, f"{url}/chat/completions", number) for number in range(CONVERSATIONS)))
            assert not are_well_placed(placed(servers))  # without us, they wander, or all go to one replica
            for item in servers:
                item.conversations.clear()
            models = [open_model(f"{url}#m") for _ in range(2)]
            async with served(create_app({"m": models[0]})) as first, served(create_app({"m": models[1]})) as second:
                for number in range(CONVERSATIONS):
                    await converse(client, f"{(first, second)[number % 2]}/v1/chat/completions", number)
                here = placed(servers)
                for number in range(CONVERSATIONS):  # through the other gateway: it is the same conversation there
                    await converse(client, f"{(second, first)[number % 2]}/v1/chat/completions", number)
            for model in models:
                await model.close()
    assert len(here) == CONVERSATIONS
    assert are_well_placed(here)
    assert placed(servers) == here
