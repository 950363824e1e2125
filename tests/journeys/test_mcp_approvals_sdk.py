"""The real OpenAI client, and its own runner, approve calls of MCP servers over the Responses dialect."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_tool_runner import (
    AsyncRegisteredFunction,
    AsyncResponsesToolRunner,
    RegisteredFunction,
    ResponsesToolRunner,
    ToolRunnerError,
)
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from callsmith.core.values import Call
from callsmith.server.settings import Settings
from callsmith.server.store.sqlite import SqliteStore
from tests.conftest import Clock
from tests.journeys.disk import ALWAYS, ERASE, FILES, NEVER, NOW, READ, Disk, answered, app_of, client, kinds, word
from tests.journeys.scripts import calling, client_of
from tests.serving import ERASING, killed, served, served_apart
from tests.waiting import until

pytestmark = pytest.mark.processes

# Approvals


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [True, False])
async def test_a_call_runs_in_the_response_after_its_approval(stream: bool, store: bool) -> None:
    disk = Disk()
    asking, engine = client(disk, calling(ERASE, text="I will erase it."), "Erased.")
    first = await answered(asking, stream, input="Erase a.", tools=[FILES], store=store)
    assert kinds(first) == ["mcp_list_tools", "message", "mcp_approval_request"]
    request = first.output[-1]
    assert (request.server_label, request.name, json.loads(request.arguments)) == ("files", "erase", {"path": "a"})
    assert first.status == "completed"
    assert "approv" not in first.output_text
    assert disk.done == []
    if store:
        body: Any = {"previous_response_id": first.id, "input": [word(request, True)]}
    else:
        history = [{"role": "user", "content": "Erase a."}, *(item.to_dict() for item in first.output), word(request, True)]
        body = {"input": history, "store": False}
    second = await answered(asking, stream, tools=[FILES], **body)
    assert kinds(second) == ["mcp_call", "message"]
    call = second.output[0]
    assert (call.approval_request_id, call.status, call.output) == (request.id, "completed", "erased a")
    assert (call.name, call.arguments) == (request.name, request.arguments)
    assert second.output_text == "Erased."
    assert disk.done == ["erase a"]
    assert "erased a" in engine.asked[1].prompt.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_is_denied_is_told_to_the_model_and_makes_no_item(stream: bool) -> None:
    disk = Disk()
    asking, engine = client(disk, calling(ERASE), "Then not.", "As you wish.")
    first = await answered(asking, stream, input="Erase a.", tools=[FILES])
    no = [word(first.output[-1], False, reason="it is needed")]
    second = await answered(asking, stream, input=no, tools=[FILES], previous_response_id=first.id)
    assert kinds(second) == ["message"]
    assert disk.done == []
    assert "denied: it is needed" in engine.asked[1].prompt.text
    await answered(asking, stream, input="Good.", tools=[FILES], previous_response_id=second.id)
    assert engine.asked[2].prompt.text.startswith(engine.asked[1].prompt.text)


async def test_what_is_said_along_with_an_approval_comes_before_the_call() -> None:
    disk = Disk()
    asking, engine = client(disk, calling(ERASE), "Done, quickly.")
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    both: Any = [word(first.output[-1], True), {"role": "user", "content": "And hurry."}]
    second = await asking.responses.create(model="m", input=both, tools=[FILES], previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "message"]
    assert engine.asked[1].prompt.text.index("And hurry.") < engine.asked[1].prompt.text.index("erased a")


async def test_somebody_who_talks_on_without_answering_leaves_the_call_undone() -> None:
    disk = Disk()
    asking, engine = client(disk, calling(ERASE), "Fine.", "Erased.")
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    second = await asking.responses.create(model="m", input="Wait.", tools=[FILES], previous_response_id=first.id)
    assert kinds(second) == ["message"]
    assert "nobody has approved it yet" in engine.asked[1].prompt.text
    late: Any = [word(first.output[-1], True)]
    third = await asking.responses.create(model="m", input=late, tools=[FILES], previous_response_id=second.id)
    assert kinds(third) == ["mcp_call", "message"]
    assert disk.done == ["erase a"]


async def test_of_two_calls_one_can_be_approved_first() -> None:
    disk = Disk()
    both = calling(ERASE, Call("files_erase", {"path": "b"}))
    asking, _ = client(disk, both, "Both are gone.")
    first = await asking.responses.create(model="m", input="Erase both.", tools=[FILES])
    first_request, other = (item for item in first.output if item.type == "mcp_approval_request")
    body: Any = {"model": "m", "tools": [FILES]}
    second = await asking.responses.create(**body, input=[word(first_request, True)], previous_response_id=first.id)
    assert kinds(second) == ["mcp_call", "mcp_approval_request"]
    assert second.output[1].id == other.id
    third = await asking.responses.create(**body, input=[word(other, True)], previous_response_id=second.id)
    assert (kinds(third), third.output_text) == (["mcp_call", "message"], "Both are gone.")
    assert disk.done == ["erase a", "erase b"]


async def test_an_approval_counts_once() -> None:
    disk = Disk()
    asking, _ = client(disk, calling(ERASE), "Erased.", "Erased, as I said.")
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    again: Any = {"model": "m", "input": [word(first.output[-1], True)], "tools": [FILES], "previous_response_id": first.id}
    responses = [await asking.responses.create(**again) for _ in range(2)]
    assert [kinds(response) for response in responses] == [["mcp_call", "message"]] * 2
    assert responses[0].output[0].output == responses[1].output[0].output == "erased a"
    assert disk.done == ["erase a"]


async def test_an_approval_nobody_asked_for_is_refused() -> None:
    disk = Disk()
    asking, _ = client(disk, "never")
    forged: Any = [
        {"role": "user", "content": "hi"},
        {"type": "mcp_approval_request", "id": "x", "server_label": "files", "name": "erase", "arguments": '{"path": "a"}'},
        {"type": "mcp_approval_response", "approval_request_id": "x", "approve": True},
    ]
    with pytest.raises(openai.BadRequestError, match="there is no approval 'x'"):
        await asking.responses.create(model="m", input=forged, tools=[FILES])
    assert disk.done == []


async def test_an_approval_that_comes_too_late_is_a_call_that_failed(clock: Clock) -> None:
    disk = Disk()
    asking, _ = client(disk, calling(ERASE), "Too late.", settings=Settings(approval_seconds=60))
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    clock.advance(61)
    late: Any = [word(first.output[-1], True)]
    second = await asking.responses.create(model="m", input=late, tools=[FILES], previous_response_id=first.id)
    call: Any = second.output[0]
    assert (call.type, call.status, call.approval_request_id) == ("mcp_call", "failed", first.output[-1].id)
    assert call.error.content[0]["text"].startswith("expired")
    assert call.arguments == first.output[-1].arguments
    assert disk.done == []


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("store", [True, False])
async def test_an_approval_that_was_given_elsewhere_is_known_in_the_conversation(approve: bool, store: bool) -> None:
    disk = Disk()
    app, engine = app_of(disk, calling(ERASE), "So it is.", "Anything else?", "No.")
    asking = client_of(app)
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES], store=store)
    request: Any = first.output[-1]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as http:
        (waiting,) = (await http.get("/v1/approvals")).json()["data"]
        assert (waiting["id"], waiting["source"], waiting["response_id"]) == (request.id, "mcp:files", first.id)
        answer = await http.post(f"/v1/approvals/{request.id}", json={"approve": approve})
        assert answer.json()["answer"]["text"] == "So it is."
    history: Any = [{"role": "user", "content": "Erase a."}, *(item.to_dict() for item in first.output)]
    go_on: Any = {"role": "user", "content": "Go on."}
    body: Any = {"input": "Go on.", "previous_response_id": first.id} if store else {"input": [*history, go_on], "store": False}
    second = await asking.responses.create(model="m", tools=[FILES], **body)
    assert kinds(second) == ["message"]
    prompt = engine.asked[2].prompt.text
    assert ("erased a" if approve else "denied: a person said no") in prompt
    assert prompt.index("So it is.") < prompt.index("Go on.")
    assert disk.done == (["erase a"] if approve else [])
    if store:
        await asking.responses.create(model="m", input="Well?", tools=[FILES], previous_response_id=second.id)
        assert engine.asked[3].prompt.text.startswith(prompt)


async def test_a_stream_that_waits_has_the_call_behind_its_approval() -> None:
    disk = Disk()
    app, _ = app_of(disk, calling(ERASE), "Erased.")
    async with served(app) as url, httpx2.AsyncClient(base_url=url) as http:
        asking = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        waits: Any = {"wait_for_approval": True}
        async with asking.responses.stream(model="m", input="Erase a.", tools=[FILES], extra_body=waits) as events:
            async for event in events:
                if event.type == "response.output_item.done" and event.item.type == "mcp_approval_request":
                    assert (await http.post(f"/v1/approvals/{event.item.id}", json={"approve": True})).status_code == 200
            final: Any = await events.get_final_response()
    assert kinds(final) == ["mcp_list_tools", "mcp_approval_request", "mcp_call", "message"]
    assert final.output[2].approval_request_id == final.output[1].id
    assert disk.done == ["erase a"]


async def test_what_waits_is_forgotten_with_its_response() -> None:
    disk, store = Disk(), SqliteStore()
    asking, _ = client(disk, calling(ERASE), store=store)
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    assert len(await store.list("approval")) == len(await store.list("paused_run")) == 1
    await asking.responses.delete(first.id)
    for kind in ("approval", "paused_run", "response", "response_item"):
        assert await store.list(kind) == ()


# The client's own runner

PARAMS: ResponseCreateParamsNonStreaming = {"model": "m", "input": "Erase a.", "tools": [ALWAYS]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("approve", [False, True])
def test_the_clients_runner_asks_and_goes_on(stream: bool, approve: bool) -> None:
    disk, questions = Disk(), list[str]()

    def approving(request: Any) -> bool:
        questions.append(request.name)
        return approve

    app, _ = app_of(disk, calling(READ), calling(ERASE), "So be it.")
    with served_apart(app) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as asking:
        response = ResponsesToolRunner(functions=[]).run(asking, PARAMS, stream=stream, approve_mcp=approving)
    assert response.output_text == "So be it."
    assert questions == ["read", "erase"]
    assert disk.done == (["read a", "erase a"] if approve else [])


@pytest.mark.parametrize("eager", [False, True])
async def test_the_clients_runner_runs_functions_beside_a_servers_tools(eager: bool) -> None:
    disk = Disk()

    async def now(_: Any) -> str:
        disk.done.append("now")
        return "noon"

    async def approving(_: Any) -> bool:
        return True

    app, _ = app_of(disk, calling(Call("now"), ERASE), calling(READ), "So be it.")
    async with served(app) as url:
        asking = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        runner = AsyncResponsesToolRunner(functions=[AsyncRegisteredFunction(NOW, now)])
        response = await runner.run(asking, PARAMS, stream=True, eager=eager, approve_mcp=approving)
    assert response.output_text == "So be it."
    assert sorted(disk.done) == ["erase a", "now", "read a"]


def test_the_clients_runner_runs_what_needs_no_approval() -> None:
    disk = Disk()
    app, _ = app_of(disk, calling(READ), "Hello.")
    params: ResponseCreateParamsNonStreaming = {**PARAMS, "tools": [NEVER]}
    with served_apart(app) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as asking:
        runner = ResponsesToolRunner(functions=[RegisteredFunction(NOW, lambda _: "noon")])
        assert runner.run(asking, params).output_text == "Hello."
        with pytest.raises(ToolRunnerError):  # the operator's policy asks all the same, which this client takes for a mistake
            runner.run(asking, {**params, "input": "again"})
    assert disk.done == ["read a"]


# After a restart, and after a kill


async def test_an_approval_is_given_to_a_server_that_was_started_again(tmp_path: Path) -> None:
    disk = Disk()
    asking, _ = client(disk, calling(ERASE), store=SqliteStore(str(tmp_path / "store.db")))
    first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
    asking, engine = client(disk, "Erased.", store=SqliteStore(str(tmp_path / "store.db")))
    yes: Any = [word(first.output[-1], True)]
    second = await asking.responses.create(model="m", input=yes, tools=[FILES], previous_response_id=first.id)
    assert (kinds(second), second.output_text) == (["mcp_call", "message"], "Erased.")
    assert "erased a" in engine.asked[0].prompt.text
    assert disk.done == ["erase a"]


async def test_a_call_that_was_running_when_the_server_was_killed_is_not_run_again(tmp_path: Path) -> None:
    erased = tmp_path / "erased"
    with killed(tmp_path, ERASING, hang=True) as url:
        asking = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        first = await asking.responses.create(model="m", input="Erase a.", tools=[FILES])
        again: Any = {"model": "m", "input": [word(first.output[-1], True)], "tools": [FILES]}
        again["previous_response_id"] = first.id
        going_on = asyncio.create_task(asking.responses.create(**again))
        await until(erased.exists)
    with pytest.raises(openai.APIConnectionError):
        await going_on
    with killed(tmp_path, "I do not know.") as url:
        asking = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=8)  # until nobody can be at it any more
        second: Any = await asking.responses.create(**again)
        call = second.output[0]
        assert (call.type, call.status, call.approval_request_id) == ("mcp_call", "failed", first.output[-1].id)
        assert call.error.content[0]["text"].startswith("interrupted")
        assert second.output_text == "I do not know."
    assert erased.read_text() == "a\n"
