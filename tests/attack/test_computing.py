"""What computes without answering (tokens, counts) is under the limits of an answer, and takes bounded memory and time."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import CallerLimits, Key, Settings
from tests.attack.loop_latency import measured_server
from tests.attack.test_large_requests import LATENCY
from tests.attack.test_memory import resident
from tests.fakes import FakeModel, Letters
from tests.server.asking import HI, http, says

COMPUTING: dict[str, Any] = {
    "/tokenize": {"content": "hi"},
    "/detokenize": {"tokens": [1_104, 1_105]},
    "/v1/messages/count_tokens": {"model": "m", "messages": HI},
    "/v1/responses/input_tokens": {"model": "m", "input": "hi"},
}
ALICE = {"authorization": "Bearer alice"}


@pytest.mark.parametrize("path", COMPUTING)
async def test_computing_counts_among_the_requests_of_a_minute(path: str):
    settings = Settings(keys={"alice": Key(hash_key("alice"), requests_per_minute=2)})
    async with http(create_app({"m": Letters().around(FakeModel(says("a")))}, settings=settings)) as asking:
        first, second, third = [await asking.post(path, json=COMPUTING[path], headers=ALICE) for _ in range(3)]
    assert (first.status_code, second.status_code, third.status_code) == (200, 200, 429)
    assert second.headers["x-ratelimit-remaining-requests"] == "0"
    assert int(third.headers["retry-after"]) >= 1


@pytest.mark.parametrize("settings", [Settings(callers=CallerLimits(concurrent=1)), Settings(queue=1)])
@pytest.mark.parametrize("path", [path for path in COMPUTING if "tokens" in path])
async def test_computing_takes_a_place(path: str, settings: Settings):
    model = Letters().around(FakeModel(says("a")), seconds=1.0)
    async with http(create_app({"m": model}, settings=settings)) as asking:
        answers = await asyncio.gather(*[asking.post(path, json=COMPUTING[path]) for _ in range(4)])
    assert sorted(answer.status_code for answer in answers) == [200, 429, 429, 429]


async def test_computing_has_a_deadline():
    model = Letters().around(FakeModel(says("a")), seconds=60.0)
    async with http(create_app({"m": model}, settings=Settings(request_seconds=0.2))) as asking:
        assert (await asking.post("/v1/messages/count_tokens", json={"model": "m", "messages": HI})).status_code == 504


MOST = {"content": "x" * 1_000_000, "with_pieces": True}


@pytest.mark.parametrize("body", [{"content": "x" * 8_000_000}, MOST], ids=["too large", "in pieces"])
async def test_large_texts_at_the_same_time_take_bounded_memory(body: dict[str, Any]):
    content = json.dumps(body).encode()
    with measured_server() as server:
        port = urlsplit(server.url).port or 0
        before, most = resident(port), 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, resident(port))
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(watch())
        async with httpx2.AsyncClient(base_url=server.url, timeout=300, headers={"content-type": "application/json"}) as asking:
            answers = await asyncio.gather(*[asking.post("/tokenize", content=content) for _ in range(12)])
        watching.cancel()
    assert {answer.status_code for answer in answers} == ({200} if body is MOST else {413})
    assert most - before < 500_000_000


def test_a_text_in_pieces_does_not_block_the_loop():
    with measured_server() as server:
        assert server.post("/tokenize", MOST).status_code == 200
        assert server.worst_latency() < LATENCY
