"""`tool_events` in a stream of `/v1/responses`: calls of the server's tools as items, and what they do as events of our own."""

import asyncio
import json
from typing import Any

from callsmith.core.events import Text
from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions, tool
from callsmith.wire.sse import FrameReader
from tests.fakes import FakeModel
from tests.server.asking import BONN, KOELN, calls, client, http, says, weather


@tool(side_effects=True)
async def pay(amount: int) -> str:
    return f"paid {amount}"


def events_of(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in FrameReader().feed(body)]


def own(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["callsmith"] for event in events if event["type"] == "callsmith.event"]


async def asked(app: Any, **more: Any) -> list[dict[str, Any]]:
    async with http(app) as asking:
        response = await asking.post("/v1/responses", json={"model": "m", "input": "go", "stream": True, **more})
        assert response.status_code == 200
        return events_of(response.content)


async def test_calls_of_the_servers_tools_are_items_and_are_shown_while_they_are_written():
    events = await asked(
        create_app({"m": FakeModel(calls(BONN, KOELN), says("done"))}, tools=Functions(weather)), tool_events=True
    )
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    drafts = [event for event in own(events) if event["event"] == "call_draft"]
    assert "".join(draft["delta"] for draft in drafts if draft["index"] == 0) == BONN.text
    assert "".join(draft["delta"] for draft in drafts if draft["index"] == 1) == KOELN.text
    items = events[-1]["response"]["output"]
    assert [item["type"] for item in items] == ["mcp_call", "mcp_call", "message"]
    assert (items[0]["name"], items[0]["server_label"], items[0]["output"]) == ("weather", "python", "sun in Bonn")
    finished = [event for event in events if event.get("callsmith", {}).get("event") == "tool_finished"]
    assert {event["item_id"] for event in finished} == {item["id"] for item in items[:2]}
    assert all(event["at"] >= 0 for event in finished)


async def test_without_tool_events_nothing_of_them_is_shown():
    events = await asked(create_app({"m": FakeModel(calls(BONN), says("done"))}, tools=Functions(weather)))
    assert own(events) == []
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"]


async def test_a_denial_during_the_stream_is_an_event_and_the_next_turn_knows_of_it():
    model = FakeModel(calls(Call("pay", {"amount": 7}, "c1")), says("As you wish."), says("Bye."))
    app = create_app({"m": model}, tools=Functions(pay))
    async with http(app) as asking:
        conversation = (await asking.post("/v1/conversations", json={})).json()["id"]
        waits = {"conversation": conversation, "tool_events": True, "wait_for_approval": True, "background": True}
        running = asyncio.create_task(asked(app, **waits))
        while not (waiting := (await asking.get("/v1/approvals")).json()["data"]):
            await asyncio.sleep(0.01)
        await asking.post(f"/v1/approvals/{waiting[0]['id']}", json={"approve": False, "reason": "Too much."})
        events = await running
        assert [event["event"] for event in own(events)][-2:] == ["confirmation_needed", "tool_finished"]
        assert own(events)[-1]["code"] == "denied"
        await asked(app, conversation=conversation)
        results = [message.content for message in model.asked[-1].messages if message.role == "tool"]
        assert ["Too much." in str(result) for result in results] == [True]


async def test_what_was_said_before_an_answer_was_stopped_stays_in_its_conversation():
    model = FakeModel([Text("so far"), 30.0], says("on"))
    asking = client(model)
    id = (await asking.conversations.create()).id
    started = await asking.responses.create(model="m", input="tell me", conversation=id, background=True)
    while not (await asking.responses.retrieve(started.id)).output:
        await asyncio.sleep(0.01)
    await asking.responses.cancel(started.id)
    await asking.responses.create(model="m", input="go on", conversation=id)
    assert [message.content for message in model.asked[-1].messages] == ["tell me", "so far", "go on"]
