"""Background tools of ours as tasks, asked for by the SDK's client: in both revisions that have them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("mcp")

import mcp_types as types
from mcp import Client, MCPError
from pydantic import ConfigDict

from callsmith.cli.mcp import happening
from callsmith.core.events import ToolProgress
from callsmith.core.values import Tool
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.tools.functions import Function, Functions, tool
from callsmith.tools.mcp.content import RELATED_TASK, TASKS_EXTENSION
from callsmith.tools.mcp.serving.server import CANNOT_ASK, ToolsetServer
from callsmith.tools.mcp.serving.tasks import ServedTasks, TaskParams
from callsmith.tools.mcp.tasks import TaskBegun, TaskClient, TasksExtension
from callsmith.tools.wrap import Confirmed

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


class Any_(types.Result):
    """Whatever a server answers."""

    model_config = ConfigDict(extra="allow")


class Ask(types.Request[TaskParams, str]):
    name_param = "taskId"


class Workshop:
    """Tools that work until they are let go."""

    def __init__(self) -> None:
        self.go, self.stopped = asyncio.Event(), 0

        @tool(background=True)
        async def dig(metres: int) -> AsyncIterator[Any]:
            """Digs."""
            yield ToolProgress("", "deeper", 1, 2)
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped += 1
                raise
            yield f"{metres} metres"

        @tool(background=True, side_effects=True)
        async def blast() -> str:
            """Blasts."""
            return "gone"

        @tool(background=True)
        async def fail() -> str:
            """Fails."""
            raise ValueError("no luck")

        async def measure() -> dict[str, int]:
            return {"x": 3}

        measuring = Function.of(measure, Tool("measure", output=POINT, background=True))

        @tool
        async def look() -> str:
            """Looks."""
            return "seen"

        self.jobs = Jobs()
        self.toolset = Confirmed(Functions(dig, blast, fail, measuring, look))

    def server(self, *, lists: bool = True) -> Any:
        tasks = ServedTasks(self.jobs, 60.0, lists=lists)
        return ToolsetServer(self.toolset, happening, version="1", tasks=tasks).server()


@asynccontextmanager
async def client_of(workshop: Workshop, mode: str, **options: Any) -> AsyncIterator[tuple[Client, TaskClient]]:
    lists = options.pop("lists", True)
    async with Client(workshop.server(lists=lists), mode=mode, extensions=[TasksExtension()], **options) as client:
        yield client, TaskClient(client, "ours", 0.1)


async def begin(client: Client, tasks: TaskClient, name: str, **arguments: Any) -> str:
    with pytest.raises(TaskBegun) as begun:
        if tasks.is_modern:
            await client.call_tool(name, arguments)
        else:
            await begin_legacy(client, name, arguments)
    return begun.value.id


async def begin_legacy(client: Client, name: str, arguments: dict[str, Any]) -> None:
    params = {"name": name, "arguments": arguments, "task": {"ttl": 1000}}
    answer = await client.session._dispatcher.send_raw_request("tools/call", params, {})  # the SDK would not take the answer
    raise TaskBegun(answer["task"]["taskId"])


async def ask(client: Client, method: str, id: str) -> dict[str, Any]:
    answer = await client.session.send_request(Ask(method=method, params=TaskParams(task_id=id)), Any_)
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])


@MODES
async def test_a_server_says_that_it_has_tasks_and_which_tools_can_be_some(mode: str):
    async with client_of(Workshop(), mode) as (client, _):
        able = client.server_capabilities
        listed = {item.name: item.execution for item in (await client.list_tools()).tools}
    if mode == "legacy":
        assert able.tasks is not None and able.tasks.list is not None and able.tasks.cancel is not None
        assert able.tasks.requests is not None and able.tasks.requests.tools is not None
        assert {name: item.task_support for name, item in listed.items() if item} == dict.fromkeys(
            ("dig", "blast", "fail", "measure"), "optional"
        )
    else:
        assert able.extensions == {TASKS_EXTENSION: {}}
        assert able.tasks is None


@MODES
async def test_a_call_becomes_a_job_which_the_client_follows_to_its_result(mode: str):
    workshop = Workshop()
    async with client_of(workshop, mode) as (client, tasks):
        id = await begin(client, tasks, "dig", metres=3)
        (job,) = await workshop.jobs.list()
        assert (job.id, job.status) == (id, "running")
        seen: list[str] = []

        def tell(text: str) -> None:
            seen.append(text)
            workshop.go.set()

        result = await tasks.follow("dig", id, tell)
        assert result.content == [types.TextContent(text="3 metres")]
        assert seen[0] == "deeper"
        state = await ask(client, "tasks/get", id)
        assert (state["taskId"], state["status"], state["ttlMs" if mode == "auto" else "ttl"]) == (id, "completed", 60_000)
        if mode == "legacy":
            assert (await ask(client, "tasks/result", id))["_meta"] == {RELATED_TASK: {"taskId": id}}


@MODES
async def test_a_task_is_cancelled_with_its_job(mode: str):
    workshop = Workshop()
    async with client_of(workshop, mode) as (client, tasks):
        id = await begin(client, tasks, "dig", metres=3)
        await tasks.cancel(id)
        assert workshop.stopped == 1
        assert (await ask(client, "tasks/get", id))["status"] == "cancelled"
        if mode == "legacy":
            with pytest.raises(MCPError, match="has ended already") as refused:
                await tasks.cancel(id)
            assert refused.value.code == types.INVALID_PARAMS
        else:
            await tasks.cancel(id)  # an acknowledgement, and nothing more


@MODES
async def test_what_a_tool_promises_of_its_output_holds_for_a_task(mode: str):
    async with client_of(Workshop(), mode) as (client, tasks):
        await client.list_tools()
        id = await begin(client, tasks, "measure")
        result = await tasks.follow("measure", id, lambda _: None)
        assert result.structured_content == {"x": 3}


@MODES
async def test_a_tool_that_fails_is_an_error_the_model_reads(mode: str):
    async with client_of(Workshop(), mode) as (client, tasks):
        id = await begin(client, tasks, "fail")
        result = await tasks.follow("fail", id, lambda _: None)
        assert result.is_error
        assert "no luck" in result.content[0].text  # type: ignore[union-attr]
        assert (await ask(client, "tasks/get", id))["status"] == ("completed" if mode == "auto" else "failed")


@MODES
async def test_a_person_is_asked_before_a_task_begins(mode: str):
    asked: list[str] = []

    async def agree(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"run": True})

    workshop = Workshop()
    async with client_of(workshop, mode, elicitation_callback=agree) as (client, tasks):
        id = await begin(client, tasks, "blast")
        assert asked == ["Run blast {}? (blast has side effects)"]
        assert (await tasks.follow("blast", id, lambda _: None)).content == [types.TextContent(text="gone")]
    async with client_of(workshop, mode) as (client, tasks):  # it cannot ask
        if mode == "legacy":
            with pytest.raises(MCPError, match=CANNOT_ASK):
                await begin_legacy(client, "blast", {})
        else:
            refused = await client.call_tool("blast", {})
            assert refused.is_error and CANNOT_ASK in refused.content[0].text  # type: ignore[union-attr]
    assert len(await workshop.jobs.list()) == 1


@MODES
async def test_a_client_that_does_not_ask_for_a_task_gets_the_result(mode: str):
    workshop = Workshop()
    workshop.go.set()
    async with Client(workshop.server(), mode=mode) as client:
        result = await client.call_tool("dig", {"metres": 2})
        assert result.content == [types.TextContent(text="2 metres")]
        assert not await workshop.jobs.list()
        if mode == "auto":  # it has not said that it knows tasks
            with pytest.raises(MCPError) as refused:
                await ask(client, "tasks/get", "job_0")
            assert refused.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_only_background_tools_can_be_called_as_tasks():
    async with client_of(Workshop(), "legacy") as (client, _):
        with pytest.raises(MCPError, match="look cannot be called as a task") as refused:
            await begin_legacy(client, "look", {})
        assert refused.value.code == types.METHOD_NOT_FOUND
        with pytest.raises(MCPError, match="metres"):
            await begin_legacy(client, "dig", {"metres": "deep"})
        with pytest.raises(MCPError, match="Unknown tool"):
            await begin_legacy(client, "nothing", {})


@MODES
async def test_ids_of_others_and_methods_of_the_other_revision_are_refused(mode: str):
    workshop = Workshop()
    async with client_of(workshop, mode) as (client, _):
        for method in ("tasks/get", "tasks/cancel", "tasks/result" if mode == "legacy" else "tasks/update"):
            with pytest.raises(MCPError, match="there is no task 'job_0'") as refused:
                await ask(client, method, "job_0")
            assert refused.value.code == types.INVALID_PARAMS
        with pytest.raises(MCPError) as unknown:
            await ask(client, "tasks/update" if mode == "legacy" else "tasks/result", "job_0")
        assert unknown.value.code == types.METHOD_NOT_FOUND


async def test_tasks_are_listed_only_where_nobody_else_could_ask():
    workshop = Workshop()
    listing: Any = types.ListTasksRequest()
    async with client_of(workshop, "legacy") as (client, tasks):
        id = await begin(client, tasks, "dig", metres=1)
        answer = await client.session.send_request(listing, types.ListTasksResult)
        assert [item.task_id for item in answer.tasks] == [id]
    async with client_of(workshop, "legacy", lists=False) as (client, _):
        assert client.server_capabilities.tasks is not None and client.server_capabilities.tasks.list is None
        with pytest.raises(MCPError) as refused:
            await client.session.send_request(listing, types.ListTasksResult)
        assert refused.value.code == types.METHOD_NOT_FOUND
    await workshop.jobs.close()
