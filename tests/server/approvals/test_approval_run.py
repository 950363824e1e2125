"""A run in the store: its calls write at once, and no write is lost."""

import asyncio

from callsmith.core.serialize import Saved
from callsmith.core.values import Call, Message, Request
from callsmith.server.app import create_app
from callsmith.server.approvals.approval_run import RunStorage
from callsmith.server.approvals.approvals import Approvals, PausedRun
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool
from callsmith.wire.extensions import ToolOptions
from tests.fakes import FakeModel
from tests.server.approvals.shop import PAY, answer, asked, tool_results
from tests.server.asking import calls, http, says


async def test_calls_at_once_after_an_approval_are_all_run():
    @tool
    async def look(place: int) -> str:
        await asyncio.sleep(0.01)
        return f"seen {place}"

    @tool(side_effects=True)
    async def pay(euros: int) -> str:
        return f"paid {euros}"

    looks = [Call("look", {"place": place}, f"l{place}") for place in range(4)]
    model = FakeModel(calls(PAY), calls(*looks), says("Done."))
    async with http(create_app({"m": model}, tools=Functions(pay, look))) as asking:
        (id,) = await asked(asking)
        done = await answer(asking, id, approve=True)
    assert tool_results(model) == ["paid 5", "seen 0", "seen 1", "seen 2", "seen 3"]
    assert done["answer"]["text"] == "Done."


async def test_a_write_whose_call_was_cancelled_is_finished():
    def saved(*messages: str) -> Saved:
        return Saved("c", tuple(map(Message.user, messages)))

    approvals = Approvals(SqliteStore())
    storage = RunStorage(approvals, PausedRun("run_1", "m", Request(()), ToolOptions(), saved(), 0))
    cancelled = asyncio.create_task(storage.write(saved("one")))
    await asyncio.sleep(0)
    cancelled.cancel()
    await storage.write(saved("one", "two"))
    stored = await approvals.get_run("run_1")
    assert stored is not None
    assert (stored.saved, stored.version) == (saved("one", "two"), 2)
