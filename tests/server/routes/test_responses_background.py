"""Responses in the background, held against OpenAI's own client: polled, streamed again, cancelled, and cut off."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, RateLimitError

from callsmith.core.errors import Unavailable
from callsmith.core.events import ModelEvent, Text
from callsmith.core.values import Request
from callsmith.server.app import create_app
from callsmith.server.http.keys import new_key
from callsmith.server.settings import Key, Settings
from callsmith.server.store import leases
from callsmith.server.store.sqlite import SqliteStore
from callsmith.wire.sse import FrameReader
from tests.fakes import FakeModel
from tests.server.approvals.shop import PAY, Shop, listed
from tests.server.asking import calls, client, http, listening, says
from tests.serving import killed_program
from tests.waiting import until


class Endless(FakeModel):
    """A model that says one word, and then nothing more."""

    def __init__(self) -> None:
        super().__init__(says(""))
        self.is_silent = False

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.open += 1
        try:
            yield Text("one")
            self.is_silent = True  # the word has been taken
            await asyncio.Event().wait()
        finally:
            self.open -= 1


async def ended(asking: AsyncOpenAI, id: str) -> Any:
    """The response, when it has ended."""
    while (response := await asking.responses.retrieve(id)).status in ("queued", "in_progress"):
        await asyncio.sleep(0.01)
    return response


async def test_a_response_in_the_background_is_polled_until_it_is_complete():
    model = FakeModel([Text("one"), 0.05, *says(" two")])
    asking = client(model)
    response = await asking.responses.create(model="m", input="a", background=True)
    assert (response.status, response.background, response.output) == ("queued", True, [])
    await until(lambda: model.open == 1)
    assert (await asking.responses.retrieve(response.id)).status == "in_progress"
    final = await ended(asking, response.id)
    assert (final.status, final.output_text, final.background) == ("completed", "one two", True)
    after = await asking.responses.create(model="m", input="b", previous_response_id=response.id)
    assert [message.content for message in model.asked[1].messages] == ["a", "one two", "b"]
    assert after.status == "completed"


async def test_it_goes_on_when_its_client_is_gone():
    model = FakeModel([Text("one"), 0.3, *says(" two")])
    async with listening(model) as url:
        body = {"model": "m", "input": "a", "background": True, "stream": True}
        async with httpx2.AsyncClient(base_url=url) as gone, gone.stream("POST", "/v1/responses", json=body) as stream:
            async for data in stream.aiter_bytes():
                id = json.loads(FrameReader().feed(data)[0].data)["response"]["id"]
                break
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as asking:
            assert (await ended(asking, id)).output_text == "one two"


async def test_its_stream_can_be_read_again_from_any_event_on():
    model = FakeModel([Text("one"), Text(" two"), 0.2, Text(" three"), *says(" four")])
    asking = client(model)
    stream = await asking.responses.create(model="m", input="a", background=True, stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    id = events[0].response.id  # pyright: ignore
    again = [event async for event in await asking.responses.retrieve(id, stream=True)]
    assert again == events
    rest = [event async for event in await asking.responses.retrieve(id, stream=True, starting_after=4)]
    assert rest == events[5:]


async def test_a_stream_is_taken_up_while_the_answer_is_being_given():
    model = FakeModel([Text("one"), 0.2, Text(" two"), *says(" three")])
    asking = client(model)
    response = await asking.responses.create(model="m", input="a", background=True)
    await until(lambda: model.open == 1)
    events = [event async for event in await asking.responses.retrieve(response.id, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"


async def test_it_can_be_cancelled_and_that_twice():
    model = Endless()
    asking = client(model)
    response = await asking.responses.create(model="m", input="a", background=True)
    await until(lambda: model.is_silent)
    cancelled = await asking.responses.cancel(response.id)
    assert (cancelled.status, cancelled.output_text, model.open) == ("cancelled", "one", 0)
    assert await asking.responses.cancel(response.id) == cancelled
    assert await asking.responses.retrieve(response.id) == cancelled


async def test_one_that_is_deleted_ends_and_stays_deleted():
    model, store = FakeModel([Text("one"), 30.0, *says(" two")]), SqliteStore()
    asking = client(model, store=store)
    response = await asking.responses.create(model="m", input="a", background=True)
    await until(lambda: model.open == 1)
    await asking.responses.delete(response.id)
    assert (model.open, await store.list("response"), await store.list("response_item")) == (0, (), ())
    with pytest.raises(NotFoundError):
        await asking.responses.retrieve(response.id)


@pytest.mark.parametrize("answer", [Unavailable("gone"), [Text("one"), Unavailable("gone")], RuntimeError("inner secret")])
async def test_one_that_fails_is_failed(answer: Any):
    asking = client(FakeModel(answer))
    response = await asking.responses.create(model="m", input="a", background=True)
    final = await ended(asking, response.id)
    assert (final.status, final.error.code) == ("failed", "server_error")
    assert "secret" not in final.error.message


async def test_one_that_its_server_did_not_live_to_complete_is_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 2.0)
    path = str(tmp_path / "store.db")
    program = f"""
