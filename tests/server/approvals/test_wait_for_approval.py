"""Streams that wait for an approval and go on when it comes."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel
from tests.server.approvals.shop import CHAT, PAY, Shop, answer, ask, listed, tool_results
from tests.server.asking import HI, calls, http, listening, says
from tests.waiting import until

ASKING: Any = {"messages": HI}


async def waiting_stream(
    asking: httpx2.AsyncClient, path: str = CHAT, body: Any = ASKING
) -> tuple[asyncio.Task[None], list[str]]:
    """A stream that waits for a word, read until it says so, and its lines so far."""
    lines: list[str] = []

    async def read() -> None:
        wanted = {"model": "m", "stream": True, "wait_for_approval": True, **body}
        async with asking.stream("POST", path, json=wanted) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                lines.append(line)

    reading = asyncio.create_task(read())
    await until(lambda: any("confirm_" in line for line in lines))
    return reading, lines


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, ASKING),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {"messages": HI, "max_tokens": 9}),
        ("/api/chat", {"messages": HI}),
    ],
)
async def test_a_stream_that_waits_goes_on_when_the_word_comes(path: str, body: Any):
    shop, model = Shop(), FakeModel(calls(PAY), says("All done."))
    settings = Settings(keep_alive=0.05)
    async with listening(model, tools=shop.tools, settings=settings) as url, httpx2.AsyncClient(base_url=url) as asking:
        reading, lines = await waiting_stream(asking, path, body)
        seen = len(lines)
        await until(lambda: len(lines) > seen + 3)  # it is kept alive
        assert not reading.done()
        (waiting,) = await listed(asking)
        done = await answer(asking, waiting["id"], approve=True)
        assert done["answer"] is None  # it is in the stream
        await asyncio.wait_for(reading, 60)
        assert "All done." in "\n".join(lines[seen:])
        assert shop.paid == [("pay", 5)]
        assert (await asking.get(f"/v1/approvals/{waiting['id']}")).json()["status"] == "done"


async def test_the_word_may_be_given_to_another_process(tmp_path: Path):
    shop, model = Shop(), FakeModel(calls(PAY), says("All done."))
    store = str(tmp_path / "store.db")
    async with (
        listening(model, tools=shop.tools, store=SqliteStore(store)) as url,
        httpx2.AsyncClient(base_url=url) as asking,
        http(create_app({"m": FakeModel(says("never"))}, tools=Shop().tools, store=SqliteStore(store))) as elsewhere,
    ):
        reading, lines = await waiting_stream(asking)
        (waiting,) = await listed(elsewhere)
        assert (await answer(elsewhere, waiting["id"], approve=True))["answer"] is None
        await asyncio.wait_for(reading, 60)
    assert "All done." in "\n".join(lines)
    assert shop.paid == [("pay", 5)]


async def test_a_stream_waits_no_longer_than_an_approval_stands():
    shop, model = Shop(), FakeModel(calls(PAY), says("Never mind."))
    async with http(create_app({"m": model}, tools=shop.tools, settings=Settings(approval_seconds=0.3))) as asking:
        response = await ask(asking, wait_for_approval=True)
    assert response["choices"][0]["message"]["content"].endswith("\n\nNever mind.")
    assert tool_results(model)[0].startswith("expired")
    assert shop.paid == []


async def test_where_nobody_waits_any_more_the_word_itself_goes_on_with_the_run():
    shop, model = Shop(), FakeModel(calls(PAY), says("Done."))
    async with listening(model, tools=shop.tools) as url, httpx2.AsyncClient(base_url=url) as asking:
        reading, _ = await waiting_stream(asking)
        reading.cancel()
        await asyncio.wait({reading})
        (waiting,) = await listed(asking)
        done = await answer(asking, waiting["id"], approve=True)
    assert done["answer"]["text"] == "Done."
    assert len(shop.paid) == 1


async def test_a_call_that_was_running_when_its_stream_was_left_is_not_run_again():
    shop, model = Shop(seconds=30), FakeModel(calls(PAY), says("Done."))
    async with listening(model, tools=shop.tools) as url, httpx2.AsyncClient(base_url=url) as asking:
        reading, _ = await waiting_stream(asking)
        (waiting,) = await listed(asking)
        await answer(asking, waiting["id"], approve=True)
        await until(lambda: len(shop.paid) == 1)
        reading.cancel()
        await asyncio.wait({reading})
        for _ in range(100):
            view = (await asking.get(f"/v1/approvals/{waiting['id']}")).json()
            if view["status"] == "done":
                break
            await asyncio.sleep(0.05)
        assert view["result"]["code"] == "cancelled"
        assert (await asking.post(f"/v1/approvals/{waiting['id']}", json={"approve": True})).status_code == 409
    assert len(shop.paid) == 1
