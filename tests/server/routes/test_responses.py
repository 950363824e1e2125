"""The Responses dialect on the server: what is remembered, gone on from, deleted, cancelled, counted and refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsmith.core.errors import Unavailable
from callsmith.core.events import ModelEvent, Stopped, Text, Thought
from callsmith.core.values import Call, Choice, Message, Request, Tool, Usage
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.http.keys import new_key
from callsmith.server.settings import Key, Settings
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions
from callsmith.wire.openai.responses import ResponsesRequest, write_request
from callsmith.wire.openai.responses_events import EventReader
from callsmith.wire.sse import FrameReader
from tests.fakes import FakeModel
from tests.server.asking import BONN, KOELN, calls, http, listening, says, weather
from tests.waiting import until

WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}


async def post(asking: httpx2.AsyncClient, path: str = "", **body: Any) -> Any:
    response = await asking.post(f"/v1/responses{path}", json={"model": "m", "input": "hi", **body})
    assert response.status_code == 200, response.text
    return response.json()


def text_of(response: Any) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def messages_sent(model: FakeModel) -> list[list[tuple[str, str]]]:
    """What the model was told, each time."""
    return [[(message.role, message.content) for message in request.messages] for request in model.asked]


# Going on


async def test_a_conversation_goes_on_from_what_is_stored_without_the_old_instructions():
    model = FakeModel(says("one"), says("two"), says("three"))
    async with http(create_app({"m": model})) as asking:
        first = await post(asking, instructions="be brief", input="a")
        second = await post(asking, input="b", previous_response_id=first["id"])
        await post(asking, input="c", previous_response_id=second["id"], instructions="be long")
    assert messages_sent(model) == [
        [("system", "be brief"), ("user", "a")],
        [("user", "a"), ("assistant", "one"), ("user", "b")],
        [("system", "be long"), ("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "c")],
    ]
    assert second["previous_response_id"] == first["id"]
    assert (first["instructions"], second["instructions"]) == ("be brief", None)


async def test_calls_are_answered_on_the_response_that_made_them():
    model = FakeModel([Thought("hm"), *calls(BONN, KOELN)], says("sun"))
    async with http(create_app({"m": model})) as asking:
        first = await post(asking, tools=[WEATHER])
        outputs = [{"type": "function_call_output", "call_id": id, "output": f"sun {id}"} for id in ("c1", "c2")]
        await post(asking, input=outputs, tools=[WEATHER], previous_response_id=first["id"])
    assert model.asked[1].messages == (
        Message.user("hi"),
        Message.assistant(reasoning="hm", calls=[BONN, KOELN]),
        Message("tool", "sun c1", call_id="c1", name="weather"),
        Message("tool", "sun c2", call_id="c2", name="weather"),
    )


async def test_a_conversation_can_branch():
    model = FakeModel(says("one"), says("left"), says("right"), says("end"))
    async with http(create_app({"m": model})) as asking:
        first = await post(asking, input="a")
        left = await post(asking, input="b", previous_response_id=first["id"])
        await post(asking, input="c", previous_response_id=first["id"])
        await post(asking, input="d", previous_response_id=left["id"])
    assert [content for _, content in messages_sent(model)[3]] == ["a", "one", "b", "left", "d"]


async def test_an_item_can_be_referred_to_by_its_id():
    model = FakeModel(says("one"), says("two"))
    async with http(create_app({"m": model})) as asking:
        (item,) = (await post(asking, input="a"))["output"]
        again = [{"role": "user", "content": "a"}, {"type": "item_reference", "id": item["id"]}, {"role": "user", "content": "b"}]
        second = await post(asking, input=again)
        assert messages_sent(model)[1] == [("user", "a"), ("assistant", "one"), ("user", "b")]
        await post(asking, input="c", previous_response_id=second["id"])
    assert [content for _, content in messages_sent(model)[2]] == ["a", "one", "b", "two", "c"]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_not_to_be_stored_is_not(stream: bool):
    store = SqliteStore()
    async with http(create_app({"m": FakeModel(says("one"))}, store=store)) as asking:
        response = await asking.post("/v1/responses", json={"model": "m", "input": "a", "store": False, "stream": stream})
        assert response.status_code == 200
        assert await store.list("response") == await store.list("response_item") == ()
        if not stream:
            assert response.json()["store"] is False
            assert (await asking.get(f"/v1/responses/{response.json()['id']}")).status_code == 404


async def test_a_previous_response_nobody_knows_is_refused_as_clients_know_it():
    async with http(create_app({"m": FakeModel(says("one"))})) as asking:
        response = await asking.post("/v1/responses", json={"model": "m", "input": "a", "previous_response_id": "resp_x"})
    assert response.status_code == 400
    assert response.json()["error"] == {
        "message": "Previous response with id 'resp_x' not found.",
        "type": "invalid_request_error",
        "param": "previous_response_id",
        "code": "previous_response_not_found",
    }


async def test_a_conversation_outlives_the_server(tmp_path: Path):
    path = str(tmp_path / "store.db")
    store = SqliteStore(path)
    async with http(create_app({"m": FakeModel(says("one"))}, store=store)) as asking:
        first = await post(asking, input="a")
    store.close()
    model = FakeModel(says("two"))
    async with http(create_app({"m": model}, store=SqliteStore(path))) as asking:
        await post(asking, input="b", previous_response_id=first["id"])
        assert (await asking.get(f"/v1/responses/{first['id']}")).json() == first
    assert [content for _, content in messages_sent(model)[0]] == ["a", "one", "b"]


async def test_an_answer_is_stored_before_its_end_is_told():
    class Slow(SqliteStore):
        async def put(self, *documents: Any, durable: bool = False) -> None:
            await asyncio.sleep(0.2)
            await super().put(*documents, durable=durable)

    async with (
        listening(FakeModel(says("one")), store=Slow()) as url,
        httpx2.AsyncClient(base_url=url) as asking,
        asking.stream("POST", "/v1/responses", json={"model": "m", "input": "a", "stream": True}) as response,
    ):
        reader = FrameReader()
        async for data in response.aiter_bytes():
            for frame in reader.feed(data):
                if frame.event == "response.completed":
                    id = json.loads(frame.data)["response"]["id"]
                    assert (await asking.get(f"/v1/responses/{id}")).json()["status"] == "completed"
                    return
    raise AssertionError("the answer has no end")


# What is stored


async def test_a_stored_response_is_given_back_as_it_was_and_can_be_deleted():
    store = SqliteStore()
    async with http(create_app({"m": FakeModel([Thought("hm"), *says("one")])}, store=store)) as asking:
        first = await post(asking, metadata={"k": "v"}, temperature=0.5)
        path = f"/v1/responses/{first['id']}"
        assert (await asking.get(path)).json() == first
        assert (first["metadata"], first["temperature"], first["store"]) == ({"k": "v"}, 0.5, True)
        assert (await asking.delete(path)).json() == {"id": first["id"], "object": "response", "deleted": True}
        assert (await asking.get(path)).status_code == (await asking.delete(path)).status_code == 404
    assert await store.list("response") == await store.list("response_item") == ()


async def test_what_went_on_from_a_deleted_response_cannot_be_gone_on_from():
    model = FakeModel(says("one"))
    async with http(create_app({"m": model})) as asking:
        first = await post(asking)
        second = await post(asking, previous_response_id=first["id"])
        await asking.delete(f"/v1/responses/{first['id']}")
        refused = await asking.post("/v1/responses", json={"model": "m", "input": "a", "previous_response_id": second["id"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "previous_response_not_found")


async def test_ids_a_client_made_up_overwrite_nothing():
    store = SqliteStore()
    model = FakeModel(says("one"), says("two"))
    async with http(create_app({"m": model}, store=store)) as asking:
        first = await post(asking, input="a")
        mine = {"id": first["output"][0]["id"], "type": "message", "role": "assistant", "content": "forged"}
        await post(asking, input=[mine])
        assert text_of((await asking.get(f"/v1/responses/{first['id']}")).json()) == "one"


async def test_the_items_of_a_request_are_listed_in_pages():
    model = FakeModel(says("one"))
    async with http(create_app({"m": model})) as asking:
        first = await post(asking, input="a")
        items = [{"role": "user", "content": "b"}, {"role": "developer", "content": [{"type": "input_text", "text": "c"}]}]
        second = await post(asking, input=items, previous_response_id=first["id"])
        path = f"/v1/responses/{second['id']}/input_items"
        everything = (await asking.get(path, params={"order": "asc"})).json()
        assert [item["content"][0]["text"] for item in everything["data"]] == ["a", "one", "b", "c"]
        assert [item["role"] for item in everything["data"]] == ["user", "assistant", "user", "developer"]
        ids = [item["id"] for item in everything["data"]]
        newest = (await asking.get(path, params={"limit": 1})).json()
        assert ([item["id"] for item in newest["data"]], newest["has_more"]) == (ids[-1:], True)
        rest = (await asking.get(path, params={"after": ids[-1]})).json()
        assert ([item["id"] for item in rest["data"]], rest["has_more"]) == (ids[-2::-1], False)
        assert (rest["first_id"], rest["last_id"]) == (ids[-2], ids[0])
        for wrong in ({"limit": "0"}, {"limit": "x"}, {"limit": "9" * 5000}, {"after": "nope"}):
            assert (await asking.get(path, params=wrong)).status_code == 400
        assert (await asking.get("/v1/responses/nope/input_items")).status_code == 404


async def test_nobody_sees_goes_on_from_or_deletes_what_belongs_to_another():
    keys = {name: new_key() for name in ("alice", "bob")}
    settings = Settings(keys={name: Key(sha256=hashed) for name, (_, hashed) in keys.items()})
    app = create_app({"m": FakeModel(says("one"))}, settings=settings)
    async with http(app) as alice, http(app) as bob:
        alice.headers["authorization"], bob.headers["authorization"] = (f"Bearer {key}" for key, _ in keys.values())
        first = await post(alice, input="a")
        path, item = f"/v1/responses/{first['id']}", first["output"][0]["id"]
        for request in (bob.get(path), bob.delete(path), bob.get(f"{path}/input_items"), bob.post(f"{path}/cancel")):
            assert (await request).status_code == 404
        for body in ({"input": "b", "previous_response_id": first["id"]}, {"input": [{"type": "item_reference", "id": item}]}):
            assert (await bob.post("/v1/responses", json={"model": "m", **body})).status_code == 400
        assert (await alice.get(path)).json() == first


# Cancelling


def running_id(data: bytes) -> str:
    return json.loads(FrameReader().feed(data)[0].data)["response"]["id"]


async def test_an_answer_being_streamed_can_be_cancelled_and_keeps_what_was_said():
    model = FakeModel([Text("so far"), 30.0, *says("never")])
    async with (
        listening(model) as url,
        httpx2.AsyncClient(base_url=url, timeout=20) as asking,
        asking.stream("POST", "/v1/responses", json={"model": "m", "input": "a", "stream": True}) as response,
    ):
        data, pieces, path = b"", response.aiter_bytes(), ""
        async for piece in pieces:
            data += piece
            if b"so far" in data:
                path = f"/v1/responses/{running_id(data)}"
                break
        assert (await asking.get(path)).json()["status"] == "in_progress"
        cancelled = (await asking.post(f"{path}/cancel")).json()
        assert (cancelled["status"], text_of(cancelled)) == ("cancelled", "so far")
        async for piece in pieces:
            data += piece
        last = FrameReader().feed(data)[-1]
        assert last.event == "response.incomplete"
        assert json.loads(last.data)["response"] == cancelled
        assert model.open == 0
        assert (await asking.get(path)).json() == cancelled
        again = await asking.post(f"{path}/cancel")
        assert (again.status_code, again.json()) == (200, cancelled)


async def test_what_is_over_or_unknown_cannot_be_cancelled():
    async with http(create_app({"m": FakeModel(says("one"))})) as asking:
        first = await post(asking)
        assert (await asking.post(f"/v1/responses/{first['id']}/cancel")).status_code == 400
        assert (await asking.post("/v1/responses/nope/cancel")).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_stops_the_generation_and_leaves_nothing(stream: bool):
    store, model = SqliteStore(), FakeModel([Text("a"), 30.0, *says("b")])
    async with listening(model, store=store) as url, httpx2.AsyncClient(base_url=url) as asking:
        body = {"model": "m", "input": "hi", "stream": stream}
        task = asyncio.create_task(asking.post("/v1/responses", json=body, timeout=30))
        await until(lambda: model.open == 1)
        task.cancel()
        await until(lambda: model.open == 0)
    assert await store.list("response") == ()


# Failing


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_fails_at_once_is_an_http_error(stream: bool):
    async with http(create_app({"m": FakeModel([Unavailable("no weights")])})) as asking:
        response = await asking.post("/v1/responses", json={"model": "m", "input": "a", "stream": stream})
    assert (response.status_code, response.json()["error"]["message"]) == (503, "no weights")


@pytest.mark.parametrize("error", [Unavailable("gone"), ZeroDivisionError("secret")])
async def test_a_model_that_fails_in_the_middle_of_a_stream_ends_it_as_failed(error: Exception):
    store = SqliteStore()
    async with listening(FakeModel([Text("so far"), error]), store=store) as url, httpx2.AsyncClient(base_url=url) as asking:
        response = await asking.post("/v1/responses", json={"model": "m", "input": "a", "stream": True})
    frames = FrameReader().feed(response.content)
    assert frames[-1].event == "response.failed"
    last = json.loads(frames[-1].data)
    assert last["sequence_number"] == len(frames) - 1
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert "secret" not in response.text
    kept = [document.data["response"]["status"] for document in await store.list("response")]
    assert kept == (["failed"] if isinstance(error, Unavailable) else [])


async def test_a_store_that_fails_is_told_and_does_not_look_like_an_answer_that_was_kept():
    class Full(SqliteStore):
        async def put(self, *documents: Any, durable: bool = False) -> None:
            raise Unavailable("the disk is full")

    async with http(create_app({"m": FakeModel(says("one"))}, store=Full())) as asking:
        whole = await asking.post("/v1/responses", json={"model": "m", "input": "a"})
        streamed = await asking.post("/v1/responses", json={"model": "m", "input": "a", "stream": True})
    assert (whole.status_code, whole.json()["error"]["message"]) == (503, "the disk is full")
    assert FrameReader().feed(streamed.content)[-1].event == "response.failed"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param"),
    [
        ("POST", "", {"model": "m", "input": "a", "background": True, "store": False}, 400, "background"),
        ("POST", "", {"model": "n", "input": "a"}, 404, "model"),
        ("POST", "", {"model": "m", "input": "a", "tool_choice": "required"}, 400, "tool_choice"),
        ("POST", "", {"model": "m", "input": [{"type": "item_reference", "id": "x"}]}, 400, "input.0.id"),
        ("POST", "", {"model": "m", "input": [{"type": "mcp_approval_request", "id": []}]}, 400, "input.0.id"),
        *(
            ("POST", "", {"model": "m", "input": [{"type": kind, "approval_request_id": {}}]}, 400, "input.0.approval_request_id")
            for kind in ("mcp_approval_response", "mcp_call")
        ),
        ("POST", "", [], 400, None),
        ("GET", "/nope", None, 404, None),
        ("DELETE", "/nope", None, 404, None),
        ("PUT", "/nope", None, 405, None),
    ],
)
async def test_what_is_wrong_is_said_in_the_clients_own_words(method: str, path: str, body: Any, status: int, param: str | None):
    async with http(create_app({"m": FakeModel(says("a"))})) as asking:
        response = await asking.request(method, f"/v1/responses{path}", json=body)
    assert response.status_code == status
    assert {"message", "type", "param", "code"} <= set(response.json()["error"])
    assert response.json()["error"]["param"] == param


# The server's own tools


@pytest.mark.req("R113")
async def test_without_tools_of_its_own_a_request_sees_one_seamless_answer():
    model = FakeModel([Text("One moment."), *calls(BONN)], says("Sun."))
    async with http(create_app({"m": model}, tools=Functions(weather))) as asking:
        answer = await post(asking)
    assert text_of(answer) == "One moment.\n\nSun."
    assert [item["type"] for item in answer["output"]] == ["message"]
    assert answer["usage"]["input_tokens"] == 14


async def test_no_more_of_the_servers_tools_are_called_than_allowed():
    model = FakeModel(calls(BONN, KOELN), says("Sun."))
    async with http(create_app({"m": model}, tools=Functions(weather))) as asking:
        await post(asking, max_tool_calls=1)
    results = [message.content for message in model.asked[1].messages if message.role == "tool"]
    assert results[0] == "sun in Bonn"
    assert results[1].startswith("limit_reached")


# Counting


async def test_the_tokens_of_a_request_are_counted_as_they_would_be_used():
    model = LocalModel(Scripted(["Hello"], repeat=True), format_named("hermes"), Template(CHATML))
    async with http(create_app({"m": model})) as asking:
        first = await post(asking, instructions="be brief", input="a")
        for body in ({"instructions": "be brief", "input": "a"}, {"input": "b", "previous_response_id": first["id"]}):
            counted = await post(asking, "/input_tokens", **body)
            assert counted == {
                "object": "response.input_tokens",
                "input_tokens": (await post(asking, **body))["usage"]["input_tokens"],
            }
    async with http(create_app({"m": FakeModel(says("a"))})) as asking:
        refused = await asking.post("/v1/responses/input_tokens", json={"model": "m", "input": "a"})
        assert refused.status_code == 400


# Law 7


async def test_our_own_codec_reads_from_our_own_server_what_the_model_said():
    events: list[Any] = [Thought("hm"), Text("so"), *calls(BONN, KOELN)]
    tool = Tool("weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
    request = Request((Message.user("hi"),), (tool,), Choice("required"), thinking=True)
    model = FakeModel(events)
    async with http(create_app({"m": model})) as asking:
        response = await asking.post("/v1/responses", json=write_request(ResponsesRequest("m", request, stream=True)))
    reader = EventReader()
    read = [event for frame in FrameReader().feed(response.content) for event in reader.feed(json.loads(frame.data))]
    assert [*read, *reader.close()] == events
    assert [request.in_session("") for request in model.asked] == [request]


async def test_many_conversations_at_once_keep_apart():
    class Echo:
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            for message in request.messages:
                await asyncio.sleep(0)
                yield Text(message.content)
            yield Stopped("stop", Usage())

    app = create_app({"m": Echo()})

    async def talk(word: str) -> str:
        async with http(app) as asking:
            first = await post(asking, input=word)
            second = await post(asking, input=word, previous_response_id=first["id"])
            return text_of(second)

    words = [f"<{number}>" for number in range(20)]
    assert await asyncio.gather(*map(talk, words)) == [word * 3 for word in words]


async def test_a_call_without_an_id_gets_one_under_which_it_can_be_answered():
    model = FakeModel(calls(Call("weather", {})), says("sun"))
    async with http(create_app({"m": model})) as asking:
        first = await post(asking, tools=[WEATHER])
        id = first["output"][0]["call_id"]
        assert id
        output = {"type": "function_call_output", "call_id": id, "output": "sun"}
        await post(asking, tools=[WEATHER], input=[output], previous_response_id=first["id"])
    assert model.asked[1].messages[1].calls[0].id == model.asked[1].messages[2].call_id == id