import uvicorn
from callsmith.core.events import Text
from callsmith.server.app import create_app
from callsmith.server.store import leases
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel
leases.LEASE_SECONDS = 2.0
uvicorn.run(create_app({{"m": FakeModel([Text("one"), 60.0])}}, store=SqliteStore({path!r})), port=PORT, log_level="critical")
"""
    with killed_program(program) as url:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as asking:
            response = await asking.responses.create(model="m", input="a", background=True)
            while (await asking.responses.retrieve(response.id)).status != "in_progress":
                await asyncio.sleep(0.01)
        other = client(FakeModel(says("one")), store=SqliteStore(path))  # another process, so to speak
        assert (await other.responses.retrieve(response.id)).status == "queued"
        with pytest.raises(BadRequestError, match="another process"):
            await other.responses.cancel(response.id)
        with pytest.raises(BadRequestError, match="not complete"):
            await other.responses.create(model="m", input="b", previous_response_id=response.id)
    final = await ended(other, response.id)
    assert (final.status, final.error.code) == ("failed", "server_error")
    assert "stopped" in final.error.message


async def test_at_the_end_of_the_server_what_runs_is_stored_as_failed():
    model, store = Endless(), SqliteStore()
    app = create_app({"m": model}, store=store)
    async with app.router.lifespan_context(app):
        async with http(app) as asking:
            body = {"model": "m", "input": "a", "background": True}
            id = (await asking.post("/v1/responses", json=body)).json()["id"]
        await until(lambda: model.is_silent)
    assert model.open == 0
    final = await client(model, store=store).responses.retrieve(id)
    assert (final.status, final.output_text) == ("failed", "one")


async def test_no_more_run_in_the_background_than_are_admitted():
    asking = client(FakeModel([Text("one"), 60.0]), settings=Settings(queue=2))
    created = [await asking.responses.create(model="m", input="a", background=True) for _ in range(2)]
    with pytest.raises(RateLimitError):
        await asking.responses.create(model="m", input="a", background=True)
    await asking.responses.cancel(created[0].id)
    await asking.responses.create(model="m", input="a", background=True)


async def test_it_belongs_to_the_key_that_asked_for_it():
    keys = {name: new_key() for name in ("ann", "bob")}
    settings = Settings(keys={name: Key(hash) for name, (_, hash) in keys.items()})
    model = FakeModel([Text("one"), 30.0])
    async with http(create_app({"m": model}, settings=settings)) as asking:
        ann, bob = ({"authorization": f"Bearer {keys[name][0]}"} for name in ("ann", "bob"))
        created = await asking.post("/v1/responses", json={"model": "m", "input": "a", "background": True}, headers=ann)
        path = f"/v1/responses/{created.json()['id']}"
        assert (await asking.get(path, headers=bob)).status_code == 404
        assert (await asking.get(f"{path}?stream=true", headers=bob)).status_code == 404
        assert (await asking.post(f"{path}/cancel", headers=bob)).status_code == 404
        assert (await asking.delete(path, headers=bob)).status_code == 404
        assert (await asking.post(f"{path}/cancel", headers=ann)).json()["status"] == "cancelled"


async def test_what_cannot_be_streamed_again_is_said():
    asking = client(FakeModel(says("one")))
    response = await asking.responses.create(model="m", input="a")
    with pytest.raises(BadRequestError, match="stream"):
        await asking.responses.retrieve(response.id, stream=True)
    other = await asking.responses.create(model="m", input="a", background=True)
    with pytest.raises(BadRequestError, match="starting_after"):
        await asking.responses.retrieve(other.id, stream=True, starting_after="x")  # pyright: ignore


async def test_one_of_a_conversation_is_added_to_it_when_it_is_complete():
    asking = client(FakeModel([Text("one"), 0.05, *says(" two")]))
    conversation = await asking.conversations.create()
    response = await asking.responses.create(model="m", input="a", background=True, conversation=conversation.id)
    assert [item async for item in asking.conversations.items.list(conversation.id)] == []
    response = await ended(asking, response.id)
    assert response.status == "completed", response.error
    assert len([item async for item in asking.conversations.items.list(conversation.id)]) == 2


async def read_events(asking: httpx2.AsyncClient, seen: list[Any], *, id: str = "", until_type: str = "") -> None:
    """Read the stream of a new response, or one that is taken up behind the last event seen, to its end or to such an event."""
    body = {"model": "m", "input": "a", "background": True, "stream": True, "wait_for_approval": True}
    path = f"/v1/responses/{id}?stream=true&starting_after={seen[-1]['sequence_number']}" if id else "/v1/responses"
    async with asking.stream("GET" if id else "POST", path, json=None if id else body) as response:
        assert response.status_code == 200
        reader = FrameReader()
        async for data in response.aiter_bytes():
            for frame in reader.feed(data):
                seen.append(json.loads(frame.data))
                if until_type and until_type in frame.data:
                    return


@pytest.mark.parametrize("approve", [True, False])
async def test_a_stream_that_waits_for_a_person_is_taken_up_before_and_behind_the_decision(approve: bool):
    shop, model = Shop(), FakeModel(calls(PAY), says("All done."))
    async with listening(model, tools=shop.tools) as url:
        seen: list[Any] = []
        async with httpx2.AsyncClient(base_url=url) as first:  # whose page is reloaded while the call waits
            await read_events(first, seen, until_type="confirm_")
        id = seen[0]["response"]["id"]
        async with httpx2.AsyncClient(base_url=url) as second:
            (waiting,) = await listed(second)
            assert (await second.get(f"/v1/responses/{id}")).json()["status"] == "in_progress"
            reading = asyncio.create_task(read_events(second, seen, id=id))
            decided = (await second.post(f"/v1/approvals/{waiting['id']}", json={"approve": approve})).json()
            assert decided["answer"] is None  # it is in the stream
            await asyncio.wait_for(reading, 60)
            again: list[Any] = [{"sequence_number": -1}]
            await read_events(second, again, id=id)
            late = [event for event in seen if event["sequence_number"] <= 3]
            await read_events(second, late, id=id)
    assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
    assert seen[-1]["type"] == "response.completed"
    assert "All done." in json.dumps(seen[-1])
    assert again[1:] == late == seen
    assert shop.paid == ([("pay", 5)] if approve else [])


async def test_one_that_waits_for_a_person_can_be_cancelled_and_then_nothing_runs():
    shop, model = Shop(), FakeModel(calls(PAY), says("All done."))
    async with listening(model, tools=shop.tools) as url, httpx2.AsyncClient(base_url=url) as asking:
        seen: list[Any] = []
        await read_events(asking, seen, until_type="confirm_")
        id = seen[0]["response"]["id"]
        (waiting,) = await listed(asking)
        assert (await asking.post(f"/v1/responses/{id}/cancel")).json()["status"] == "cancelled"
        await read_events(asking, seen, id=id)
        assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
        assert (await asking.get(f"/v1/responses/{id}")).json()["status"] == "cancelled"
        assert await listed(asking) == []
        assert (await asking.post(f"/v1/approvals/{waiting['id']}", json={"approve": True})).status_code == 404
    assert shop.paid == []


async def test_nor_does_anything_run_for_one_that_is_deleted_while_it_waits():
    shop, model = Shop(), FakeModel(calls(PAY), says("All done."))
    async with listening(model, tools=shop.tools) as url, httpx2.AsyncClient(base_url=url) as asking:
        seen: list[Any] = []
        await read_events(asking, seen, until_type="confirm_")
        (waiting,) = await listed(asking)
        await asking.delete(f"/v1/responses/{seen[0]['response']['id']}")
        assert (await asking.post(f"/v1/approvals/{waiting['id']}", json={"approve": True})).status_code == 404
    assert shop.paid == []


async def test_a_sequence_number_that_is_none_is_refused():
    asking = client(FakeModel(says("one")))
    response = await asking.responses.create(model="m", input="a", background=True)
    for after in ("x", "--1", "9" * 5000):
        with pytest.raises(BadRequestError):
            await asking.get(f"/responses/{response.id}?stream=true&starting_after={after}", cast_to=object)


async def test_a_stream_tells_the_id_before_the_model_has_said_anything():
    model = FakeModel([60.0])
    async with (
        listening(model) as url,
        httpx2.AsyncClient(base_url=url, timeout=20) as asking,
        asking.stream("POST", "/v1/responses", json={"model": "m", "input": "a", "stream": True, "background": True}) as response,
    ):
        events = [json.loads(frame.data) for frame in FrameReader().feed(await anext(response.aiter_bytes()))]
        assert [event["type"] for event in events] == ["response.created", "response.queued"]
        assert events[0]["response"]["status"] == "queued"
        cancelled = (await asking.post(f"/v1/responses/{events[0]['response']['id']}/cancel")).json()
        assert cancelled["status"] == "cancelled"
