"""Jobs as a way to see, stop or exhaust what is another's: other callers' jobs do not exist, and one's own are bounded."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import httpx2

from callsmith.core.ports import Context
from callsmith.core.values import Call, Result
from callsmith.runtime.jobs.background import JOB_ID, BackgroundTools
from callsmith.runtime.jobs.job import JobLimits
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.jobs import StoredJobs
from callsmith.server.settings import Key, Settings
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel
from tests.server.asking import calls, http, says
from tests.server.test_jobs import DRAW, Studio, ask, ended, results

KEYS = {name: Key(hash_key(name), scopes=("admin",) if name == "ops" else ()) for name in ("alice", "bob", "ops")}


def client_of(app: Any, name: str) -> httpx2.AsyncClient:
    client = http(app)
    client.headers["authorization"] = f"Bearer {name}"
    return client


async def test_a_job_of_another_caller_is_neither_seen_nor_stopped_nor_brought_into_a_conversation():
    studio, model = Studio(), FakeModel(calls(DRAW), says("I am drawing."))
    app = create_app({"m": model}, tools=studio.tools, settings=Settings(keys=KEYS))
    async with AsyncExitStack() as stack:
        alice, bob, ops = [await stack.enter_async_context(client_of(app, name)) for name in KEYS]
        (id,) = JOB_ID.findall(await ask(alice, session_id="talk"))
        assert (await bob.get("/v1/jobs")).json()["data"] == []
        for answer in (
            await bob.get(f"/v1/jobs/{id}"),
            await bob.get(f"/v1/jobs/{id}/events"),
            await bob.delete(f"/v1/jobs/{id}"),
        ):
            assert answer.status_code == 404
            assert "alice" not in answer.text
        (seen,) = (await ops.get("/v1/jobs")).json()["data"]
        assert (seen["id"], seen["caller"], seen["status"]) == (id, "alice", "running")
        studio.done.set()
        assert (await ended(alice, id))["status"] == "done"
        body = [seen, (await ops.get(f"/v1/jobs/{id}")).json(), (await ops.get(f"/v1/jobs/{id}/events")).text]
        assert "cat" in (await alice.get(f"/v1/jobs/{id}")).text
        assert "cat" not in str(body)  # an admin sees that there is a job, and nothing of what it is about
        messages = [{"role": "user", "content": f"What is in {id}?"}]
        await ask(bob, messages, session_id="talk")
        assert results(model) == []
        model.answers[:] = [calls(Call("job_result", {"job": id, "seconds": 5}, "c9")), says("Nothing.")]
        await ask(bob, messages, session_id="talk")
        assert [result.startswith("not_found: ") for result in results(model)] == [True]
        model.answers[:] = [says("Here.")]
        await ask(alice, messages)
        assert [result.startswith("a cat.png") for result in results(model)] == [True]


async def test_of_ten_thousand_jobs_a_few_run_and_the_rest_are_refused():
    studio, store = Studio(), SqliteStore()
    jobs = Jobs(StoredJobs(store, JobLimits()), JobLimits())
    toolset = BackgroundTools(studio.tools, jobs)

    async def draw(number: int) -> str:
        (result,) = [item async for item in toolset.call(Call("draw", {"what": str(number)}, "c"), Context(subject="alice"))]
        assert isinstance(result, Result)
        return result.code

    codes = [code for start in range(0, 10_000, 100) for code in await asyncio.gather(*map(draw, range(start, start + 100)))]
    assert (codes.count("accepted"), codes.count("limit_reached")) == (16, 9_984)
    assert len(studio.drawn) == len(await store.list("job/alice", limit=1000)) == 16
    await jobs.close()


async def test_a_result_of_50_megabytes_is_cut_before_it_is_stored():
    @tool(background=True)
    async def draw(what: str) -> str:
        return "x" * 50_000_000

    store = SqliteStore()
    async with http(create_app({"m": FakeModel(calls(DRAW), says("…"))}, tools=Functions(draw), store=store)) as client:
        (id,) = JOB_ID.findall(await ask(client))
        job = await ended(client, id)
        assert len(job["result"]["content"]) < 41_000
        assert "49,960,000 of 50,000,000 characters are missing" in job["result"]["content"]
        assert len(str((await store.get("job", id))[id].data)) < 50_000


async def test_two_servers_that_share_a_store_do_not_run_a_job_twice_and_either_can_stop_it(tmp_path: Any):
    studio, model = Studio(), FakeModel(calls(DRAW), says("I am drawing."))
    apps = [create_app({"m": model}, tools=studio.tools, store=SqliteStore(str(tmp_path / "s.db"))) for _ in range(2)]
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(http(app)) for app in apps]
        (id,) = JOB_ID.findall(await ask(here))
        await stack.enter_async_context(apps[1].router.lifespan_context(apps[1]))  # looks for jobs to take over
        await asyncio.sleep(0.3)
        assert studio.drawn == ["a cat"]
        assert (await there.get(f"/v1/jobs/{id}")).json()["status"] == "running"
        assert (await there.delete(f"/v1/jobs/{id}")).json()["status"] == "cancelled"
        studio.done.set()
        await asyncio.sleep(0.1)
        assert (await here.get(f"/v1/jobs/{id}")).json()["status"] == "cancelled"
