"""llm.chat over the network: a tool loop in one socket, and by calls one after the other."""

import json
from typing import Any

import pytest

from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.settings import Key, Settings
from tests.capabilities.chatting import called, chat, chat_bus
from tests.fakes import FakeModel
from tests.server.asking import http, says
from tests.server.routes.bus.calling import envelope, frames_of, post, send, socket_to, sse_frames
from tests.serving import served

SEARCH = {
    "name": "search",
    "description": "Search.",
    "parameters_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
FOUND = {"chunks": ["17:42"]}
REPLIES = called(("search", {"query": "hall"})), "It opens at 17:42."


def app_of(bus: Any) -> Any:
    return create_app({"m": FakeModel(says("hi"))}, parts=[BusPart(bus)])


def request(body: Any) -> dict[str, Any]:
    return {"envelope": envelope(body=body, stream=True)}


def checked(events: list[tuple[str, Any]]) -> dict[str, Any]:
    """The one call of an answer that ends with it, whose frames have the shape that is described."""
    deltas = [data for event, data in events if event == "tool_call_delta"]
    (call,) = [data for event, data in events if event == "tool_call"]
    assert deltas[0].keys() >= {"id", "name", "arguments_delta"}
    assert all(delta.keys() >= {"id", "arguments_delta"} and "name" not in delta for delta in deltas[1:])
    assert {delta["id"] for delta in deltas} == {call["id"]}
    assert json.loads("".join(delta["arguments_delta"] for delta in deltas)) == call["arguments"] == {"query": "hall"}
    return {name: call[name] for name in ("id", "name", "arguments")}


@pytest.mark.req("R105", "R106", "R107", "R108", "R109", "R110")
async def test_a_result_in_the_socket_and_one_in_the_next_call_lead_to_the_same_answer() -> None:
    bus, engine = chat_bus(*REPLIES)
    async with served(app_of(bus)) as url, socket_to(url) as socket:
        await send(socket, type="call", **request(chat("When?", tools=[SEARCH])))
        first = [json.loads(await socket.recv())]
        while first[-1]["event"] != "tool_call":
            first.append(json.loads(await socket.recv()))
        call = checked([(item["event"], item["data"]) for item in first])
        await send(socket, type="tool_result", tool_call_id=call["id"], body=FOUND)
        rest = [(item["event"], item["data"]) for item in await frames_of(socket)]

    again, other = chat_bus(*REPLIES)
    async with http(app_of(again)) as client:
        begun = sse_frames((await post(client, request(chat("When?", tools=[SEARCH])))).text)
        assert (begun[-1][0], begun[-1][1]["stop_reason"]) == ("done", "tool_calls")
        call = checked(begun)
        messages = [
            {"role": "user", "content": "When?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(FOUND)},
        ]
        body = {"params": {}, "input": {"messages": messages, "tools": [SEARCH]}}
        second = sse_frames((await post(client, request(body))).text)
    assert engine.asked[1].prompt.text == other.asked[1].prompt.text
    texts = ["".join(data["text"] for event, data in events if event == "token") for events in (rest, second)]
    assert texts == ["It opens at 17:42."] * 2
    assert [event for event, _ in (rest[-1], second[-1])] == ["done", "done"]
    assert rest[-1][1]["stop_reason"] == second[-1][1]["stop_reason"] == "end"


@pytest.mark.parametrize("id", ["other", "tc_1"])
async def test_a_result_of_a_call_that_was_never_made_ends_the_chat(id: str) -> None:
    bus, engine = chat_bus(*REPLIES)
    async with served(app_of(bus)) as url, socket_to(url) as socket:
        await send(socket, type="call", **request(chat("When?", tools=[SEARCH])))
        await send(socket, type="tool_result", tool_call_id=id, body=FOUND)
        frames = await frames_of(socket)
    assert (frames[-1]["event"], frames[-1]["data"]["error"]) == ("error", "bad_request")
    assert len(engine.asked) == 1


async def test_callers_share_nothing_of_their_prompts_and_each_has_one_cache_in_all_dialects() -> None:
    model = FakeModel(*[says("hi")] * 4)
    keys = {name: Key(hash_key(name)) for name in ("alice", "bob")}
    body = request(chat("The secret is 42."))
    async with http(create_app({"m": model}, settings=Settings(keys=keys))) as client:
        for name in keys:
            assert (await post(client, body, authorization=f"Bearer {name}")).status_code == 200
            items = {"model": "m", "messages": [{"role": "user", "content": "The secret is 42."}]}
            await client.post("/v1/chat/completions", json=items, headers={"authorization": f"Bearer {name}"})
    alice, alice_http, bob, bob_http = [item.origin.cache_salt for item in model.asked]
    assert (alice, bob) == (alice_http, bob_http)
    assert alice and bob and alice != bob
    assert [item.origin.caller for item in model.asked] == ["alice", "alice", "bob", "bob"]


async def test_a_key_asks_only_its_own_models_over_the_bus() -> None:
    keys = {"alice": Key(hash_key("alice"), models=("small",))}
    models = {"small": FakeModel(says("hi"), says("hi")), "big": FakeModel(says("hi"))}
    async with http(create_app(models, settings=Settings(keys=keys))) as client:
        for name, status in (("small", 200), ("", 200), ("big", 404), ("other", 404)):
            body = {"envelope": envelope(body={"params": {"model": name}, "input": chat()["input"]})}
            assert (await post(client, body, authorization="Bearer alice")).status_code == status, name
    assert not models["big"].asked
