"""Which tools of the server's a request wants, and under which rules."""

import json
from typing import Any

import pytest

from callsmith.core.approval import Policy, Rule
from callsmith.core.errors import UsageError
from callsmith.core.serialize import dump, load
from callsmith.core.values import Call, Message, Request, Tool
from callsmith.server.settings import Settings
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed, Merged, Renamed
from callsmith.wire.extensions import ToolOptions, ToolSource
from tests.fakes import FakeModel, Sourced
from tests.server.asking import calls, make_pipeline, says


def read(path: str) -> str:
    return f"read {path}"


@tool(side_effects=True)
def write(path: str) -> str:
    return f"wrote {path}"


FILES = Renamed(Sourced("mcp:files", read, write), lambda name: f"files_{name}")
EVERYTHING = Confirmed(Merged(FILES, Sourced("mcp:disk", read), Functions(read)), Policy(side_effects="auto"))


async def offered(model: FakeModel, wish: ToolOptions, tools: Any = EVERYTHING, request: Request | None = None) -> list[Any]:
    answers = make_pipeline({"m": model}, tools, Settings())
    return [event async for event in answers.events(model, request or Request((Message.user("hi"),)), wish)]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ((ToolSource("files"),), ["files_read", "files_write"]),
        ((ToolSource("mcp:files", ("read",)),), ["files_read"]),
        ((ToolSource("files", ("files_w*",)), ToolSource("python")), ["files_write", "python_read"]),
        ((ToolSource("files", read_only=True),), ["files_read"]),
    ],
)
async def test_only_the_tools_that_are_wanted_are_offered(wanted: Any, names: list[str]):
    model = FakeModel(says("ok"))
    await offered(model, ToolOptions(sources=wanted))
    assert [listed_tool.name for listed_tool in model.asked[0].tools] == names


async def test_tools_are_known_by_the_name_they_have_where_they_come_from():
    twice = Renamed(Renamed(Functions(read), {"read": "a"}), {"a": "b"})
    assert [(listed_tool.name, listed_tool.original) for listed_tool in await twice.tools()] == [("b", "read")]
    assert [(listed_tool.name, listed_tool.original) for listed_tool in await Functions(read).tools()] == [("read", "")]


async def test_a_source_that_is_not_there_is_an_error_that_names_those_that_are():
    with pytest.raises(Exception, match="unknown source of tools 'mail'; this server has: disk, files, python"):
        await offered(FakeModel(says("ok")), ToolOptions(sources=(ToolSource("mail"),)))


async def test_wanted_tools_stand_beside_those_of_the_client():
    model = FakeModel(says("ok"))
    await offered(model, ToolOptions(sources=(ToolSource("disk"),)), request=Request((Message.user("hi"),), (Tool("own"),)))
    assert [listed_tool.name for listed_tool in model.asked[0].tools] == ["own", "mcp_disk_read"]


@pytest.mark.parametrize(
    ("policy", "asks"),
    [
        (Policy(otherwise="ask", side_effects="ask"), True),
        (Policy((Rule("ask", "read"),), "auto", "auto"), True),
        (Policy((Rule("ask", "write"),), "auto", "auto"), False),
        (Policy((Rule("auto", "read"),), "ask", "ask"), False),
        (Policy((), "auto", "auto", (Policy(otherwise="ask"),)), True),
        (Policy((Rule("ask", sources="mcp:disk"),), "auto", "auto"), False),
        (None, False),
    ],
)
@pytest.mark.parametrize("tools", [EVERYTHING, Merged(FILES, Sourced("mcp:disk", read))])
async def test_a_request_can_tighten_the_rules_for_what_it_wants_and_for_nothing_else(policy: Any, asks: bool, tools: Any):
    wish = ToolOptions(sources=(ToolSource("files", policy=policy), ToolSource("disk")))
    disk = next(listed_tool.name for listed_tool in await tools.tools() if listed_tool.source == "mcp:disk")
    for name, waits in (("files_read", asks), (disk, False)):
        events = await offered(FakeModel(calls(Call(name, {"path": "x"}, "c")), says("ok")), wish, tools)
        assert any(type(event).__name__ == "ConfirmationNeeded" for event in events) is waits, name


async def test_a_request_cannot_loosen_the_rules():
    strict = Confirmed(FILES, Policy())
    wish = ToolOptions(sources=(ToolSource("files", policy=Policy((), "auto", "auto")),))
    events = await offered(FakeModel(calls(Call("files_write", {"path": "x"}, "c")), says("ok")), wish, strict)
    assert any(type(event).__name__ == "ConfirmationNeeded" for event in events)


def test_a_tool_source_is_read_back_as_it_was_written():
    policy = Policy((Rule("ask", "r*", "mcp:*", True, reason="so"),), "deny", "auto", (Policy(otherwise="ask"),))
    for source in (ToolSource("files"), ToolSource("files", ("a", "b"), policy, True)):
        assert load(ToolSource, json.loads(json.dumps(dump(source)))) == source


def test_a_policy_with_a_function_cannot_be_stored():
    policy = Policy(also=(Policy((Rule("ask"), Rule("deny", when=bool))),))
    with pytest.raises(UsageError, match=r"policy\.also\.0\.rules\.1\.when: a function cannot be stored"):
        dump(ToolSource("files", policy=policy))
