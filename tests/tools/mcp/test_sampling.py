"""Sampling with tools: our model calls tools that a server brings, and the server runs them."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("mcp")

import mcp_types as types

from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent, Stopped, Text
from callsmith.core.values import Call, Choice, Request
from callsmith.tools.mcp import McpHost, ServerConfig
from callsmith.tools.mcp.elicitation import ClientFeatures
from callsmith.tools.mcp.sampling import MOST_MESSAGES, MOST_TOOLS, read_request, sample
from tests.fakes import FakeModel, calls, says
from tests.tools.mcp.test_resources import LIBRARY
from tests.tools.mcp.trying import call, noted, plain

pytestmark = pytest.mark.processes

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
ASKED = Call("weather", {"city": "Bonn"}, "call_1")


def use(id: str = "u1", name: str = "weather") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {"city": "Bonn"}}


def done(id: str = "u1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": id, "content": [{"type": "text", "text": "21"}], **more}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def asked(*messages: tuple[str, Any], **more: Any) -> types.CreateMessageRequestParams:
    said = [{"role": role, "content": content} for role, content in messages]
    tools = [{"name": "weather", "inputSchema": SCHEMA}]
    return types.CreateMessageRequestParams.model_validate({"messages": said, "maxTokens": 50, "tools": tools, **more})


async def test_a_real_server_has_our_model_call_its_tools_until_it_knows():
    model = FakeModel(calls(ASKED), says("It is 21 degrees."))
    server = ServerConfig("library", sys.executable, (str(LIBRARY),), sampling=True, protocol="legacy", start_timeout=60)
    async with McpHost([server], features=ClientFeatures(model=model)) as host:
        result = await call(host, "research", topic="How warm is it in Bonn?")
    assert (result.ok, result.text) == (True, "It is 21 degrees."), result.text
    first, second = model.asked
    assert [tool.name for tool in first.tools] == ["weather"]
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert second.messages[1].calls == (ASKED,)
    assert (second.messages[2].content, second.messages[2].name) == ("21 degrees in Bonn", "weather")


@pytest.mark.parametrize("modern", [False, True], ids=["2025-11-25", "2026-07-28"])
async def test_calls_go_back_to_the_server_as_tool_use(modern: bool):
    model = FakeModel([Text("Let me see."), *calls(Call("weather", {"text": "Bonn"}, "call_1"))])
    options = {"modern": modern, "tools": ["sample_with_tools"]}
    async with McpHost([plain(options=options, sampling=True)], features=ClientFeatures(model=model)) as host:
        result = await call(host, "sample_with_tools")
    answer = json.loads(result.text)
    assert (answer["stopReason"], answer["role"]) == ("toolUse", "assistant")
    assert answer["content"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"text": "Bonn"}},
    ]
    (request,) = model.asked
    assert (request.choice, [tool.name for tool in request.tools]) == (Choice("required"), ["weather"])


@pytest.mark.parametrize("modern", [False, True], ids=["2025-11-25", "2026-07-28"])
async def test_a_server_does_not_have_the_model_write_for_ever(modern: bool):
    model = Writes()
    options = {"modern": modern, "tools": ["sample_on", "sample"]}
    async with McpHost([plain(options=options, sampling=True)], features=ClientFeatures(model=model)) as host:
        async with asyncio.timeout(120):
            result = await call(host, "sample_on")
        assert not result.ok
        assert modern or "no more than 100 requests for one call" in result.text
        assert model.answers == (10 if modern else 100)  # the newer way is counted by the SDK
        assert (await call(host, "sample")).text == "a"


class Writes:
    """A model that writes as often as it is asked."""

    answers = 0

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.answers += 1
        yield Text("a")
        yield Stopped("stop")


async def test_a_server_is_told_that_it_may_bring_tools(tmp_path: Any):
    notes = tmp_path / "notes"
    options = {"notes": str(notes)}
    async with McpHost([plain(options=options, sampling=True)], features=ClientFeatures(model=FakeModel(says("x")))) as host:
        await host.tools()
    (line,) = [line for line in noted(notes) if line.startswith("client")]
    assert json.loads(line.removeprefix("client ")) == {"sampling": {"tools": {}}}


async def test_results_of_tools_are_read_and_the_answer_is_a_text():
    model = FakeModel(says("21 degrees."))
    history = asked(
        ("user", words("How warm?")), ("assistant", [words("Hm."), use("u1"), use("u2")]), ("user", [done("u2"), done()])
    )
    answer = await sample(model, history)
    assert isinstance(answer, types.CreateMessageResult)
    assert (answer.stop_reason, answer.content) == ("endTurn", types.TextContent(text="21 degrees."))
    _, assistant, second, first = model.asked[0].messages
    assert (assistant.content, [item.id for item in assistant.calls]) == ("Hm.", ["u1", "u2"])
    assert (second.call_id, first.call_id, first.content) == ("u2", "u1", "21")
    structured = read_request(asked(("assistant", use()), ("user", done(content=[], structuredContent={"warm": True}))))
    assert structured.messages[-1].content == '{"warm": true}'


async def test_calls_without_ids_get_some_and_no_two_the_same():
    answer = await sample(FakeModel([*calls(Call("weather"), Call("weather"))]), asked(("user", words("How warm?"))))
    assert isinstance(answer, types.CreateMessageResultWithTools)
    ids = [block.id for block in answer.content_as_list if isinstance(block, types.ToolUseContent)]
    assert len(set(ids)) == 2 and all(ids)


WRONG = {
    "no result": ([("assistant", use())], {}, "no tool_result for u1"),
    "no result before the next": ([("assistant", use()), ("user", words("and?"))], {}, "no tool_result for u1"),
    "another id": ([("assistant", use()), ("user", done("u9"))], {}, "one for each tool_use"),
    "one too few": ([("assistant", [use(), use("u2")]), ("user", done())], {}, "one for each tool_use"),
    "twice": ([("assistant", use()), ("user", [done(), done()])], {}, "one for each tool_use"),
    "words beside": ([("assistant", use()), ("user", [done(), words("look")])], {}, "nothing else"),
    "out of nowhere": ([("user", done())], {}, "one for each tool_use"),
    "the user calls": ([("user", use())], {}, "tool_use is the assistant's"),
    "one id twice": ([("assistant", [use(), use()])], {}, "two calls have the id u1"),
    "a picture": ([("user", {"type": "image", "data": "", "mimeType": "image/png"})], {}, "only text"),
    "too many tools": (
        [],
        {"tools": [{"name": f"t{n}", "inputSchema": SCHEMA} for n in range(MOST_TOOLS + 1)]},
        "no more than 128",
    ),
    "two of a name": ([], {"tools": [{"name": "t", "inputSchema": SCHEMA}] * 2}, "two tools are called t"),
    "an odd name": ([], {"tools": [{"name": "a b", "inputSchema": SCHEMA}]}, "tool name"),
    "no schema": ([], {"tools": [{"name": "t", "inputSchema": {"type": "object", "properties": 5}}]}, "properties"),
    "none to require": ([], {"tools": [], "toolChoice": {"mode": "required"}}, "there are none"),
    "too many stops": ([("user", words("x"))], {"stopSequences": ["x"] * 65}, "no more than 64 stop sequences"),
    "too many messages": ([("user", words("x"))] * (MOST_MESSAGES + 1), {}, "no more than 1,000 messages"),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_what_makes_no_sense_is_refused_with_the_reason_and_the_model_is_not_asked(kind: str):
    messages, more, why = WRONG[kind]
    model = FakeModel(says("never"))
    answer = await sample(model, asked(*messages, **more))
    assert isinstance(answer, types.ErrorData)
    assert answer.code == types.INVALID_PARAMS
    assert why in answer.message
    assert not model.asked
    with pytest.raises(UsageError):
        read_request(asked(*messages, **more))


async def test_an_answer_with_tools_is_cut_off_where_any_is():
    model = FakeModel([Text("so"), Stopped("length")])
    answer = await sample(model, asked(("user", words("x")), maxTokens=1_000_000))
    assert isinstance(answer, types.CreateMessageResult)
    assert (answer.stop_reason, model.asked[0].sampling.max_tokens) == ("maxTokens", 2_000)
