"""Every route, with bodies that no client would send: the server neither dies, nor fails, nor hangs, nor grows.

`make test-attack` sends 100,000 requests, `CALLSMITH_FUZZ_REQUESTS` any number of them.
"""

import asyncio
import json
import os
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tests.attack.fuzzing import Fuzzer, send
from tests.serving import killed_program

CONNECTIONS = 8
MOST_GROWTH = 64 * 1024 * 1024  # bytes of memory between the first fifth of the requests and the end
PROGRAM = r"""
import asyncio, resource, sys

import uvicorn
from starlette.responses import JSONResponse
from starlette.routing import Route

from callsmith import Functions, open_model, tool
from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from tests.attack.ticking import late, ticking


@tool
def look(city: str) -> str:
    return "mild"


@tool(side_effects=True)
def pay(amount: int) -> str:
    return f"paid {amount}"


async def figures(_):
    pages = int(open("/proc/self/statm").read().split()[1])
    ordered = sorted(late)
    memory = pages * resource.getpagesize()
    return JSONResponse({"worst": ordered[-1], "p999": ordered[int(len(ordered) * 0.999)], "memory": memory})


async def main():
    task = asyncio.create_task(ticking())
    app = create_app({"m": open_model(f"scripted:{sys.argv[2]}")}, tools=Functions(look, pay))
    app.router.routes.insert(0, Route("/figures", figures))
    await uvicorn.Server(uvicorn.Config(app, port=int(sys.argv[1]), log_level="critical")).serve()


asyncio.run(main())
"""
CALL = "<tool_call>\n<name>{}</name>\n<arguments>{}</arguments>\n</tool_call>"
REPLIES = [
    "Hello there.",
    CALL.format("look", '{"city": "Bonn"}'),
    "It is mild.",
    CALL.format("pay", '{"amount": 3}'),
    '{"city": "x"}',
]


def fuzzed(folder: Path, requests: int, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """What the server's figures are after a fifth of the requests, and at the end."""
    (folder / "replies.jsonl").write_text("\n".join(map(json.dumps, REPLIES)), "utf-8")
    failures, statuses = list[str](), Counter[int]()
    fuzzers = [Fuzzer(seed * 1000 + number) for number in range(CONNECTIONS)]

    async def attack(url: str, count: int) -> None:
        where = urlsplit(url)
        sent = await asyncio.gather(
            *(send(str(where.hostname), where.port or 0, fuzzer, count // CONNECTIONS, failures, statuses) for fuzzer in fuzzers)
        )
        assert failures == []
        assert sum(sent) == count // CONNECTIONS * CONNECTIONS

    with killed_program(PROGRAM, "PORT", str(folder / "replies.jsonl")) as url:
        asyncio.run(attack(url, requests // 5))
        early = httpx2.get(f"{url}/figures", timeout=60).json()
        asyncio.run(attack(url, requests - requests // 5))
        late = httpx2.get(f"{url}/figures", timeout=60).json()
        assert httpx2.get(f"{url}/health", timeout=60).json()["status"] == "ok"
    assert min(statuses[200], statuses[400]) > requests // 10, statuses  # neither all of them nor none make sense
    print(requests, "requests:", dict(statuses), early, late)
    return early, late


def test_bodies_that_no_client_would_send_never_fail_the_server(tmp_path: Path):
    fuzzed(tmp_path, 800, seed=1)


def test_a_hundred_thousand_requests_leave_the_server_as_it_was(tmp_path: Path):
    requests = int(os.environ.get("CALLSMITH_FUZZ_REQUESTS", "100000"))
    early, late = fuzzed(tmp_path, requests, seed=int(os.environ.get("CALLSMITH_FUZZ_SEED", "2")))
    assert late["p999"] < 0.25
    assert late["memory"] - early["memory"] < MOST_GROWTH
