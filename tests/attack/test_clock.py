"""A clock that jumps, forwards or backwards: what goes on is not declared dead for it, and what is dead does not stay alive."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.approval import Approved
from callsmith.core.values import Call, Tool
from callsmith.runtime.jobs.background import JOB_ID
from callsmith.runtime.jobs.job import Job, JobLimits
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.server.app import create_app
from callsmith.server.approvals.approvals import Approvals
from callsmith.server.jobs import StoredJobs
from callsmith.server.store import leases as module
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel
from tests.server.approvals.shop import PAY, Shop, asked, pending
from tests.server.asking import calls, http, says
from tests.server.test_jobs import DRAW, Studio, ask, ended
from tests.waiting import until

HOUR = 3600.0
JUMPS = pytest.mark.parametrize("hours", [1, -1])


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock on by so many seconds, for all that is open and will be."""
    real, ahead = time.time, 0.0
    monkeypatch.setattr(module, "LEASE_SECONDS", 3.0)
    monkeypatch.setattr(time, "time", lambda: real() + ahead)

    def set_on(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    return set_on


def opened(path: Path) -> SqliteStore:
    return SqliteStore(str(path / "store.db"), clock=lambda: time.time())


@JUMPS
async def test_a_lease_that_is_renewed_is_nobody_elses(tmp_path: Path, jump: Any, hours: int):
    here, there = Approvals(opened(tmp_path)), Approvals(opened(tmp_path))
    async with here.leases.take("run_1") as mine:
        jump(hours * HOUR)
        async with there.leases.take("run_1") as theirs, here.leases.take("run_1") as again:
            assert (mine, theirs, again) == (True, False, False)
        await asyncio.sleep(1.2)  # until it is renewed
        assert await there.leases.is_taken("run_1")
    async with asyncio.timeout(1), there.leases.take("run_1") as free:  # whoever lets go of it makes nobody wait
        assert free


@JUMPS
async def test_a_lease_whose_holder_is_gone_does_not_outlive_it(
    tmp_path: Path, jump: Any, hours: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module.Leases, "_renew", lambda *_: asyncio.sleep(HOUR))
    here, there = Approvals(opened(tmp_path)), Approvals(opened(tmp_path))
    async with here.leases.take("run_1"):
        jump(hours * HOUR)
        assert not await there.leases.is_taken("run_1")
        async with asyncio.timeout(5), there.leases.take("run_1") as theirs:
            assert theirs


@JUMPS
async def test_a_job_that_runs_is_not_taken_over_by_another_server(tmp_path: Path, jump: Any, hours: int):
    studio, model = Studio(), FakeModel(calls(DRAW), says("I am drawing."))
    apps = [create_app({"m": model}, tools=studio.tools, store=opened(tmp_path)) for _ in range(2)]
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(http(app)) for app in apps]
        (id,) = JOB_ID.findall(await ask(here))
        jump(hours * HOUR)
        await stack.enter_async_context(apps[1].router.lifespan_context(apps[1]))  # looks for jobs to take over
        await asyncio.sleep(2)
        assert studio.drawn == ["a cat"]
        body = (await there.get(f"/v1/jobs/{id}")).json()
        assert (body["status"], body["seconds"] >= 0) == ("running", True)
        studio.done.set()
        assert (await ended(here, id))["status"] == "done"
    assert studio.drawn == ["a cat"]


@JUMPS
async def test_an_approved_call_that_runs_is_not_declared_interrupted(tmp_path: Path, jump: Any, hours: int):
    shop, store = Shop(seconds=3.0), opened(tmp_path)
    async with http(create_app({"m": FakeModel(calls(PAY), says("Done."))}, tools=shop.tools, store=store)) as asking:
        (id,) = await asked(asking)
        deciding = asyncio.create_task(asking.post(f"/v1/approvals/{id}", json={"approve": True}))
        await until(lambda: shop.paid)
        jump(hours * HOUR)
        await Approvals(opened(tmp_path)).interrupt_abandoned()  # as every server that shares the store does
        again = await asking.post(f"/v1/approvals/{id}", json={"approve": True})
        done = (await deciding).json()
    assert again.status_code == 409
    assert (done["status"], done["result"]["content"], done["answer"]["text"]) == ("done", "paid 5", "Done.")
    assert len(shop.paid) == 1


@JUMPS
async def test_a_call_whose_server_is_gone_is_found_out(tmp_path: Path, jump: Any, hours: int):
    approvals = Approvals(opened(tmp_path))
    approval = await approvals.decide(await pending(approvals), Approved())
    await approvals.write_one(approval.as_running())
    jump(hours * HOUR)
    await approvals.interrupt_abandoned()
    stored = (await approvals.get("confirm_1"))["confirm_1"]
    assert stored.result is not None and stored.result.code == "interrupted"


@JUMPS
async def test_an_answer_in_the_background_is_not_declared_failed(tmp_path: Path, jump: Any, hours: int):
    app = create_app({"m": FakeModel([*says("Slow")[:-1], 2.5, *says(" answer.")])}, store=opened(tmp_path))
    other = create_app({"m": FakeModel()}, store=opened(tmp_path))
    async with http(app) as here, http(other) as there:
        id = (await here.post("/v1/responses", json={"model": "m", "input": "a", "background": True})).json()["id"]
        jump(hours * HOUR)
        assert (await there.get(f"/v1/responses/{id}")).json()["status"] in ("queued", "in_progress")
        async with asyncio.timeout(20):
            while (body := (await here.get(f"/v1/responses/{id}")).json())["status"] in ("queued", "in_progress"):
                await asyncio.sleep(0.05)
    assert body["status"] == "completed"


async def test_a_job_gets_no_more_time_when_the_clock_is_set_back(jump: Any):
    studio, limits = Studio(), JobLimits(seconds=0.5)
    store = SqliteStore(clock=lambda: time.time())
    storage = StoredJobs(store, limits)
    await storage.write(Job("job_1", DRAW, Tool("draw"), "", "", time.time(), repeatable=True))  # its server is gone
    jump(-HOUR)
    jobs = Jobs(storage, limits)
    await jobs.take_over("", studio.tools)
    job = await jobs.get("", "job_1")
    assert job is not None
    over = await asyncio.wait_for(storage.wait_for_end(job), 10)
    assert over is not None and over.result is not None and over.result.code == "timeout"


async def test_many_jobs_of_a_server_that_is_gone_are_taken_up_at_once(
    tmp_path: Path, jump: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module.Leases, "_renew", lambda *_: asyncio.sleep(HOUR))
    limits = JobLimits()
    gone, here = StoredJobs(opened(tmp_path), limits), StoredJobs(opened(tmp_path), limits)
    async with AsyncExitStack() as leases:
        for number in range(8):
            job = Job(f"job_{number}", Call("pay", {}, "c"), Tool("pay", side_effects=True), "", "", time.time())
            await leases.enter_async_context(gone.lease(job))
            await gone.write(job)
        jump(4.0)
        async with asyncio.timeout(6):
            await Jobs(here, limits).take_over("", None)
    assert {job.status for job in await here.list("")} == {"interrupted"}
