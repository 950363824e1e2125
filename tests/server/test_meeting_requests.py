"""Requests that meet each other, or a store that stumbles, between two steps of the server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsmith.core.errors import StoreUnavailable
from callsmith.core.events import Text
from callsmith.core.values import Call
from callsmith.runtime.jobs.job import JobLimits
from callsmith.server.app import create_app
from callsmith.server.routes.responses.stored import RESPONSE_CODEC, StoredResponse
from callsmith.server.settings import CallerLimits, Settings
from callsmith.server.store import Document, leases
from callsmith.server.store.leases import Leases
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel
from tests.server.approvals.shop import PAY, TIP, Shop, answer, listed
from tests.server.approvals.test_wait_for_approval import waiting_stream
from tests.server.asking import HI, calls, http, listening, says
from tests.server.routes.test_responses_background import read_events
from tests.server.test_jobs import DRAW, Studio, ask
from tests.waiting import until

BACKGROUND = {"model": "m", "input": "a", "background": True}


async def test_a_stream_is_taken_up_behind_its_last_event():
    async with listening(FakeModel(says("one"))) as url, httpx2.AsyncClient(base_url=url) as asking:
        seen: list[Any] = []
        await read_events(asking, seen)
        count = len(seen)
        await read_events(asking, seen, id=seen[0]["response"]["id"])
        assert len(seen) == count


async def test_a_job_that_is_cancelled_while_its_end_is_stored_is_over():
    class Slow(SqliteStore):
        is_slow = is_writing = False

        async def put(self, *documents: Document, durable: bool = False) -> None:
            if self.is_slow and any(document.kind == "job" for document in documents):
                self.is_writing = True
                await asyncio.sleep(0.3)
            await super().put(*documents, durable=durable)

    studio, store = Studio(), Slow()
    model = FakeModel(calls(DRAW), says("Drawing."), calls(DRAW), says("Again."))
    app = create_app({"m": model}, tools=studio.tools, store=store, settings=Settings(jobs=JobLimits(running=1)))
    async with http(app) as asking:
        await ask(asking)
        (job,) = (await asking.get("/v1/jobs")).json()["data"]
        following = asyncio.create_task(asking.get(f"/v1/jobs/{job['id']}/events"))
        await asyncio.sleep(0.1)
        store.is_slow = True
        studio.done.set()
        await until(lambda: store.is_writing)
        await asking.delete(f"/v1/jobs/{job['id']}")
        assert (await asking.get(f"/v1/jobs/{job['id']}")).json()["status"] == "done"
        store.is_slow = False
        await ask(asking)
        assert len(studio.drawn) == 2
        await asyncio.wait_for(following, 3)


class BreaksOff(SqliteStore):
    """A store that breaks off once, when a lease is renewed: what was put is there all the same, as the port says."""

    renewed = 0

    async def put(self, *documents: Document, durable: bool = False) -> None:
        await super().put(*documents, durable=durable)
        if documents[0].kind == "held_run" and documents[0].version:
            self.renewed += 1
            if self.renewed == 1:
                raise StoreUnavailable("broken off")


async def test_a_lease_is_renewed_after_a_write_that_the_store_broke_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.6)
    store = BreaksOff()
    async with Leases(store).take("x") as is_ours:
        assert is_ours
        await asyncio.sleep(2)
        assert await Leases(store).is_taken("x")


async def test_nor_is_an_answer_failed_that_is_being_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.6)
    path, model = str(tmp_path / "store.db"), FakeModel([Text("one"), 60.0])
    async with http(create_app({"m": model}, store=BreaksOff(path))) as asking:
        id = (await asking.post("/v1/responses", json=BACKGROUND)).json()["id"]
        await asyncio.sleep(2)
        async with http(create_app({"m": model}, store=SqliteStore(path))) as other:
            assert (await other.get(f"/v1/responses/{id}")).json()["error"] is None
        assert model.open == 1
        await asking.post(f"/v1/responses/{id}/cancel")


async def test_a_response_that_is_deleted_while_it_is_streamed_is_gone():
    model = FakeModel([Text("one"), 1.0, *says(" two")])
    async with listening(model) as url, httpx2.AsyncClient(base_url=url) as asking:
        body = {"model": "m", "input": "a", "stream": True}
        async with asking.stream("POST", "/v1/responses", json=body) as response:
            lines = response.aiter_lines()
            first = await anext(line async for line in lines if line.startswith("data:"))
            path = f"/v1/responses/{json.loads(first[5:])['response']['id']}"
            assert (await asking.get(path)).status_code == 200
            assert (await asking.delete(path)).status_code == 200
            async for _ in lines:
                pass
        assert (await asking.get(path)).status_code == 404


async def test_the_stream_of_a_response_that_was_deleted_is_not_read_again():
    async with http(create_app({"m": FakeModel(says("secret"))})) as asking:
        path = f"/v1/responses/{(await asking.post('/v1/responses', json=BACKGROUND)).json()['id']}"
        await asking.get(f"{path}?stream=true")
        assert (await asking.delete(path)).status_code == 200
        assert (await asking.get(path)).status_code == 404
        assert (await asking.get(f"{path}?stream=true")).status_code == 404


async def test_a_response_that_another_server_has_deleted_does_not_come_back(tmp_path: Path):
    path, model = str(tmp_path / "store.db"), FakeModel([Text("one"), 0.5, *says(" two")])
    app, elsewhere = (create_app({"m": model}, store=SqliteStore(path)) for _ in range(2))
    async with http(app) as asking, http(elsewhere) as other:
        id = (await asking.post("/v1/responses", json=BACKGROUND)).json()["id"]
        await until(lambda: model.open == 1)
        assert (await other.delete(f"/v1/responses/{id}")).json()["deleted"]
        await asking.get(f"/v1/responses/{id}?stream=true")
        assert (await other.get(f"/v1/responses/{id}")).status_code == 404


@pytest.mark.parametrize("whole", [True, False])
async def test_what_another_conversation_only_refers_to_stays_when_that_is_deleted(whole: bool):
    async with http(create_app({"m": FakeModel(says("one"))})) as asking:
        items = [{"type": "message", "role": "user", "content": "hello"}]
        one = (await asking.post("/v1/conversations", json={"items": items})).json()["id"]
        two = (await asking.post("/v1/conversations", json={})).json()["id"]
        (item,) = (await asking.get(f"/v1/conversations/{one}/items")).json()["data"]
        body = {"model": "m", "conversation": two, "input": [{"type": "item_reference", "id": item["id"]}]}
        assert (await asking.post("/v1/responses", json=body)).status_code == 200
        first = (await asking.get(f"/v1/conversations/{two}/items?order=asc")).json()["data"][0]
        await asking.delete(f"/v1/conversations/{two}" if whole else f"/v1/conversations/{two}/items/{first['id']}")
        assert (await asking.get(f"/v1/conversations/{one}/items")).json()["data"] == [item]


class SlowReader:
    """A client that reads only while it is told to: what is sent meanwhile waits, as it does where a socket is full."""

    def __init__(self, **body: Any) -> None:
        self._request = [{"type": "http.request", "body": json.dumps(body).encode()}]
        self.received = b""
        self.reads, self.is_full = asyncio.Event(), False
        self.reads.set()

    async def receive(self) -> Any:
        return self._request.pop() if self._request else await asyncio.Event().wait()

    async def send(self, message: Any) -> None:
        self.is_full = not self.reads.is_set()
        await self.reads.wait()
        self.received += message.get("body", b"")

    async def ask(self, app: Any, path: str) -> None:
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        about = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path, "query_string": b""}
        await app({**about, "headers": headers, "client": ("127.0.0.1", 1), "server": ("localhost", 80)}, self.receive, self.send)


async def test_a_stream_whose_client_reads_slowly_ends_as_cancelled_too():
    model = FakeModel([Text("one"), 0.1, Text(" two"), 60.0])
    app, reader = create_app({"m": model}), SlowReader(model="m", input="a", stream=True)
    reading = asyncio.create_task(reader.ask(app, "/v1/responses"))
    await until(lambda: b"one" in reader.received)
    reader.reads.clear()
    await until(lambda: reader.is_full)
    path = "/v1/responses/" + json.loads(reader.received.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
    async with http(app) as asking:
        cancelling = asyncio.create_task(asking.post(f"{path}/cancel"))
        await asyncio.sleep(0.2)
        reader.reads.set()
        assert (await cancelling).json()["status"] == "cancelled"
        await asyncio.wait_for(reading, 10)
        events = [json.loads(data.split(b"\n")[0]) for data in reader.received.split(b"data: ")[1:]]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"] == (await asking.get(path)).json()


async def test_a_response_that_was_cut_off_may_be_deleted_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.6)
    store, model = SqliteStore(), FakeModel(says("one"))
    id = "resp_1"
    response = {"id": id, "status": "queued", "output": []}
    await store.put(Document("response", id, RESPONSE_CODEC.write(StoredResponse(response, id, (), (), ()))))
    await store.put(Document("held_run", id, "a server that was killed", expires=1.0))
    async with http(create_app({"m": model}, store=store)) as asking:
        looking = asyncio.create_task(asking.get(f"/v1/responses/{id}"))
        await asyncio.sleep(0.1)
        assert (await asking.delete(f"/v1/responses/{id}")).status_code == 200
        assert (await looking).status_code == 404


async def test_no_more_are_accepted_at_once_than_one_after_another():
    app = create_app({"m": FakeModel([Text("one"), 60.0])}, settings=Settings(queue=2))
    async with http(app) as asking:
        created = await asyncio.gather(*(asking.post("/v1/responses", json=BACKGROUND) for _ in range(4)))
        assert sorted(response.status_code for response in created) == [200, 200, 429, 429]


async def test_nor_more_than_the_caller_may_have():
    settings = Settings(callers=CallerLimits(concurrent=1))
    async with http(create_app({"m": FakeModel([Text("one"), 60.0])}, settings=settings)) as asking:
        created = [await asking.post("/v1/responses", json=BACKGROUND) for _ in range(2)]
        assert [response.status_code for response in created] == [200, 429]


async def test_what_two_runs_of_a_session_were_granted_is_granted():
    shop, again = Shop(), Call("tip", {"euros": 7}, "t2")
    model = FakeModel(calls(PAY), calls(TIP), says("Done."), says("Done."), calls(again), says("Done."))
    async with listening(model, tools=shop.tools) as url, httpx2.AsyncClient(base_url=url) as asking:
        streams = [(await waiting_stream(asking, body={"messages": HI, "session_id": "talk"}))[0] for _ in range(2)]
        for waiting in await listed(asking):
            await answer(asking, waiting["id"], approve=True, remember=True)
        await asyncio.gather(*streams)
        await ask(asking, session_id="talk")
        assert await listed(asking) == []


async def test_a_job_whose_client_left_while_it_was_stored_is_not_left_behind():
    class Slow(SqliteStore):
        is_writing = False

        async def put(self, *documents: Document, durable: bool = False) -> None:
            await super().put(*documents, durable=durable)
            if any(document.kind == "job" for document in documents):
                self.is_writing = True
                await asyncio.sleep(0.3)

    studio, store = Studio(), Slow()
    async with http(create_app({"m": FakeModel(calls(DRAW), says("x"))}, tools=studio.tools, store=store)) as asking:
        leaving = asyncio.create_task(ask(asking))
        await until(lambda: store.is_writing)
        leaving.cancel()
        await asyncio.wait([leaving])
        await asyncio.sleep(0.5)
        running = [job["status"] for job in (await asking.get("/v1/jobs")).json()["data"]]
        assert "running" not in running and studio.drawn == []
