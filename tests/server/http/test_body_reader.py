"""Bodies: tools that come again are the same objects, and everything else is as it was sent."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from callsmith.core.errors import UsageError
from callsmith.core.values import Json, Tool
from callsmith.server.http import body_reader as module
from callsmith.server.http.body_reader import BodyReader
from callsmith.server.settings import Requests
from callsmith.wire.anthropic import messages as anthropic_messages
from callsmith.wire.ollama import requests as ollama
from callsmith.wire.openai import chat as openai_chat
from callsmith.wire.openai import responses as openai_responses

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
HI = [{"role": "user", "content": "hi"}]


def chat(*names: str, **more: Any) -> bytes:
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in names]
    return json.dumps({"model": "m", "messages": HI, "tools": tools, **more}).encode()


def tools_of(bodies: BodyReader, body: bytes) -> tuple[Tool, ...]:
    return openai_chat.read_request(bodies.decode(body)).request.tools


def test_tools_that_come_again_are_the_same_objects_whatever_else_is_said() -> None:
    bodies = BodyReader(Requests(body_bytes=10_000))
    first = tools_of(bodies, chat("a", "b", stream=True))
    assert [tool.name for tool in first] == ["a", "b"]
    assert tools_of(bodies, chat("a", "b", temperature=0.5)) is first


def test_other_tools_are_other_tools() -> None:
    bodies = BodyReader(Requests(body_bytes=10_000))
    assert [[tool.name for tool in tools_of(bodies, chat(*names))] for names in ("ab", "ac", "ba", "ab")] == [
        ["a", "b"],
        ["a", "c"],
        ["b", "a"],
        ["a", "b"],
    ]


def test_every_dialect_knows_its_tools_again() -> None:
    flat = {"name": "a", "parameters": SCHEMA}
    dialects: list[tuple[Callable[[Json], Any], Json]] = [
        (ollama.read_chat, {"type": "function", "function": flat}),
        (openai_responses.read_request, {"type": "function", **flat}),
        (anthropic_messages.read_request, {"name": "a", "input_schema": SCHEMA}),
    ]
    for read, tool in dialects:
        bodies = BodyReader(Requests(body_bytes=10_000))
        body = json.dumps({"model": "m", "messages": HI, "input": "hi", "max_tokens": 9, "tools": [tool]}).encode()
        first, again = (read(bodies.decode(body)).request.tools for _ in range(2))
        assert [item.name for item in first] == ["a"]
        assert again is first


def test_tools_that_are_wrong_are_wrong_again() -> None:
    bodies = BodyReader(Requests(body_bytes=10_000))
    for _ in range(2):
        with pytest.raises(UsageError, match=r"tools\.1\.function\.name: two tools are called 'a'"):
            tools_of(bodies, chat("a", "a"))


def test_only_the_latest_tools_are_cached_and_none_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CACHED_SETS", 2)
    monkeypatch.setattr(module, "_MAX_CACHED_BYTES", 500)
    bodies = BodyReader(Requests(body_bytes=10_000))
    first = tools_of(bodies, chat("a"))
    tools_of(bodies, chat("b"))
    assert tools_of(bodies, chat("a")) is first  # which makes it the later one
    second = tools_of(bodies, chat("b"))
    tools_of(bodies, chat("c"))
    assert tools_of(bodies, chat("b")) is second
    assert tools_of(bodies, chat("a")) is not first
    many = chat(*(f"tool_{number}" for number in range(9)))
    assert tools_of(bodies, many) is not tools_of(bodies, many)


@pytest.mark.parametrize(
    "text",
    [
        '{"tools": [1, {"b": [2.5, null]}], "x": "\\u00e9"}',
        '{"tools": null}',
        ' { "tools" :  {"a": 1} , "a": -0.0 } ',
        '{"a": 1, "a": 2, "tools": [], "tools": [3]}',
        "[1, 2]",
        '"text"',
        "{}",
    ],
)
def test_what_is_read_is_what_was_sent(text: str) -> None:
    bodies = BodyReader(Requests(body_bytes=10_000))
    assert bodies.decode(text.encode()) == bodies.decode(text.encode()) == json.loads(text)


@pytest.mark.parametrize("text", ['{"a": 1, "tools": [1,]}', '{"a": tru}', '{"tools": ["\\ud800x]}', '{"a": "\xff"}', "", "{"])
def test_a_mistake_is_told_by_its_place_in_the_whole_body(text: str) -> None:
    body = text.encode("latin-1")
    with pytest.raises(ValueError) as whole:
        msgspec.json.decode(body)
    with pytest.raises(UsageError) as ours:
        BodyReader(Requests(body_bytes=10_000)).decode(body)
    assert str(ours.value) == f"the body is not valid JSON: {whole.value}"
