"""The Responses dialect over WebSocket: the same events, going on without a store, and what is refused."""

import json
from typing import Any

import pytest
from openai import AsyncOpenAI

from callsmith.core.errors import Unavailable
from callsmith.core.events import Text
from callsmith.core.values import Message
from callsmith.server.app import create_app
from callsmith.server.http.keys import new_key
from callsmith.server.settings import Key, Requests, Settings
from callsmith.server.store.sqlite import SqliteStore
from callsmith.wire.sse import FrameReader
from tests.fakes import FakeModel
from tests.server.asking import BONN, calls, http, listening, says
from tests.server.sockets import connected, connecting
from tests.waiting import until

WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}


def messages_sent(model: FakeModel) -> list[list[str]]:
    return [[message.content for message in request.messages] for request in model.asked]


def without_ids(events: list[Any]) -> Any:
    """Events with all that differs from one answer to the next taken out."""
    key = events[0]["response"]["id"].removeprefix("resp_")
    text = json.dumps(events).replace(key, "ID")
    return [
        {**load, "response": {**load["response"], "created_at": 0, "completed_at": 0}} if "response" in load else load
        for load in json.loads(text)
    ]


async def test_the_events_are_those_of_the_stream_over_http():
    model = FakeModel([Text("let me "), Text("see"), Text("\n"), *calls(BONN)])
    app = create_app({"m": model})
    async with connected(app) as socket:
        events = await socket.answer(tools=[WEATHER])
    async with http(app) as asking:
        response = await asking.post("/v1/responses", json={"model": "m", "input": "hi", "stream": True, "tools": [WEATHER]})
    streamed = [json.loads(frame.data) for frame in FrameReader().feed(response.content)]
    assert without_ids(events) == without_ids(streamed)


async def test_answers_come_one_after_the_other_in_the_order_of_their_requests():
    async with connected(create_app({"m": FakeModel(says("one"), says("two"))})) as socket:
        socket.send(stream_id="a")
        socket.send(stream_id="b")
        first, second = await socket.events(), await socket.events()
    assert {item["stream_id"] for item in first} == {"a"}
    assert {item["stream_id"] for item in second} == {"b"}
    assert [events[-1]["response"]["output"][0]["content"][0]["text"] for events in (first, second)] == ["one", "two"]


async def test_a_response_that_is_not_stored_can_be_gone_on_from_on_its_own_connection_only():
    model, store = FakeModel(says("one"), says("two"), says("three")), SqliteStore()
    app = create_app({"m": model}, store=store)
    async with connected(app) as socket:
        first = (await socket.answer(input="a", store=False))[-1]["response"]
        second = (await socket.answer(input="b", store=False, previous_response_id=first["id"]))[-1]["response"]
        await socket.answer(input="c", store=False, previous_response_id=second["id"])
        assert messages_sent(model)[2] == ["a", "one", "b", "two", "c"]
    assert await store.list("response") == await store.list("response_item") == ()
    async with connected(app) as socket:
        (error,) = await socket.answer(input="d", store=False, previous_response_id=second["id"])
        assert (error["status"], error["error"]["code"]) == (400, "previous_response_not_found")
        assert (await socket.answer(input="e", store=False))[-1]["type"] == "response.completed"


async def test_items_of_a_response_that_is_not_stored_can_be_referred_to():
    model = FakeModel(says("one"), says("two"))
    async with connected(create_app({"m": model})) as socket:
        first = (await socket.answer(input="a", store=False))[-1]["response"]
        again = [{"type": "item_reference", "id": first["output"][0]["id"]}, {"role": "user", "content": "b"}]
        await socket.answer(input=again, store=False)
    assert messages_sent(model)[1] == ["one", "b"]


async def test_what_goes_on_from_a_response_that_is_not_stored_is_not_stored_either():
    async with connected(create_app({"m": FakeModel(says("one"))})) as socket:
        first = (await socket.answer(store=False))[-1]["response"]
        (error,) = await socket.answer(previous_response_id=first["id"])
    assert (error["status"], error["error"]["param"]) == (400, "store")


async def test_a_stored_response_can_be_gone_on_from_on_any_connection():
    model = FakeModel(says("one"), says("two"))
    app = create_app({"m": model})
    async with connected(app) as socket:
        first = (await socket.answer(input="a"))[-1]["response"]
    async with connected(app) as socket:
        await socket.answer(input="b", previous_response_id=first["id"])
    assert messages_sent(model)[1] == ["a", "one", "b"]


@pytest.mark.parametrize(
    "failing",
    [
        {"input": [{"type": "function_call_output", "call_id": "nobody's", "output": "x"}]},  # refused
        {"input": "fail"},  # by the model
    ],
)
async def test_after_going_on_has_failed_the_response_is_forgotten(failing: Any):
    model = FakeModel(says("one"), [Text("tw"), Unavailable("gone")])
    async with connected(create_app({"m": model})) as socket:
        first = (await socket.answer(store=False))[-1]["response"]
        failed = await socket.answer(store=False, previous_response_id=first["id"], **failing)
        assert failed[-1]["type"] in ("error", "response.failed")
        (error,) = await socket.answer(store=False, previous_response_id=first["id"])
    assert error["error"]["code"] == "previous_response_not_found"


async def test_outputs_of_calls_are_sent_on_the_connection_that_made_them():
    model = FakeModel(calls(BONN), says("sun"))
    async with connected(create_app({"m": model})) as socket:
        first = (await socket.answer(store=False, tools=[WEATHER]))[-1]["response"]
        output = {"type": "function_call_output", "call_id": "c1", "output": "sun"}
        await socket.answer(input=[output], store=False, tools=[WEATHER], previous_response_id=first["id"])
    assert model.asked[1].messages[1:] == (
        Message.assistant(calls=[BONN]),
        Message("tool", "sun", call_id="c1", name="weather"),
    )


