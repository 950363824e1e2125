"""One caller must not shut out the others: by waiting, by not reading, or by asking for too much. On real sockets."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from callsmith.core.errors import RateLimited
from callsmith.core.events import Stopped, Text
from callsmith.core.values import Usage
from callsmith.server.admission import RateLimits
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import CallerLimits, Key, Settings
from callsmith.server.settings_sources import SettingsSource, merge_settings
from tests.fakes import FakeModel
from tests.server.approvals.shop import CHAT, PAY, Shop, answer, listed
from tests.server.asking import HI, calls, listening, says
from tests.waiting import until

ASK: Any = {"model": "m", "messages": HI, "max_tokens": 5}
KEYS = {name: Key(hash_key(name)) for name in ("alice", "bob")}
ALICE, BOB = ({"authorization": f"Bearer {name}"} for name in KEYS)
WORD = Text("word " * 2000)


async def test_streams_that_wait_for_a_person_hold_no_place_and_go_on_afterwards():
    shop, places = Shop(), 4
    model = FakeModel(*[calls(PAY) for _ in range(places)], says("thanks"))
    settings = Settings(queue=places, request_seconds=1.0)
    async with (
        listening(model, tools=shop.tools, settings=settings) as url,
        httpx2.AsyncClient(base_url=url, timeout=30) as asking,
        AsyncExitStack() as streams,
    ):
        waiting = [
            await streams.enter_async_context(
                asking.stream("POST", CHAT, json={**ASK, "stream": True, "wait_for_approval": True, "session_id": f"s{number}"})
            )
            for number in range(places)
        ]
        async with asyncio.timeout(20):
            while len(approvals := await listed(asking)) < places:
                await asyncio.sleep(0.05)
        assert (await asking.post(CHAT, json=ASK)).status_code == 200
        await asyncio.sleep(1.2)  # the deadline is over, had the clock not been stopped
        for approval in approvals:
            await answer(asking, approval["id"], approve=True)
        texts = [(await response.aread()).decode() for response in waiting]
    assert all("thanks" in text for text in texts)
    assert len(shop.paid) == places


async def _never_reads(url: str, headers: dict[str, str] | None = None) -> asyncio.StreamWriter:
    """Ask for a stream, and read nothing of it."""
    there, body = urlsplit(url), json.dumps({**ASK, "stream": True}).encode()
    reader, writer = await asyncio.open_connection(there.hostname, there.port, limit=1)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    lines = [f"POST {CHAT} HTTP/1.1", f"host: {there.netloc}", "content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()
    return writer


async def test_clients_that_do_not_read_are_dropped():
    model = FakeModel(*[[WORD] * 100_000 for _ in range(2)], says("hello"))
    async with listening(model, settings=Settings(queue=2, stalled_seconds=0.5)) as url, httpx2.AsyncClient(timeout=30) as asking:
        writers = [await _never_reads(url) for _ in range(2)]
        await until(lambda: model.open == 2)
        await until(lambda: model.open == 0)
        assert (await asking.post(url + CHAT, json=ASK)).status_code == 200
        for writer in writers:
            writer.transport.abort()


async def test_a_caller_who_has_all_places_does_not_shut_out_another():
    model = FakeModel(*[[Text("a"), 60.0] for _ in range(4)], says("hello"))
    async with (
        listening(model, settings=Settings(queue=4, keys=KEYS)) as url,
        httpx2.AsyncClient(base_url=url, timeout=30) as asking,
        AsyncExitStack() as streams,
    ):
        for _ in range(4):
            await streams.enter_async_context(asking.stream("POST", CHAT, json={**ASK, "stream": True}, headers=ALICE))
        await until(lambda: model.open == 4)
        assert (await asking.post(CHAT, json=ASK, headers=ALICE)).status_code == 429
        assert (await asking.post(CHAT, json=ASK, headers=BOB)).status_code == 200


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/api/chat", "/v1/responses", "/v1/completions"])
async def test_requests_a_minute_are_limited_for_each_key_in_every_dialect(path: str):
    keys = {"alice": Key(hash_key("alice"), requests_per_minute=2), "bob": KEYS["bob"]}
    body = {**ASK, "input": "hi", "stream": False} | ({"prompt": "hi"} if path == "/v1/completions" else {})
    async with (
        listening(FakeModel(says("a")), settings=Settings(keys=keys)) as url,
        httpx2.AsyncClient(base_url=url, timeout=30) as asking,
    ):
        first, _, third = [await asking.post(path, json=body, headers=ALICE) for _ in range(3)]
        other = await asking.post(path, json=body, headers=BOB)
    if path != "/v1/completions":  # which this model does not have
        assert first.status_code == other.status_code == 200
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert third.status_code == 429
    assert 1 <= int(third.headers["retry-after"]) <= 31
    assert third.headers["x-ratelimit-remaining-requests"] == "0"
    assert "error" in third.json()
    assert "x-ratelimit-limit-requests" not in other.headers


async def test_tokens_a_minute_are_limited():
    spends = [Text("a"), Stopped("stop", Usage(900, 200))]
    limits = CallerLimits(tokens_per_minute=1000)
    async with listening(FakeModel(spends), settings=Settings(callers=limits)) as url, httpx2.AsyncClient(base_url=url) as asking:
        first, second = [await asking.post(CHAT, json=ASK) for _ in range(2)]
    assert first.status_code == 200
    assert (second.status_code, second.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert second.headers["x-ratelimit-remaining-tokens"] == "0"


async def test_answers_at_a_time_are_limited_for_one_caller():
    model = FakeModel([Text("a"), 60.0])
    async with (
        listening(model, settings=Settings(callers=CallerLimits(concurrent=1))) as url,
        httpx2.AsyncClient(base_url=url, timeout=30) as asking,
        asking.stream("POST", CHAT, json={**ASK, "stream": True}),
    ):
        await until(lambda: model.open == 1)
        refused = await asking.post(CHAT, json=ASK)
    assert refused.status_code == 429
    assert "1 answers are being given to this caller" in refused.text


def test_what_a_caller_has_left_comes_back_with_time():
    now = 0.0
    rates, limits = RateLimits(lambda: now), CallerLimits(requests_per_minute=2)
    for _ in range(2):
        rates.admit("alice", limits)
    with pytest.raises(RateLimited) as refused:
        rates.admit("alice", limits)
    assert refused.value.seconds == pytest.approx(30)
    rates.admit("bob", limits)
    now = 30.0
    rates.admit("alice", limits)
    with pytest.raises(RateLimited):
        rates.admit("alice", limits)


def test_limits_are_settings_of_all_callers_and_of_a_key():
    values = {"callers.concurrent": 3, "keys.alice.sha256": hash_key("a"), "keys.alice.requests_per_minute": 5}
    settings = merge_settings(SettingsSource("a test", values)).settings
    assert settings.callers == CallerLimits(concurrent=3)
    assert settings.keys["alice"].requests_per_minute == 5


def test_an_answer_has_a_deadline_by_default():
    assert Settings().request_seconds == 600
