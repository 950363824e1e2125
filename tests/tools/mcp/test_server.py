"""Our tools as an MCP server, asked by the SDK's client in both eras of the protocol."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("mcp")

import mcp_types as types
from mcp import Client, MCPError

from callsmith.cli.mcp import happening
from callsmith.core.approval import Policy, Rule
from callsmith.core.errors import MissingExtra
from callsmith.core.events import ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Result, Tool
from callsmith.runtime.conversation.agent import Agent
from callsmith.tools.functions import Function, Functions, tool
from callsmith.tools.mcp.serving.content import write_result
from callsmith.tools.mcp.serving.server import CANNOT_ASK, NOT_APPROVED, TOO_LATE, ToolsetServer
from callsmith.tools.wrap import Confirmed, Merged
from tests.fakes import Call, FakeModel, calls, says
from tests.serving import served
from tests.waiting import until

ERAS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
paid: list[int] = []
waiting: list[str] = []
stopped: list[str] = []


@tool(idempotent=True)
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
async def count(to: int):
    """Counts."""
    for number in range(1, to + 1):
        yield ToolProgress("", f"at {number}", number, to)
    yield ToolProgress("", "nearly done")
    yield f"counted to {to}"


@tool(side_effects=True)
async def pay(euros: int) -> str:
    """Pays."""
    paid.append(euros)
    return f"paid {euros}"


@tool
async def wait() -> str:
    """Waits for ever."""
    waiting.append("wait")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        stopped.append("wait")
        raise
    return "never"


@tool
async def fail() -> str:
    """Fails."""
    raise ValueError("no luck")


def promised(name: str, output: dict[str, Any], value: Any) -> Function:
    async def give() -> Any:
        return value

    return Function.of(give, Tool(name, output=output))


TOOLS = Functions(
    add,
    count,
    pay,
    wait,
    fail,
    promised("point", POINT, {"x": 1}),
    promised("broken", POINT, {"y": 1}),
    promised("number", {"type": "integer"}, 7),
    Function.of(add, Tool("files/read:all", "Odd names.", Function.of(add).tool.parameters)),
)


def offered(toolset: Any = None) -> Any:
    return ToolsetServer(toolset or Confirmed(TOOLS), happening, version="1").server()


def text(result: types.CallToolResult) -> str:
    return result.content[0].text  # type: ignore[union-attr]


class User:
    """A person at the client, who says the same to everything."""

    def __init__(self, action: str, content: dict[str, Any] | None = None) -> None:
        self.said = types.ElicitResult(action=action, content=content)  # type: ignore[arg-type]
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return self.said


@pytest.mark.parametrize("mode", ERAS)
async def test_tools_are_listed_with_what_is_known_of_them(mode: str):
    async with Client(offered(), mode=mode) as client:
        assert client.protocol_version == ERAS[mode]
        assert (client.server_info.name, client.server_info.version) == ("callsmith", "1")
        listed = {listed_tool.name: listed_tool for listed_tool in (await client.list_tools()).tools}
    assert list(listed) == ["add", "count", "pay", "wait", "fail", "point", "broken", "number", "files_read_all"]
    assert listed["add"].description == "Adds two numbers."
    assert listed["add"].input_schema["required"] == ["a", "b"]
    hints = {
        name: (listed_tool.annotations.read_only_hint, listed_tool.annotations.idempotent_hint)
        for name, listed_tool in listed.items()
    }
    assert (hints["add"], hints["count"], hints["pay"]) == ((True, True), (True, False), (False, False))
    assert listed["point"].output_schema == POINT
    # Only objects could be described before.
    assert listed["number"].output_schema == (None if mode == "legacy" else {"type": "integer"})


@pytest.mark.parametrize("mode", ERAS)
async def test_calls_are_run_and_answered(mode: str):
    async with Client(offered(), mode=mode) as client:
        added = await client.call_tool("add", {"a": 1, "b": 2})
        assert (text(added), added.is_error, added.structured_content) == ("3", False, None)
        assert text(await client.call_tool("files_read_all", {"a": 1, "b": 2})) == "3"
        point = await client.call_tool("point", {})
        assert (text(point), point.structured_content) == ('{"x": 1}', {"x": 1})
        number = await client.call_tool("number", {})
        assert (text(number), number.structured_content) == ("7", None if mode == "legacy" else 7)


@pytest.mark.parametrize("mode", ERAS)
async def test_what_goes_wrong_is_told_where_the_model_sees_it(mode: str):
    async with Client(offered(), mode=mode) as client:
        for name, arguments, words in [
            ("fail", {}, "no luck"),
            ("add", {"a": 1}, '"b" is a required property'),
            ("broken", {}, 'does not fit the tool\'s output schema ("x" is a required property): {"y": 1}'),
        ]:
            result = await client.call_tool(name, arguments)
            assert result.is_error and words in text(result)
        with pytest.raises(MCPError, match="Unknown tool: nothing"):
            await client.call_tool("nothing", {})


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_is_told_and_always_grows(mode: str):
    reported: list[tuple[float, float | None, str | None]] = []

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total, message))

    async with Client(offered(), mode=mode) as client:
        result = await client.call_tool("count", {"to": 3}, progress_callback=watch)
    assert text(result) == "counted to 3"
    assert reported == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3"), (4, None, "nearly done")]


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_that_falls_back_is_mended(mode: str):
    @tool
    async def back():
        """Goes back."""
        yield ToolProgress("", "", 5, 9)
        yield ToolProgress("", "", 2, 9)
        yield "done"

    reported: list[float] = []

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        reported.append(progress)

    async with Client(offered(Functions(back)), mode=mode) as client:
        await client.call_tool("back", {}, progress_callback=watch)
    assert reported[0] == 5 and reported[0] < reported[1] < 5.001


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_that_is_given_up_is_stopped(mode: str):
    waiting.clear()
    stopped.clear()
    async with Client(offered(), mode=mode) as client:
        given_up = asyncio.create_task(client.call_tool("wait", {}))
        await until(lambda: waiting)
        given_up.cancel()
        await until(lambda: stopped)
        assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"  # and the server goes on


@pytest.mark.parametrize("mode", ERAS)
async def test_calls_run_side_by_side(mode: str):
    async with Client(offered(), mode=mode) as client:
        waiting = asyncio.create_task(client.call_tool("wait", {}))
        assert text(await client.call_tool("add", {"a": 2, "b": 2})) == "4"
        waiting.cancel()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_person_who_agrees_lets_a_call_run_once(mode: str):
    paid.clear()
    user = User("accept", {"run": True})
    async with Client(offered(), mode=mode, elicitation_callback=user) as client:
        assert text(await client.call_tool("pay", {"euros": 5})) == "paid 5"
        assert (paid, user.asked) == ([5], ['Run pay {"euros": 5}? (pay has side effects)'])
        await client.call_tool("pay", {"euros": 5})
    assert len(user.asked) == 2  # each call is asked about


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("user", [User("decline"), User("cancel"), User("accept", {"run": False}), User("accept", {})])
async def test_a_person_who_does_not_stops_it(mode: str, user: User):
    paid.clear()
    async with Client(offered(), mode=mode, elicitation_callback=user) as client:
        result = await client.call_tool("pay", {"euros": 5})
    assert (result.is_error, text(result), paid) == (True, f"denied: {NOT_APPROVED}", [])


@pytest.mark.parametrize("mode", ERAS)
async def test_where_nobody_can_be_asked_the_call_is_refused(mode: str):
    paid.clear()
    async with Client(offered(), mode=mode) as client:
        result = await client.call_tool("pay", {"euros": 5})
    assert (result.is_error, text(result), paid) == (True, f"denied: {CANNOT_ASK}", [])


@pytest.mark.parametrize("mode", ERAS)
async def test_what_is_forbidden_is_not_asked_about(mode: str):
    user = User("accept", {"run": True})
    forbidding = Confirmed(TOOLS, Policy((Rule("deny", tools="pay", reason="not today"),)))
    async with Client(offered(forbidding), mode=mode, elicitation_callback=user) as client:
        assert text(await client.call_tool("pay", {"euros": 5})) == "denied: not today"
    assert user.asked == []


@pytest.mark.parametrize("mode", ERAS)
async def test_a_yes_that_comes_too_late_is_none(mode: str):
    paid.clear()
    async with Client(
        offered(Confirmed(TOOLS, expires=0)), mode=mode, elicitation_callback=User("accept", {"run": True})
    ) as client:
        assert text(await client.call_tool("pay", {"euros": 5})) == f"denied: {TOO_LATE}"
    assert paid == []


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_asks_about_every_call_it_wants_to_make(mode: str, tmp_path):
    paid.clear()
    model = FakeModel(calls(Call("pay", {"euros": 1}, "a")), calls(Call("pay", {"euros": 2}, "b")), says("Both paid."))
    clerk = Agent("clerk", "Pays bills.", tools=Confirmed(TOOLS)).as_toolset(model, folder=tmp_path)
    user = User("accept", {"run": True})
    async with Client(offered(clerk), mode=mode, elicitation_callback=user) as client:
        assert text(await client.call_tool("clerk", {"task": "Pay the bills."})) == "Both paid."
    assert (paid, len(user.asked)) == ([1, 2], 2)


@asynccontextmanager
async def over_http(server: Any) -> AsyncIterator[str]:
    async with served(server.streamable_http_app(), force=True, http="h11", lifespan="auto") as url:
        yield f"{url}/mcp"


async def test_over_http_a_conversation_is_a_session_or_a_single_call(tmp_path):
    paid.clear()
    seen: list[str] = []

    @tool
    async def who(context: Context) -> str:
        """Who?"""
        seen.append(context.conversation)
        return "?"

    model = FakeModel(*[calls(Call("pay", {"euros": 1}, "a")), calls(Call("pay", {"euros": 2}, "b")), says("Both paid.")] * 2)
    clerk = Agent("clerk", "Pays bills.", tools=Confirmed(TOOLS)).as_toolset(model, folder=tmp_path)
    async with over_http(offered(Merged(Functions(who), clerk))) as url:
        for mode in ERAS:
            user = User("accept", {"run": True})
            async with Client(url, mode=mode, elicitation_callback=user) as client:
                await client.call_tool("who", {})
                await client.call_tool("who", {})
                # A call that is sent again with an answer goes on where it stopped.
                assert text(await client.call_tool("clerk", {"task": "Pay the bills."})) == "Both paid."
                assert len(user.asked) == 2
    assert all(seen) and seen[0] == seen[1] and len(set(seen)) == 3
    assert paid == [1, 2, 1, 2]


async def test_an_answer_counts_once_and_only_for_the_call_that_was_asked_about():
    paid.clear()
    agreed = {"answer": types.ElicitResult(action="accept", content={"run": True})}
    async with Client(offered(), elicitation_callback=User("decline")) as client:

        async def sent(euros: int, state: str | None = None, answers: Any = None) -> Any:
            return await client.session.call_tool(
                "pay", {"euros": euros}, input_responses=answers, request_state=state, allow_input_required=True
            )

        result = await sent(5)
        assert isinstance(result, types.InputRequiredResult)
        # Other arguments, an answer without a question, a question nobody asked: all are asked about anew.
        assert isinstance(await sent(500, result.request_state, agreed), types.InputRequiredResult)
        assert isinstance(await sent(5, None, agreed), types.InputRequiredResult)
        assert isinstance(await sent(5, "made up", agreed), types.InputRequiredResult)
        result = await sent(5)
        assert text(await sent(5, result.request_state, agreed)) == "paid 5"
        assert isinstance(await sent(5, result.request_state, agreed), types.InputRequiredResult)
    assert paid == [5]


async def test_a_client_on_a_pipe_is_one_conversation():
    seen: list[str] = []

    @tool
    async def who(context: Context) -> str:
        """Who?"""
        seen.append(context.conversation)
        return "?"

    async with Client(offered(Functions(who))) as client:
        await client.call_tool("who", {})
        await client.call_tool("who", {})
    assert seen[0] and seen[0] == seen[1]


async def test_names_that_do_not_fit_are_changed_and_stay_apart():
    odd = ["a:b", "a/b", "x" * 200, "x" * 199 + "y", "b.c-d"]
    async with Client(offered(Functions(*(Function.of(add, Tool(name)) for name in odd)))) as client:
        names = [listed_tool.name for listed_tool in (await client.list_tools()).tools]
    assert len(set(names)) == 5 and names[-1] == "b.c-d"
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,128}", name) for name in names)


def test_a_result_that_failed_is_not_held_to_the_schema():
    result = write_result(Result("1", "point", "timeout: slow", ok=False), Tool("point", output=POINT))
    assert (result.is_error, text(result), result.structured_content) == (True, "timeout: slow", None)


def test_without_the_extra_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    with pytest.raises(MissingExtra, match=r"callsmith\[mcp\]"):
        ToolsetServer(TOOLS, happening).server()
