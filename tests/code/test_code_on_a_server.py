"""run_code on a server: offered in place of the tools, approved over HTTP, and taken up by another server."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("pydantic_monty")

from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.server.settings import Llm, Settings
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel
from tests.server.approvals.shop import Shop, answer, ask, asked, listed
from tests.server.asking import calls, http, says
from tests.serving import killed_program
from tests.waiting import until

CODE = "first = pay(5)\nprint(first, tip(1))"
SETTINGS = Settings(llm=Llm(tools_code=True))


def written(code: str = CODE) -> Call:
    return Call("run_code", {"code": code}, "c1")


def app_of(model: FakeModel, shop: Shop, store: Path | None = None, settings: Settings = SETTINGS) -> Any:
    return create_app({"m": model}, tools=shop.tools, settings=settings, store=SqliteStore(str(store)) if store else None)


async def test_it_is_off_unless_wanted():
    model = FakeModel(says("Hello."))
    async with http(app_of(model, Shop(), settings=Settings())) as asking:
        await ask(asking)
    assert [tool.name for tool in model.asked[0].tools] == ["pay", "tip"]


async def test_the_model_is_offered_code_in_place_of_the_tools():
    model = FakeModel(says("Hello."))
    async with http(app_of(model, Shop())) as asking:
        await ask(asking)
    (offered,) = model.asked[0].tools
    assert offered.name == "run_code"
    assert "def pay(euros: int):" in offered.description


async def test_every_call_of_the_code_is_approved_also_after_a_restart(tmp_path: Path):
    shop, model = Shop(), FakeModel(calls(written()), says("Done."))
    async with http(app_of(model, shop, tmp_path / "store.db")) as asking:
        (first,) = await asked(asking)
        (waiting,) = await listed(asking)
        assert "the code wants to call pay" in waiting["reason"]
    assert shop.paid == []
    async with http(app_of(model, shop, tmp_path / "store.db")) as asking:
        await answer(asking, first, approve=True)
        assert shop.paid == [("pay", 5)]
        (second,) = [item["id"] for item in await listed(asking, status="pending")]
        assert second != first
    async with http(app_of(model, shop, tmp_path / "store.db")) as asking:
        done = await answer(asking, second, approve=True)
    assert done["answer"]["text"] == "Done."
    assert shop.paid == [("pay", 5), ("tip", 1)]
    assert model.asked[-1].messages[-1].content == "paid 5 tipped 1"


async def test_a_denied_call_ends_the_code_where_it_is_not_caught():
    shop, model = Shop(), FakeModel(calls(written()), says("Not paid."))
    async with http(app_of(model, shop)) as asking:
        (id,) = await asked(asking)
        done = await answer(asking, id, approve=False)
    assert done["answer"]["text"] == "Not paid."
    assert shop.paid == []
    assert "line 1: RuntimeError: denied" in model.asked[-1].messages[-1].content


async def test_without_approvals_the_code_runs_through_and_executions_are_audited():
    shop, model = Shop(), FakeModel(calls(written()), says("Done."))
    settings = Settings(llm=Llm(tools_code=True, tools_require_confirmation_for_side_effects=False))
    async with http(app_of(model, shop, settings=settings)) as asking:
        await ask(asking)
        audited = (await asking.get("/v1/audit")).json()["data"]
    assert shop.paid == [("pay", 5), ("tip", 1)]
    names = {entry.get("tool") or entry.get("name") for entry in audited}
    assert {"pay", "tip"} <= names


PROGRAM = """
import asyncio, sys
from pathlib import Path
import uvicorn
from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.server.settings import Llm, Settings
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel, calls, says

folder, hangs = Path(sys.argv[1]), bool(sys.argv[3])

@tool(side_effects=True)
def pay(euros: int) -> str:
    "Pays."
    with (folder / "paid").open("a") as log:
        log.write(f"{euros}\\n")
    return f"paid {euros}"

async def wait() -> str:
    "Waits."
    (folder / "waits").touch()
    await asyncio.sleep(60 if hangs else 0)
    return "waited"

call = Call("run_code", {"code": "print(pay(5), wait())"}, "c1")
model = FakeModel(calls(call), says("Done.")) if hangs else FakeModel(says("Done."))
settings = Settings(llm=Llm(tools_code=True))
store = SqliteStore(str(folder / "store.db"))
app = create_app({"m": model}, tools=Functions(pay, wait), settings=settings, store=store)
uvicorn.run(app, port=int(sys.argv[2]), log_level="critical")
"""


@pytest.mark.processes
async def test_code_goes_on_at_another_server_when_its_own_was_killed(tmp_path: Path):
    with killed_program(PROGRAM, str(tmp_path), "PORT", "hangs") as url:
        asking = httpx2.AsyncClient(base_url=url, timeout=20)
        (id,) = await asked(asking)
        deciding = asyncio.create_task(asking.post(f"/v1/approvals/{id}", json={"approve": True}))
        await until((tmp_path / "waits").exists)
    with pytest.raises(httpx2.TransportError):
        await deciding
    with killed_program(PROGRAM, str(tmp_path), "PORT", "") as url:
        asking = httpx2.AsyncClient(base_url=url, timeout=20)
        async with asyncio.timeout(30):  # until nobody can be at it any more
            while (response := await asking.post(f"/v1/approvals/{id}", json={"approve": True})).status_code == 409:
                await asyncio.sleep(0.2)
        done = response.json()
    assert done["answer"]["text"] == "Done."
    assert done["result"]["content"] == "paid 5 waited"
    assert (tmp_path / "paid").read_text() == "5\n"
