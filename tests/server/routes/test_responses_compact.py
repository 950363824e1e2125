"""`/v1/responses/compact`: a conversation as what its user said and a summary, from which it goes on."""

from typing import Any

import pytest

from callsmith.core.events import Stopped, Thought
from callsmith.core.values import Usage
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions
from callsmith.wire.openai.items import SUMMARISE
from tests.fakes import FakeModel
from tests.server.asking import client, http, says, weather
from tests.server.sockets import connected

TALK: Any = [
    {"role": "user", "content": "We launch on Tuesday."},
    {"role": "assistant", "content": "Noted."},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    {"role": "user", "content": [{"type": "input_text", "text": "Tell support."}]},
]


def messages_sent(model: FakeModel) -> list[str]:
    return [message.content for message in model.asked[-1].messages]


async def test_a_conversation_goes_on_from_its_summary_and_what_its_user_said():
    model = FakeModel(says("Launch: ", "Tuesday; tell support."), says("Yes"))
    asking = client(model)
    compacted = await asking.responses.compact(model="m", input=TALK, instructions="be brief")
    assert messages_sent(model)[0] == "be brief"
    assert messages_sent(model)[-2:] == ["Tell support.", SUMMARISE]
    assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
    assert (compacted.object, compacted.usage.input_tokens, compacted.usage.output_tokens) == ("response.compaction", 7, 3)
    again: Any = [item.to_dict() for item in compacted.output]
    await asking.responses.create(model="m", input=[*again, {"role": "user", "content": "When?"}])
    summary = "Summary of the conversation so far:\nLaunch: Tuesday; tell support."
    assert messages_sent(model) == ["We launch on Tuesday.", "Tell support.", summary, "When?"]


async def test_a_stored_conversation_is_compacted_by_its_last_response():
    model = FakeModel(says("one"), says("all of it"))
    asking = client(model)
    first = await asking.responses.create(model="m", input="a")
    compacted = await asking.responses.compact(model="m", previous_response_id=first.id)
    assert messages_sent(model) == ["a", "one", SUMMARISE]
    assert [item.type for item in compacted.output] == ["message", "compaction"]


async def test_a_compacted_conversation_can_be_stored_listed_and_compacted_again():
    model = FakeModel(says("short"), says("one"), says("shorter"))
    asking = client(model)
    compacted: Any = [item.to_dict() for item in (await asking.responses.compact(model="m", input="a")).output]
    response = await asking.responses.create(model="m", input=[*compacted, {"role": "user", "content": "b"}])
    listed = await asking.responses.input_items.list(response.id, order="asc")
    assert [item.type for item in listed.data] == ["message", "compaction", "message"]
    again = await asking.responses.compact(model="m", previous_response_id=response.id)
    assert "short" in messages_sent(model)[1]
    assert [item.type for item in again.output] == ["message", "message", "compaction"]


async def test_it_goes_on_over_websocket():
    model = FakeModel(says("short"), says("one"))
    app = create_app({"m": model})
    async with http(app) as asking, connected(app) as socket:
        compacted = (await asking.post("/v1/responses/compact", json={"model": "m", "input": "a"})).json()["output"]
        await socket.answer(input=[*compacted, {"role": "user", "content": "b"}], store=False)
    assert messages_sent(model)[-1] == "b" and "short" in messages_sent(model)[-2]


async def test_the_summary_is_written_without_tools():
    model = FakeModel(says("short"))
    await client(model, tools=Functions(weather)).responses.compact(model="m", input="a")
    assert model.asked[0].tools == ()


async def test_what_other_servers_have_compacted_is_left_out():
    model = FakeModel(says("one"))
    item: Any = {"type": "compaction", "encrypted_content": "gAAAAAB"}
    await client(model).responses.create(model="m", input=[item, {"role": "user", "content": "b"}])
    assert messages_sent(model) == ["b"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "a"}, "model"),
        ({"model": "m"}, "input"),
        ({"model": "m", "previous_response_id": "resp_x"}, "previous_response_id"),
        ({"model": "m", "input": [{"type": "compaction", "encrypted_content": "callsmith:?"}]}, "input.0.encrypted_content"),
    ],
)
async def test_what_is_wrong_is_said(body: Any, param: str):
    async with http(create_app({"m": FakeModel(says("one"))})) as asking:
        response = await asking.post("/v1/responses/compact", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_a_model_that_writes_no_summary_is_an_error():
    async with http(create_app({"m": FakeModel([Thought("hm"), Stopped("length", Usage(1, 1))])})) as asking:
        response = await asking.post("/v1/responses/compact", json={"model": "m", "input": "a"})
    assert response.status_code >= 500
    assert "summary" in response.json()["error"]["message"]
