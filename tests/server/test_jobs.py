"""Jobs of a server: begun by a request, listed, followed and cancelled, and their results brought to whoever continues."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from callsmith.core.errors import ModelError, StoreUnavailable
from callsmith.core.events import ToolProgress
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.jobs.background import JOB_ID
from callsmith.runtime.jobs.job import Job, JobLimits
from callsmith.server import jobs as module
from callsmith.server.app import create_app
from callsmith.server.jobs import StoredJobs
from callsmith.server.settings import Llm, Settings
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel, StrictFakeModel
from tests.server.asking import HI, WEATHER, calls, http, says
from tests.waiting import until

DRAW = Call("draw", {"what": "a cat"}, "c1")


class Studio:
    """A tool that draws until it is told to finish."""

    def __init__(self, **options: Any) -> None:
        self.done = asyncio.Event()
        self.drawn: list[str] = []

        @tool(background=True, **options)
        async def draw(what: str) -> AsyncIterator[Any]:
            self.drawn.append(what)
            yield ToolProgress("", "drawing", 1, 2)
            await self.done.wait()
            yield f"{what}.png"

        self.tools = Functions(draw)


async def ask(client: httpx2.AsyncClient, messages: Any = HI, **more: Any) -> str:
    answer = await client.post("/v1/chat/completions", json={"model": "m", "messages": messages, **more})
    return answer.json()["choices"][0]["message"]["content"]


async def ended(client: httpx2.AsyncClient, id: str) -> Any:
    for _ in range(200):
        job = (await client.get(f"/v1/jobs/{id}")).json()
        if job["status"] != "running":
            return job
        await asyncio.sleep(0.01)
    raise AssertionError("the job does not end")


def results(model: FakeModel) -> list[str]:
    """What the model was told last of its calls."""
    return [message.content for message in model.asked[-1].messages if message.role == "tool"]


@pytest.mark.req("R217")
async def test_the_result_of_a_job_comes_with_the_next_request_of_the_session():
    studio, model = Studio(), StrictFakeModel(calls(DRAW), says("I am drawing."), says("Soon."), says("Here."), says("Yes."))
    async with http(create_app({"m": model}, tools=studio.tools)) as client:
        answer = await ask(client, session_id="talk")
        (job,) = (await client.get("/v1/jobs")).json()["data"]
        assert answer == f"I am drawing.\n\n(draw goes on in the background: {job['id']}.)"
        assert (job["status"], job["tool"], job["arguments"], job["session_id"]) == ("running", "draw", {"what": "a cat"}, "talk")
        assert job["progress"] == {"text": "drawing", "current": 1, "total": 2}
        assert await ask(client, session_id="talk") == "Soon."
        assert results(model) == []
        studio.done.set()
        assert (await ended(client, job["id"]))["result"] == {"ok": True, "content": "a cat.png", "code": None}
        assert await ask(client, session_id="talk") == "Here."
        (result,) = results(model)
        assert result.startswith("a cat.png\n(This is the result of draw")
        assert await ask(client, session_id="talk") == "Yes."
        assert results(model) == []  # once is enough
    assert studio.drawn == ["a cat"]


@pytest.mark.req("R217")
async def test_the_result_comes_again_where_the_turn_it_came_in_was_lost():
    leaves, fails = [*says("He")[:1], 60.0], ModelError("it has crashed")
    studio, model = Studio(), StrictFakeModel(calls(DRAW), says("I am drawing."), leaves, fails, says("Here."), says("Yes."))
    async with http(create_app({"m": model}, tools=studio.tools)) as client:
        await ask(client, session_id="talk")
        (job,) = (await client.get("/v1/jobs")).json()["data"]
        studio.done.set()
        await ended(client, job["id"])
        asking = asyncio.create_task(ask(client, session_id="talk"))
        await until(lambda: len(model.asked) == 3)
        asking.cancel()
        await asyncio.wait([asking])
        await until(lambda: model.open == 0)
        body = {"model": "m", "messages": HI, "session_id": "talk"}
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 500
        assert await ask(client, session_id="talk") == "Here."
        assert [result.startswith("a cat.png") for result in results(model)] == [True]
        assert await ask(client, session_id="talk") == "Yes."
        assert results(model) == []
    assert studio.drawn == ["a cat"]


@pytest.mark.req("R217")
async def test_without_a_session_the_id_in_the_history_is_enough_in_every_dialect():
    for path, read in (
        ("/v1/chat/completions", lambda body: body["choices"][0]["message"]["content"]),
        ("/v1/messages", lambda body: body["content"][0]["text"]),
        ("/api/chat", lambda body: body["message"]["content"]),
    ):
        studio, model = Studio(), StrictFakeModel(calls(DRAW), says("I am drawing."), says("Here."))
        async with http(create_app({"m": model}, tools=studio.tools)) as client:
            more = {"model": "m", "max_tokens": 100, "stream": False}
            answer = read((await client.post(path, json={"messages": HI, **more})).json())
            (id,) = JOB_ID.findall(answer)
            studio.done.set()
            await ended(client, id)
            history = [*HI, {"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
            assert read((await client.post(path, json={"messages": history, **more})).json()) == "Here."
            assert [result.startswith("a cat.png") for result in results(model)] == [True]


@pytest.mark.req("R217")
async def test_responses_that_continue_one_get_the_results_of_its_jobs():
    studio, model = Studio(), StrictFakeModel(calls(DRAW), says("I am drawing."), says("Here."))
    async with http(create_app({"m": model}, tools=studio.tools)) as client:
        first = (await client.post("/v1/responses", json={"model": "m", "input": "Draw."})).json()
        (job,) = (await client.get("/v1/jobs")).json()["data"]
        studio.done.set()
        await ended(client, job["id"])
        body = {"model": "m", "input": "And?", "previous_response_id": first["id"]}
        assert (await client.post("/v1/responses", json=body)).json()["output"][0]["content"][0]["text"] == "Here."
    assert [result.startswith("a cat.png") for result in results(model)] == [True]


async def test_a_job_beside_calls_of_the_client_is_put_back_into_what_it_sends_next():
    studio, weather = Studio(), Call("weather", {"city": "Bonn"}, "c2")
    model = StrictFakeModel(calls(DRAW, weather), calls(Call("weather", {"city": "Köln"}, "c3")), says("Both."))
    async with http(create_app({"m": model}, tools=studio.tools)) as client:
        more = {"model": "m", "tools": [WEATHER], "tool_mode": "mixed"}

        async def go_on(messages: list[Any]) -> list[Any]:
            answer = (await client.post("/v1/chat/completions", json={"messages": messages, **more})).json()
            message = answer["choices"][0]["message"]
            replies = [{"role": "tool", "tool_call_id": item["id"], "content": "sun"} for item in message.get("tool_calls") or ()]
            return [*messages, message, *replies]

        history = await go_on([*HI])
        studio.done.set()
        (job,) = (await client.get("/v1/jobs")).json()["data"]
        await ended(client, job["id"])
        await go_on(await go_on(history))
    sent_messages = model.asked[-1].messages
    assert [[call.name for call in message.calls] for message in sent_messages if message.calls] == [
        ["draw", "weather"], ["job_result"], ["weather"],
    ]  # fmt: skip
    assert [message.call_id for message in sent_messages if message.role == "tool"][2] == f"result_of_{job['id']}"


async def test_progress_can_be_followed_and_a_job_be_cancelled():
    studio = Studio()
    async with http(create_app({"m": FakeModel(calls(DRAW), says("I am drawing."))}, tools=studio.tools)) as client:
        (id,) = JOB_ID.findall(await ask(client))
        following = asyncio.create_task(client.get(f"/v1/jobs/{id}/events"))
        await asyncio.sleep(0.1)
        gone = (await client.delete(f"/v1/jobs/{id}")).json()
        assert (gone["status"], gone["result"]["code"]) == ("cancelled", "cancelled")
        progress, done, rest = (await following).text.split("\n\n")
        assert progress == 'event: tool_progress\ndata: {"text":"drawing","current":1,"total":2,"id":"' + id + '"}'
        assert done.startswith('event: done\ndata: {"id":"' + id)
        assert rest == ""
        assert (await client.get("/v1/jobs?status=cancelled")).json()["data"][0]["id"] == id
        assert (await client.get("/v1/jobs?status=running")).json()["data"] == []
        for answer in (
            await client.get("/v1/jobs/job_0"),
            await client.delete("/v1/jobs/job_0"),
            await client.get("/v1/jobs/j/events"),
        ):
            assert answer.status_code == 404
        assert (await client.get("/v1/jobs?status=gone")).status_code == 400


async def test_patterns_in_the_settings_name_tools_that_go_on_in_the_background():
    @tool
    async def draw(what: str) -> str:
        return f"{what}.png"

    settings = Settings(llm=Llm(tools_background=("dr*",)))
    async with http(
        create_app({"m": FakeModel(calls(DRAW), says("I am drawing."))}, tools=Functions(draw), settings=settings)
    ) as client:
        (id,) = JOB_ID.findall(await ask(client))
        assert (await ended(client, id))["result"]["content"] == "a cat.png"


@pytest.mark.parametrize(("options", "status", "drawn"), [({}, "done", 2), ({"side_effects": True}, "interrupted", 1)])
async def test_a_server_that_ends_leaves_to_the_next_what_may_be_repeated(options: dict[str, Any], status: str, drawn: int):
    studio, store = Studio(**options), SqliteStore()
    settings = Settings(llm=Llm(tools_require_confirmation_for_side_effects=False))
    model = FakeModel(calls(DRAW), says("I am drawing."))
    app = create_app({"m": model}, tools=studio.tools, store=store, settings=settings)
    async with app.router.lifespan_context(app), http(app) as client:
        (id,) = JOB_ID.findall(await ask(client))
        while not studio.drawn:
            await asyncio.sleep(0)
    studio.done.set()
    app = create_app({"m": model}, tools=studio.tools, store=store, settings=settings)
    async with app.router.lifespan_context(app), http(app) as client:
        job = await ended(client, id)
    assert (job["status"], len(studio.drawn)) == (status, drawn)
    assert drawn == 2 or job["result"]["code"] == "interrupted"


async def test_a_request_reads_only_the_jobs_whose_results_it_brings(monkeypatch: pytest.MonkeyPatch):
    store = SqliteStore()
    jobs, read = StoredJobs(store, JobLimits()), list[str]()
    for number in range(50):
        call = Call("draw", {"what": str(number)}, f"c{number}")
        done = Job(f"job_{number:024x}", call, Tool("draw"), "", f"talk{number % 10}", time.time(), "done", time.time())
        await jobs.write(replace(done, delivered=number < 40, result=Result(call.id, "draw", f"{number}.png")))
    own: Any = vars(module)["_read_job"]
    monkeypatch.setattr(module, "_read_job", lambda document: (read.append(document.id), own(document))[1])
    model = FakeModel(says("Here."), says("Nothing."))
    async with http(create_app({"m": model}, tools=Studio().tools, store=store)) as client:
        await ask(client, [{"role": "user", "content": f"What is in job_{48:024x}?"}], session_id="talk7")
        assert [result.split("\n")[0] for result in results(model)] == ["47.png", "48.png"]
        assert set(read) == {f"job_{47:024x}", f"job_{48:024x}"}
        read.clear()
        await ask(client, session_id="talk7")
        assert (results(model), read) == ([], [])


async def test_what_was_left_behind_is_looked_for_often_again_after_an_outage(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module.leases, "LEASE_SECONDS", 0.01)
    monkeypatch.setattr(module, "_SECONDS", 1e6)
    looks = 0

    async def look() -> None:
        nonlocal looks
        looks += 1
        if 5 < looks <= 30:
            raise StoreUnavailable("it is away")

    looking = asyncio.create_task(module.look_repeatedly(look))
    await until(lambda: looks == 36)
    await asyncio.sleep(0.1)
    assert looks == 36  # six in a row that were answered
    looking.cancel()
