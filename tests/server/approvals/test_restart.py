"""Approvals after a restart of the server, and after it was killed."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from callsmith.core.approval import Approved
from callsmith.core.values import Message
from callsmith.server.app import create_app
from callsmith.server.approvals.approvals import Approvals
from callsmith.server.store.leases import LEASE_SECONDS
from callsmith.server.store.sqlite import SqliteStore
from tests.conftest import Clock
from tests.fakes import FakeModel
from tests.server.approvals.shop import PAY, Shop, answer, asked, listed
from tests.server.asking import calls, http, says
from tests.serving import ERASING, killed
from tests.waiting import until

pytestmark = pytest.mark.processes


def app_of(model: FakeModel, store: Path, shop: Shop) -> Starlette:
    return create_app({"m": model}, tools=shop.tools, store=SqliteStore(str(store)))


async def test_what_waits_outlives_the_server(tmp_path: Path):
    shop, later = Shop(), FakeModel(says("Done."))
    options: Any = {"temperature": 0.25, "max_tokens": 99, "response_format": {"type": "json_object"}}
    async with http(app_of(FakeModel(calls(PAY)), tmp_path / "store.db", shop)) as asking:
        (id,) = await asked(asking, **options)
    async with http(app_of(later, tmp_path / "store.db", shop)) as asking:
        assert [item["id"] for item in await listed(asking)] == [id]
        done = await answer(asking, id, approve=True)
    assert done["answer"]["text"] == "Done."
    assert shop.paid == [("pay", 5)]
    (again,) = later.asked
    assert again.messages[0] == Message.user("hi")
    assert (again.sampling.temperature, again.sampling.max_tokens, again.output is not None) == (0.25, 99, True)
    assert [tool.name for tool in again.tools] == ["pay", "tip"]


async def test_a_call_that_was_running_when_the_server_was_killed_is_not_run_again(tmp_path: Path):
    erased = tmp_path / "erased"
    with killed(tmp_path, ERASING, hang=True) as url:
        asking = httpx2.AsyncClient(base_url=url, timeout=20)
        (id,) = await asked(asking)
        deciding = asyncio.create_task(asking.post(f"/v1/approvals/{id}", json={"approve": True}))
        await until(erased.exists)
        assert (await asking.get(f"/v1/approvals/{id}")).json()["status"] == "running"
    with pytest.raises(httpx2.TransportError):
        await deciding
    with killed(tmp_path, "I do not know.") as url:
        asking = httpx2.AsyncClient(base_url=url, timeout=20)
        async with asyncio.timeout(20):  # until nobody can be at it any more
            while (await asking.get(f"/v1/approvals/{id}")).json()["status"] == "running":
                await asyncio.sleep(0.1)
        assert (await asking.post(f"/v1/approvals/{id}", json={"approve": False})).status_code == 409
        done = await answer(asking, id, approve=True)
        assert (done["status"], done["result"]["code"]) == ("done", "interrupted")
        assert done["answer"]["text"] == "I do not know."
        assert (await asking.post(f"/v1/approvals/{id}", json={"approve": True})).status_code == 409
    assert erased.read_text() == "a\n"


async def test_a_call_that_was_approved_but_not_begun_runs_when_it_is_approved_once_more(clock: Clock):
    shop, store = Shop(), SqliteStore()
    async with http(create_app({"m": FakeModel(calls(PAY), says("Done."))}, tools=shop.tools, store=store)) as asking:
        (id,) = await asked(asking)
        approvals = Approvals(store)
        await approvals.decide((await approvals.get(id))[id], Approved())  # and then the process was gone
        assert (await asking.post(f"/v1/approvals/{id}", json={"approve": True})).status_code == 409
        clock.advance(LEASE_SECONDS)
        done = await answer(asking, id, approve=True)
    assert done["answer"]["text"] == "Done."
    assert len(shop.paid) == 1
