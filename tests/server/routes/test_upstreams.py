"""Which servers answer for a model: seen and drained by an admin, counted in the metrics, and a part of being ready."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256

import httpx2
import pytest

from callsmith.models.remote.model import RemoteModel
from callsmith.server.app import create_app
from callsmith.server.settings import Key, Settings
from tests.models.remote.scripted import chat, remote
from tests.scripted_server import scripted
from tests.server.asking import HI, http

ADMIN = {"authorization": "Bearer admin"}
USER = {"authorization": "Bearer user"}
KEYS = {name: Key(sha256(name.encode()).hexdigest(), scopes=("admin",) * (name == "admin")) for name in ("admin", "user")}
WITH_KEYS = Settings(keys=KEYS)


@asynccontextmanager
async def gateway(settings: Settings = WITH_KEYS) -> AsyncIterator[tuple[httpx2.AsyncClient, RemoteModel]]:
    async with scripted(chat({"content": "fine"})) as first, scripted(chat({"content": "fine"})) as other:
        model = remote([first, other])
        async with http(create_app({"m": model}, settings=settings)) as client:
            yield client, model
        await model.close()


async def test_a_server_is_drained_by_an_admin_and_gets_no_requests_until_it_is_taken_back() -> None:
    async with gateway() as (client, model):
        first, second = [replica.url for replica in model.upstream.replicas.all]
        drained = await client.post("/v1/upstreams", json={"url": first, "draining": True}, headers=ADMIN)
        assert [replica["state"] for replica in drained.json()["upstreams"]["m"]] == ["draining", "up"]
        for number in range(12):
            body = {"model": "m", "messages": HI, "session_id": str(number)}
            assert (await client.post("/v1/chat/completions", json=body, headers=USER)).status_code == 200
        seen = (await client.get("/v1/upstreams", headers=ADMIN)).json()["upstreams"]["m"]
        assert [item["requests"] for item in seen] == [0, 12]
        both = await client.post("/v1/upstreams", json={"url": second, "draining": True}, headers=ADMIN)
        assert [replica["state"] for replica in both.json()["upstreams"]["m"]] == ["draining", "draining"]
        away = await client.post("/v1/chat/completions", json={"model": "m", "messages": HI}, headers=USER)
        assert (away.status_code, away.headers["retry-after"]) == (503, "60")
        ready = await client.get("/ready", headers=ADMIN)
        assert (ready.status_code, ready.json()["why"]) == (503, "no server answers for: m")
        assert (await client.get("/ready?without=store,upstreams", headers=ADMIN)).json() == {"ready": True}
        await client.post("/v1/upstreams", json={"url": second, "draining": False}, headers=ADMIN)
        assert (await client.get("/ready", headers=ADMIN)).json() == {"ready": True}


async def test_what_is_asked_for_wrongly_is_said() -> None:
    async with gateway() as (client, model):
        first = model.upstream.replicas.all[0].url
        for body, message in (
            ({"url": "http://elsewhere", "draining": True}, "unknown upstream"),
            ({"url": first}, "draining: is required"),
            ({"draining": True}, "url"),
        ):
            answer = await client.post("/v1/upstreams", json=body, headers=ADMIN)
            assert (answer.status_code, message in answer.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_nobody_but_an_admin_sees_or_drains_them(method: str) -> None:
    async with gateway() as (client, model):
        url = model.upstream.replicas.all[0].url
        refused = await client.request(method, "/v1/upstreams", json={"url": url, "draining": True}, headers=USER)
        assert (refused.status_code, url in refused.text) == (403, False)
        for path in ("/health", "/metrics"):
            assert url not in (await client.get(path, headers=USER)).text
            assert url in (await client.get(path, headers=ADMIN)).text
        assert not model.upstream.replicas.all[0].is_draining


async def test_a_server_that_is_open_to_all_lets_nobody_drain() -> None:
    async with gateway(Settings(open=True)) as (client, model):
        url = model.upstream.replicas.all[0].url
        assert (await client.post("/v1/upstreams", json={"url": url, "draining": True})).status_code == 403


async def test_the_metrics_count_requests_and_failures_of_each_server() -> None:
    async with gateway() as (client, model):
        await client.post("/v1/chat/completions", json={"model": "m", "messages": HI}, headers=USER)
        text = (await client.get("/metrics", headers=ADMIN)).text
        used, other = sorted(model.upstream.replicas.all, key=lambda replica: -replica.requests)
        assert f'callsmith_upstream_requests_total{{model="m",upstream="{used.url}"}} 1.0' in text
        assert f'callsmith_upstream_requests_total{{model="m",upstream="{other.url}"}} 0.0' in text
        assert f'callsmith_upstream_up{{model="m",upstream="{used.url}"}} 1.0' in text
        assert f'callsmith_upstream_answering{{model="m",upstream="{used.url}"}} 0.0' in text
