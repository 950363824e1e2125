"""`"explain": true`: an answer says what the model was given and what it wrote, whole and streamed, in every dialect."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from callsmith.core.types.model_step import ModelStep
from callsmith.engines.scripted import Reply, Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.tools.one_answer import StepLog
from callsmith.tools.functions import Functions, tool
from tests.server.asking import HI, http, weather

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


@asynccontextmanager
async def server(*replies: Reply, tools: Any = None) -> AsyncIterator[tuple[httpx2.AsyncClient, Scripted]]:
    engine = Scripted(replies)
    model = LocalModel(engine, format_named("hermes"), Template(CHATML))
    async with http(create_app({"m": model}, tools=Functions(weather) if tools is None else tools)) as client:
        yield client, engine


def frames(answer: httpx2.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def check(body: Any, engine: Scripted) -> None:
    """Both steps are there, with the very prompts that the engine got."""
    steps = body["callsmith"]["steps"]
    assert [step["text"] for step in steps] == [CALL, "Sunny."]
    assert [step["prompt"] for step in steps] == [request.prompt.text for request in engine.asked]
    assert all(step["seconds"] > 0 and step["tokens"] > 0 and step["prompt_tokens"] > 0 for step in steps)
    assert [(step["grammar"], step["repairs"]) for step in steps] == [("", [])] * 2


async def test_a_whole_chat_completion_has_a_step_for_each_time_the_model_was_asked():
    async with server(CALL, "Sunny.") as (client, engine):
        check((await client.post(CHAT, json={"messages": HI, "explain": True})).json(), engine)


async def test_a_stream_has_them_in_its_last_chunk():
    async with server(CALL, "Sunny.") as (client, engine):
        sent = frames(await client.post(CHAT, json={"messages": HI, "explain": True, "stream": True}))
    check(sent[-1], engine)
    assert [chunk for chunk in sent[:-1] if "steps" in chunk.get("callsmith", {})] == []


async def test_a_response_has_them_whole_and_streamed():
    async with server(CALL, "Sunny.") as (client, engine):
        check((await client.post(RESPONSES, json={"input": "hi", "explain": True})).json(), engine)
    async with server(CALL, "Sunny.") as (client, engine):
        sent = frames(await client.post(RESPONSES, json={"input": "hi", "explain": True, "stream": True}))
        check(sent[-1]["response"], engine)
        assert [event for event in sent[:-1] if "steps" in event.get("response", {}).get("callsmith", {})] == []


async def test_a_response_in_the_background_has_them_when_it_is_there():
    async with server(CALL, "Sunny.") as (client, engine):
        response = (await client.post(RESPONSES, json={"input": "hi", "explain": True, "background": True})).json()
        while response["status"] in ("queued", "in_progress"):
            await asyncio.sleep(0.01)
            response = (await client.get(f"{RESPONSES}/{response['id']}")).json()
    check(response, engine)


@pytest.mark.parametrize("path", ["/v1/messages", "/api/chat"])
async def test_the_other_dialects_have_them_too(path: str):
    async with server(CALL, "Sunny.") as (client, engine):
        body = {"model": "m", "max_tokens": 100, "messages": HI, "explain": True, "stream": False}
        check((await client.post(path, json=body)).json(), engine)


async def test_calls_of_the_clients_own_tools_are_explained_as_well():
    function = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    async with server(CALL) as (client, _):
        body = {"messages": HI, "explain": True, "tools": [{"type": "function", "function": function}], "tool_choice": "required"}
        answer = (await client.post(CHAT, json=body)).json()
    [step] = answer["callsmith"]["steps"]
    assert step["text"] == CALL and "weather" in step["grammar"]


async def test_a_run_that_waits_for_a_person_is_explained_to_its_end():
    @tool(side_effects=True)
    def weather(city: str) -> str:
        """Reads the weather."""
        return f"sun in {city}"

    async with server(CALL, "Sunny.", tools=Functions(weather)) as (client, engine):
        body = {"messages": HI, "explain": True, "wait_for_approval": True}
        asking = asyncio.create_task(client.post(CHAT, json=body))
        while not (waiting := (await client.get("/v1/approvals")).json()["data"]):
            await asyncio.sleep(0.01)
        await client.post(f"/v1/approvals/{waiting[0]['id']}", json={"approve": True})
        check((await asking).json(), engine)


async def test_a_run_that_is_explained_can_pause_and_is_stored():
    @tool(side_effects=True)
    def weather(city: str) -> str:
        """Reads the weather."""
        return f"sun in {city}"

    async with server(CALL, "Sunny.", tools=Functions(weather)) as (client, _):
        paused = (await client.post(CHAT, json={"messages": HI, "explain": True})).json()
        assert [step["text"] for step in paused["callsmith"]["steps"]] == [CALL]
        [waiting] = paused["callsmith"]["approvals"]
        decided = await client.post(f"/v1/approvals/{waiting['id']}", json={"approve": True})
        assert decided.json()["answer"]["text"] == "Sunny."


async def test_nobody_who_does_not_ask_is_told():
    async with server(CALL, "Sunny.") as (client, _):
        assert "callsmith" not in (await client.post(CHAT, json={"messages": HI})).json()


async def test_explain_has_to_be_true_or_false():
    async with server("Sunny.") as (client, _):
        assert (await client.post(CHAT, json={"messages": HI, "explain": "yes"})).status_code == 400


def test_long_steps_are_cut_and_say_so():
    log, million = StepLog(), "x" * 1_000_000
    for _ in range(100):
        log.add(ModelStep(million, million, million))
    assert len(log.steps) == 64
    assert log.steps[0].prompt.endswith("[Cut here: 800,000 of 1,000,000 characters are missing.]")
    assert sum(len(step.prompt) + len(step.text) + len(step.grammar) for step in log.steps) < 2_100_000