async def test_a_response_that_generates_nothing_is_there_to_be_gone_on_from():
    model = FakeModel(says("one"))
    async with connected(create_app({"m": model})) as socket:
        prepared = (await socket.answer(input="a", store=False, generate=False))[-1]["response"]
        assert (prepared["status"], prepared["output"], model.asked) == ("completed", [], [])
        await socket.answer(input="b", store=False, previous_response_id=prepared["id"])
    assert messages_sent(model) == [["a", "b"]]


@pytest.mark.parametrize(
    ("message", "status", "param"),
    [
        ({"type": "response.make"}, 400, "type"),
        ({"background": True}, 400, "background"),
        ({"stream": False}, 400, "stream"),
        ({"temperature": "warm"}, 400, "temperature"),
        ({"model": "nobody"}, 404, "model"),
    ],
)
async def test_what_is_wrong_is_said_and_the_connection_goes_on(message: Any, status: int, param: str):
    async with connected(create_app({"m": FakeModel(says("one"))})) as socket:
        (error,) = await socket.answer(stream_id="s", **message)
        assert (error["type"], error["status"], error["error"]["param"], error["stream_id"]) == ("error", status, param, "s")
        assert error["error"]["code"] and error["error"]["message"]
        assert (await socket.answer())[-1]["type"] == "response.completed"


@pytest.mark.parametrize(("text", "status"), [("no JSON", 400), ("[]", 400), (json.dumps({"input": "x" * 2000}), 413)])
async def test_messages_obey_the_limits_of_bodies(text: str, status: int):
    settings = Settings(requests=Requests(body_bytes=1000))
    async with connected(create_app({"m": FakeModel(says("one"))}, settings=settings)) as socket:
        socket.send_text(text)
        (error,) = await socket.events()
    assert error["status"] == status


async def test_answers_over_websocket_are_admitted_like_any_other():
    model = FakeModel([Text("a"), 30.0])
    app = create_app({"m": model}, settings=Settings(queue=1))
    async with connected(app) as first, connected(app) as other:
        first.send()
        await until(lambda: model.open == 1)
        (error,) = await other.answer()
    assert error["status"] == 429


async def test_a_failure_nobody_expected_does_not_end_the_connection():
    model = FakeModel(RuntimeError("inner secret"), [Text("a"), RuntimeError("inner secret")], says("one"))
    async with connected(create_app({"m": model})) as socket:
        (error,) = await socket.answer()
        failed = await socket.answer()
        assert (error["status"], failed[-1]["type"]) == (500, "response.failed")
        assert "secret" not in json.dumps([error, *failed])
        assert (await socket.answer())[-1]["type"] == "response.completed"


async def test_a_client_that_disconnects_ends_the_answer():
    model = FakeModel([Text("a"), 30.0, Text("b")])
    async with connected(create_app({"m": model})) as socket:
        socket.send()
        await until(lambda: model.open == 1)
    assert (model.open, model.closed) == (0, 1)


async def test_an_answer_over_websocket_can_be_cancelled_over_http():
    app = create_app({"m": FakeModel([Text("a"), 30.0, Text("b")])})
    async with connected(app) as socket, http(app) as asking:
        socket.send()
        id = (await socket.receive())["response"]["id"]
        assert (await asking.post(f"/v1/responses/{id}/cancel")).json()["status"] == "cancelled"
        assert (await socket.events())[-1]["response"]["status"] == "cancelled"


# Who may connect


async def test_a_connection_needs_a_key_where_requests_need_one_and_belongs_to_it():
    keys = {name: new_key() for name in ("ann", "bob")}
    settings = Settings(keys={name: Key(hash, models=("m",)) for name, (_, hash) in keys.items()})
    app = create_app({"m": FakeModel(says("one")), "n": FakeModel(says("two"))}, settings=settings)
    async with connecting(app) as (_, first):
        assert (first["type"], first["status"]) == ("websocket.http.response.start", 401)
    async with connected(app, authorization=f"Bearer {keys['ann'][0]}") as socket:
        own = (await socket.answer())[-1]["response"]
        (error,) = await socket.answer(model="n")
        assert error["status"] == 403
    async with connected(app, authorization=f"Bearer {keys['bob'][0]}") as socket:
        (error,) = await socket.answer(previous_response_id=own["id"])
        assert error["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    ("origin", "allowed", "is_accepted"),
    [
        ("https://evil.example", (), False),
        ("http://localhost", (), True),  # our own host
        ("https://app.example", ("https://app.example",), True),
        ("https://evil.example", ("*",), True),
    ],
)
async def test_web_pages_connect_only_from_allowed_origins(origin: str, allowed: tuple[str, ...], is_accepted: bool):
    app = create_app({"m": FakeModel(says("one"))}, settings=Settings(cors_origins=allowed))
    async with connecting(app, origin=origin) as (_, first):
        assert (first["type"] == "websocket.accept") == is_accepted


async def test_the_sdks_connection_on_a_real_socket():
    pytest.importorskip("websockets", reason="the SDK needs it to connect")
    model = FakeModel(says("one"), says("two"))
    async with listening(model) as url:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
        async with client.responses.connect() as connection:
            await connection.response.create(model="m", input="a", store=False)
            async for event in connection:
                if event.type == "response.completed":
                    assert event.response.output_text == "one"
                    break
            await connection.response.create(model="m", input="b", store=False, previous_response_id=event.response.id)
            async for event in connection:
                if event.type == "response.completed":
                    assert event.response.output_text == "two"
                    break
    assert messages_sent(model)[1] == ["a", "one", "b"]
