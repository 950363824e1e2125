"""A client, our server, and a real llama-server behind it: what is said about tools is done, streamed and whole alike."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import jsonschema_rs
import pytest
from openai import AsyncOpenAI, BadRequestError

pytest.importorskip("aiohttp")
pytest.importorskip("xllamacpp")

from callsmith.models import open_model
from callsmith.server.app import create_app
from tests.llama_servers import llama_server
from tests.serving import served_apart

pytestmark = [pytest.mark.model, pytest.mark.weights]

SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "set_timer": {
        "type": "object",
        "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 120}},
        "required": ["minutes"],
        "additionalProperties": False,
    },
}


def tools(*, strict: bool = False) -> list[Any]:
    functions = [{"name": name, "parameters": schema, "strict": strict} for name, schema in SCHEMAS.items()]
    return [{"type": "function", "function": function} for function in functions]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with llama_server(1024) as url, served_apart(create_app({"small": open_model(f"completions:{url}")})) as address:
        yield address


@pytest.fixture
async def client(address: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=300) as client:
        yield client


async def ask(client: AsyncOpenAI, **fields: Any) -> tuple[str, list[tuple[str, str]], str | None]:
    """Text, calls and finish reason, whole and streamed, which are the same."""
    body: dict[str, Any] = {
        "model": "small",
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "parallel_tool_calls": False,
        "temperature": 0,
        "max_tokens": 80,
        **fields,
    }
    choice = (await client.chat.completions.create(**body)).choices[0]
    called = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    text, streamed, reason = "", dict[int, list[str]](), None
    async for chunk in await client.chat.completions.create(**body, stream=True):
        for item in chunk.choices:
            text, reason = text + (item.delta.content or ""), item.finish_reason or reason
            for call in item.delta.tool_calls or []:
                known = streamed.setdefault(call.index, ["", ""])
                known[0] += call.function.name or ""
                known[1] += call.function.arguments or ""
    assert (text, [tuple(item) for item in streamed.values()], reason) == (
        choice.message.content or "",
        called,
        choice.finish_reason,
    )
    return text, called, reason


def assert_valid(calls: list[tuple[str, str]]) -> None:
    assert calls
    assert all(jsonschema_rs.is_valid(SCHEMAS[name], json.loads(arguments)) for name, arguments in calls)


@pytest.mark.parametrize("strict", [False, True])
async def test_a_required_call_is_made(client: AsyncOpenAI, strict: bool) -> None:
    _, calls, reason = await ask(client, tools=tools(strict=strict), tool_choice="required")
    assert_valid(calls)
    assert reason == "tool_calls"


async def test_a_named_tool_is_called(client: AsyncOpenAI) -> None:
    _, calls, _ = await ask(client, tools=tools(), tool_choice={"type": "function", "function": {"name": "set_timer"}})
    assert_valid(calls)
    assert [name for name, _ in calls] == ["set_timer"]


async def test_left_free_it_answers_as_it_likes_and_strict_calls_are_valid(client: AsyncOpenAI) -> None:
    for strict in (False, True):
        text, calls, _ = await ask(client, tools=tools(strict=strict))
        assert text or calls
        if strict and calls:
            assert_valid(calls)


async def test_structured_output_fits_its_schema(client: AsyncOpenAI) -> None:
    format = {"type": "json_schema", "json_schema": {"name": "w", "schema": SCHEMAS["get_weather"], "strict": True}}
    text, _, reason = await ask(client, response_format=format)
    assert reason == "stop"
    assert jsonschema_rs.is_valid(SCHEMAS["get_weather"], json.loads(text))


async def test_a_prompt_that_is_too_long_is_the_clients_error(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hello " * 1100}])
    assert caught.value.code == "context_length_exceeded"
