"""One request must not block the event loop, whatever is large in it: it is refused by name, or read in time."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from callsmith import open_model
from callsmith.core.errors import UnknownName
from callsmith.core.values import Call, Message, Request, Result
from callsmith.engines.port import Piece
from callsmith.engines.text import StopScanner
from callsmith.server.app import create_app
from callsmith.server.http.body_reader import has_more_values
from callsmith.server.settings import Requests, Settings
from callsmith.wire.anthropic.messages import read_request as read_messages
from callsmith.wire.ollama.requests import read_chat as read_ollama
from callsmith.wire.openai.chat import read_request as read_chat
from callsmith.wire.openai.responses import read_request as read_responses
from tests.attack.loop_latency import LARGE_REQUESTS, MeasuredServer, measured_server
from tests.fakes import FakeModel
from tests.server.asking import HI, WEATHER, http, says
from tests.server.sockets import connected

LATENCY = 0.25  # seconds that the loop may be late at worst


@pytest.fixture(scope="module")
def server() -> Iterator[MeasuredServer]:
    with measured_server() as running:
        yield running


@pytest.mark.parametrize("name", LARGE_REQUESTS)
def test_a_large_request_does_not_block_the_loop(server: MeasuredServer, name: str):
    response = server.post("/v1/chat/completions", json.dumps(LARGE_REQUESTS[name]()).encode(), timeout=60)
    assert response.status_code in (200, 400, 413)
    assert server.worst_latency() < LATENCY


def test_a_search_among_many_long_tools_does_not_block_the_loop():
    long = "word other thing " * 100
    tools = [{"name": f"t{number}", "description": long, "defer_loading": True, "input_schema": {}} for number in range(1_900)]
    searching = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    body = {"model": "m", "max_tokens": 50, "messages": HI, "tools": [searching, *tools]}
    search = '<tool_call>\n<name>find_tools</name>\n<arguments>{"query": "word5 thing"}</arguments>\n</tool_call>'
    with measured_server(search) as running:
        response = running.post("/v1/messages", body, timeout=60)
        assert "tool_search_tool_result" in response.text
        assert running.worst_latency() < LATENCY


def test_a_search_for_what_a_long_message_nearly_says_does_not_block_the_loop(server: MeasuredServer):
    message = {"type": "message", "role": "user", "content": "a" * 6_000_000}
    assert server.post("/v1/conversations", {"items": [message]}, timeout=60).status_code == 200
    server.worst_latency()
    assert server.get("/v1/conversations", query="a" * 199 + "b").json()["data"] == []
    assert server.worst_latency() < LATENCY


async def test_a_call_with_long_arguments_is_written_beside_the_loop():
    model = open_model("scripted:hello there")
    long = Message.assistant(calls=[Call("f", {"a": list(range(100_000))}, "c1")])
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(other())
    async for _ in model.stream(Request((Message.user("hi"), long, Message.tool(Result("c1", "f", "1"))))):
        break
    others.cancel()
    assert turns > 50


SMALL = Requests(
    body_bytes=20_000, values=500, messages=3, tools=2, tool_bytes=300, schema_values=100, stops=2, stop_bytes=10,
    output_bytes=100, field_bytes=100, approvals=1,
)  # fmt: skip
TOO_LARGE: dict[str, tuple[dict[str, Any], int, str]] = {
    "the body": ({"messages": [{"role": "user", "content": "x" * 20_000}]}, 413, "20000 bytes"),
    "values": ({"messages": HI, "prompt_ids": [1] * 600}, 400, "more than the 500 JSON values"),
    "messages": ({"messages": HI * 4}, 400, "messages: has 4 entries, more than the 3"),
    "tools": ({"messages": HI, "tools": [WEATHER] * 3}, 400, "tools: has 3 entries, more than the 2"),
    "a tool": ({"messages": HI, "tools": [{**WEATHER, "description": "x" * 400}]}, 400, "tools.0"),
    "schemas": ({"messages": HI, "tools": [{**WEATHER, "x": list(range(200))}]}, 400, "tools: have more than the 100"),
    "stop strings": ({"messages": HI, "stop": ["a", "b", "c"]}, 400, "stop: has 3 entries, more than the 2"),
    "a stop string": ({"messages": HI, "stop": "a" * 20}, 400, "stop: has 22 bytes, more than the 10"),
    "one of the stop strings": ({"messages": HI, "stop": ["a", "a" * 20]}, 400, "stop.1: has 22 bytes"),
    "a nested stop string": ({"messages": HI, "options": {"stop": "a" * 20}}, 400, "options.stop: has 22 bytes"),
    "a pattern": ({"messages": HI, "guided_regex": "a" * 200}, 400, "guided_regex: has 202 bytes, more than the 100"),
    "a nested pattern": ({"messages": HI, "structured_outputs": {"regex": "a" * 200}}, 400, "structured_outputs.regex: has 202"),
    "biases": ({"messages": HI, "logit_bias": {str(number): 1 for number in range(50)}}, 400, "logit_bias: has"),
    "metadata": ({"messages": HI, "metadata": {"a": "x" * 200}}, 400, "metadata: has"),
}  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/chat", "/v1/messages", "/tokenize"])
@pytest.mark.parametrize("what", TOO_LARGE)
async def test_what_is_too_large_is_refused_by_name_in_every_dialect(what: str, path: str):
    body, status, words = TOO_LARGE[what]
    async with http(create_app({"m": FakeModel(says("a"))}, settings=Settings(requests=SMALL))) as asking:
        response = await asking.post(path, json={"model": "m", "max_tokens": 5, **body})
    assert response.status_code == status
    assert words in response.text


@pytest.mark.parametrize("field", ["input", "tools", "stop"])
async def test_a_websocket_message_is_measured_as_a_body_is(field: str):
    large = {"input": HI * 4, "tools": [WEATHER] * 3, "stop": "a" * 20}[field]
    async with connected(create_app({"m": FakeModel(says("a"))}, settings=Settings(requests=SMALL))) as socket:
        (event,) = await socket.answer(**{field: large})
    assert event["type"] == "error"
    assert event["error"]["param"] == field


async def test_a_request_decides_on_so_many_approvals():
    decisions = [{"type": "mcp_approval_response", "approval_request_id": f"a{item}", "approve": True} for item in range(2)]
    async with http(create_app({"m": FakeModel(says("a"))}, settings=Settings(requests=SMALL))) as asking:
        response = await asking.post("/v1/responses", json={"model": "m", "input": decisions})
    assert response.status_code == 400
    assert "decides on 2 approvals, more than 1" in response.text


async def test_ordinary_requests_stay_within_the_default_limits():
    """A long context, many tools and what agents send is less than what is refused."""
    tools = [{**WEATHER, "function": {**WEATHER["function"], "name": f"tool_{number}"}} for number in range(1000)]
    history = [{"role": "user", "content": "x, " * 300}] * 4000
    async with http(create_app({"m": FakeModel(says("a"))})) as asking:
        response = await asking.post("/v1/chat/completions", json={"messages": history, "tools": tools, "stop": ["a"] * 16})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b'{"a": 1, "b": [2, 3]}', 5),
        (b'["a,b,[{", "\\",[", "\\\\", ""]', 5),
        (b'["never ends, [,,,,', 2),
        (b'[[[[[["\\', 7),
        (b"[" + b'"",' * 5000 + b'""]', 5002),
    ],
)
def test_values_are_counted_outside_of_strings(text: bytes, values: int):
    assert has_more_values(text + b" " * 20_000, values - 1)
    assert not has_more_values(text + b" " * 20_000, values)


# Nothing is quadratic: twice as much takes about twice as long.


def _history(count: int, call: Callable[[int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "hi"}, *(message for number in range(count) for message in call(number))]


def _deprecated(number: int) -> list[dict[str, Any]]:
    call = {"role": "assistant", "content": None, "function_call": {"name": f"f{number}", "arguments": "{}"}}
    return [call, {"role": "function", "name": f"f{number}", "content": "1"}]


def _openai_calls(count: int) -> list[dict[str, Any]]:
    calls = [{"id": f"c{item}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for item in range(count)]
    results = [{"role": "tool", "tool_call_id": f"c{item}", "content": "1"} for item in reversed(range(count))]
    return [*HI, {"role": "assistant", "tool_calls": calls}, *results]


def _ollama_calls(count: int) -> list[dict[str, Any]]:
    calls = [{"function": {"name": f"f{item}", "arguments": {}}} for item in range(count)]
    results = [{"role": "tool", "tool_name": f"f{item}", "content": "1"} for item in reversed(range(count))]
    return [*HI, {"role": "assistant", "content": "", "tool_calls": calls}, *results]


def _blocks(count: int) -> list[dict[str, Any]]:
    calls = [{"type": "tool_use", "id": f"c{item}", "name": "f", "input": {}} for item in range(count)]
    results = [{"type": "tool_result", "tool_use_id": f"c{item}", "content": "1"} for item in range(count)]
    return [*HI, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]


def _items(count: int) -> list[dict[str, Any]]:
    calls = [{"type": "function_call", "call_id": f"c{item}", "name": "f", "arguments": "{}"} for item in range(count)]
    outputs = [{"type": "function_call_output", "call_id": f"c{item}", "output": "1"} for item in range(count)]
    return [*HI, *calls, *outputs]


def _approvals(count: int) -> list[dict[str, Any]]:
    about = {"type": "mcp_approval_request", "server_label": "s", "name": "f", "arguments": "{}"}
    answers = [{"type": "mcp_approval_response", "approval_request_id": f"a{item}", "approve": True} for item in range(count)]
    return [*HI, *({**about, "id": f"a{item}"} for item in range(count)), *answers]


def _unknown_choice(count: int) -> None:
    with pytest.raises(UnknownName):
        raise UnknownName("tool", "get_the_weather" * (count // 100), [f"get_the_weather_{item}" for item in range(count)])


def _stop_string(count: int) -> None:
    scanner = StopScanner(["a" * count + "b"])
    for _ in range(count // 4):
        scanner.feed(Piece("aaaa"))
    scanner.feed(Piece("b"))
    assert scanner.found


GROWING: dict[str, tuple[Callable[[int], object], int]] = {
    "deprecated functions": (lambda n: read_chat({"messages": _history(n, _deprecated)}), 2000),
    "calls in chat completions": (lambda n: read_chat({"messages": _openai_calls(n)}), 2000),
    "calls in Ollama's chats": (lambda n: read_ollama({"messages": _ollama_calls(n)}), 2000),
    "calls in Messages": (lambda n: read_messages({"messages": _blocks(n), "max_tokens": 5}), 2000),
    "calls in Responses": (lambda n: read_responses({"input": _items(n)}), 2000),
    "approvals in Responses": (lambda n: read_responses({"input": _approvals(n)}), 2000),
    "parts of a message": (lambda n: read_chat({"messages": [{"role": "user", "content": ["a"] * n}]}), 50_000),
    "an unknown name among many": (_unknown_choice, 4000),
    "a stop string that the answer nearly is": (_stop_string, 20_000),
    "a string that never ends": (lambda n: has_more_values(b'",' + b'\\",' * n, n // 4), 100_000),
}


@pytest.mark.parametrize("what", GROWING)
def test_four_times_as_much_takes_less_than_ten_times_as_long(what: str):
    """Where time grew with the square it would be sixteen times as long."""
    work, size = GROWING[what]

    def seconds(count: int) -> float:
        began = time.process_time()
        work(count)
        return time.process_time() - began

    work(size // 10)
    ratios = (seconds(4 * size) / seconds(size) for _ in range(5))
    assert any(ratio < 10 for ratio in ratios)
