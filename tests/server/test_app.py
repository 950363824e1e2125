"""The server, asked by the real OpenAI client."""

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from callsmith.core.errors import UsageError
from callsmith.core.events import Text, Thought
from callsmith.core.values import Choice, Message, Request, Tool
from callsmith.server.app import create_app
from callsmith.server.settings import Requests, Settings
from callsmith.tools.functions import Functions
from callsmith.wire.openai.chat import ChatRequest, write_request
from callsmith.wire.openai.chat_events import EventReader
from callsmith.wire.sse import DONE, FrameReader
from tests.fakes import FakeModel
from tests.server.asking import BONN, HI, KOELN, WEATHER, calls, client, http, says, weather

# Answers


@pytest.mark.req("R119")
async def test_a_plain_question_gets_a_plain_answer():
    answer = await client(FakeModel([Thought("hm"), *says("hel", "lo")])).chat.completions.create(model="m", messages=HI)
    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].message.reasoning_content == "hm"  # type: ignore[attr-defined]
    assert answer.choices[0].message.reasoning == "hm"  # type: ignore[attr-defined]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.total_tokens, answer.usage.prompt_tokens_details.cached_tokens) == (10, 2)  # type: ignore[union-attr]


@pytest.mark.req("R119")
@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_is_at_port_8000_with_any_key(stream: bool):
    assert (Settings().host, Settings().port) == ("127.0.0.1", 8000)
    asking = AsyncOpenAI(
        base_url="http://localhost:8000/v1", api_key="EMPTY", http_client=http(create_app({"m": FakeModel(says("hello"))}))
    )
    answer: Any = await asking.chat.completions.create(model="m", messages=HI, stream=stream)
    if stream:
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices]) == "hello"
    else:
        assert answer.choices[0].message.content == "hello"


@pytest.mark.req("R112")
@pytest.mark.req("R118")
async def test_a_request_with_tools_gets_its_calls_back():
    model = FakeModel(calls(BONN, KOELN))
    answer = await client(model).chat.completions.create(
        model="m", messages=HI, tools=[WEATHER], tool_choice="required", parallel_tool_calls=True
    )
    message = answer.choices[0].message
    assert message.content is None
    assert [(call.id, json.loads(call.function.arguments)) for call in message.tool_calls or ()] == [  # type: ignore[union-attr]
        ("c1", {"city": "Bonn"}),
        ("c2", {"city": "Köln"}),
    ]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert model.asked[0].choice == Choice("required")


@pytest.mark.req("R103")
async def test_the_clients_streaming_helper_sees_every_call_complete():
    seen: list[Any] = []
    async with client(FakeModel([Text("let me see"), *calls(BONN, KOELN)])).chat.completions.stream(
        model="m", messages=HI, tools=[WEATHER], stream_options={"include_usage": True}
    ) as stream:
        async for event in stream:
            if event.type == "tool_calls.function.arguments.done":
                seen.append((event.index, event.name, json.loads(event.arguments)))
        final = await stream.get_final_completion()
    assert seen == [(0, "weather", {"city": "Bonn"}), (1, "weather", {"city": "Köln"})]
    assert final.choices[0].message.content == "let me see"
    assert [call.id for call in final.choices[0].message.tool_calls or ()] == ["c1", "c2"]
    assert final.usage is not None
    assert final.usage.total_tokens == 10


async def test_the_clients_strict_tools_arrive_parsed():
    class Weather(BaseModel):
        city: str

    tools = [openai.pydantic_function_tool(Weather, name="weather")]
    model = FakeModel(calls(BONN))
    answer = await client(model).chat.completions.parse(model="m", messages=HI, tools=tools)
    (call,) = answer.choices[0].message.tool_calls or ()
    assert call.function.parsed_arguments == Weather(city="Bonn")
    assert model.asked[0].tools[0].strict


@pytest.mark.req("R120")
async def test_the_deprecated_functions_get_a_function_call():
    answer = await client(FakeModel(calls(BONN, KOELN))).chat.completions.create(
        model="m", messages=HI, functions=[WEATHER["function"]]
    )
    message = answer.choices[0].message
    assert message.function_call is not None
    assert message.function_call.arguments == '{"city": "Bonn"}'
    assert message.tool_calls is None
    assert answer.choices[0].finish_reason == "function_call"


async def test_usage_comes_in_the_stream_only_when_asked_for():
    chunks = [
        chunk async for chunk in await client(FakeModel(says("a"))).chat.completions.create(model="m", messages=HI, stream=True)
    ]
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
    assert chunks[0].choices[0].delta.role == "assistant"


# The server's own tools


@pytest.mark.req("R113")
@pytest.mark.req("R116")
@pytest.mark.req("R117")
@pytest.mark.parametrize("stream", [False, True])
async def test_without_tools_of_its_own_a_request_sees_one_seamless_answer(stream: bool):
    first = [Text("One moment."), *calls(BONN)]
    model = FakeModel(first, calls(KOELN), says("Sun", " everywhere."))
    completions = client(model, tools=Functions(weather)).chat.completions
    if stream:
        chunks = [chunk async for chunk in await completions.create(model="m", messages=HI, stream=True)]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks)
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
    else:
        answer = await completions.create(model="m", messages=HI)
        text, reasons = answer.choices[0].message.content or "", [answer.choices[0].finish_reason]
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 21
    assert text == "One moment.\n\nSun everywhere."
    assert reasons == ["stop"]
    assert [message.content for message in model.asked[2].messages if message.role == "tool"] == ["sun in Bonn", "sun in Köln"]


@pytest.mark.req("R113")
@pytest.mark.req("R114")
async def test_a_request_with_tools_switches_the_servers_own_off():
    model = FakeModel(calls(BONN))
    answer = await client(model, tools=Functions(weather)).chat.completions.create(
        model="m", messages=HI, tools=[{"type": "function", "function": {"name": "other"}}]
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    assert [tool.name for tool in model.asked[0].tools] == ["other"]


@pytest.mark.req("R208")
@pytest.mark.req("R113")
async def test_without_any_tools_there_is_only_text():
    model = FakeModel(says("a </tool_call> b"))
    answer = await client(model).chat.completions.create(model="m", messages=HI)
    assert answer.choices[0].message.content == "a </tool_call> b"
    assert model.asked[0].tools == ()


# Refusals


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"messages": []}, 400, "messages"),
        ({"n": 17}, 400, "n"),
        ({"temperature": -1}, 400, "temperature"),
        ({"temperature": 10**400}, 400, "temperature"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"tool_choice": {"name": "x"}, "tools": [WEATHER]}, 400, "tool_choice"),
        ({"model": "other"}, 404, "model"),
    ],
)
async def test_what_is_wrong_is_said_in_the_clients_own_words(body: dict[str, Any], status: int, param: str):
    request = {"model": "m", "messages": HI, "extra_body": {}} | body
    with pytest.raises(openai.APIStatusError) as caught:
        await client(FakeModel(says("a"))).chat.completions.create(**request)
    assert caught.value.status_code == status
    error: Any = caught.value.body
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b"", 400),
        ("POST", "/v1/chat/completions", b"\xff\xfe", 400),
        ("POST", "/v1/chat/completions", b"[" * 5000, 400),
        ("POST", "/v1/chat/completions", b"[]", 400),
        ("POST", "/v1/chat/completions", b'"\\ud800"', 400),
        ("POST", "/v1/chat/completions", b"x" * 20_000, 413),
        ("GET", "/v1/chat/completions", b"", 405),
        ("POST", "/v1/nothing", b"", 404),
        ("GET", "/v1/models/nothing", b"", 404),
    ],
)
async def test_every_failure_has_the_same_shape(method: str, path: str, content: bytes, status: int):
    app = create_app({"m": FakeModel(says("a"))}, settings=Settings(requests=Requests(body_bytes=10_000)))
    async with http(app) as asking:
        response = await asking.request(method, path, content=content)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.headers["content-type"] == "application/json"


async def test_a_body_without_a_length_is_measured_while_it_comes():
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1000

    async with http(create_app({"m": FakeModel(says("a"))}, settings=Settings(requests=Requests(body_bytes=10_000)))) as asking:
        assert (await asking.post("/v1/chat/completions", content=endless())).status_code == 413


async def test_our_own_codec_reads_from_our_own_server_what_the_model_said():
    events = [Thought("hm"), Text("so"), *calls(BONN, KOELN)]
    tool = Tool("weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
    request = Request((Message.user("hi"),), (tool,), Choice("required"), thinking=True)
    model = FakeModel(events)
    async with http(create_app({"m": model})) as asking:
        body = write_request(ChatRequest("m", request, stream=True, include_usage=True))
        response = await asking.post("/v1/chat/completions", json=body)
    reader = EventReader()
    read = [event for frame in FrameReader().feed(response.content)[:-1] for event in reader.feed(json.loads(frame.data))]
    assert [*read, *reader.close()] == events
    assert model.asked == [request]


# The rest


async def test_health_is_told():
    async with http(create_app({"m": FakeModel(says("a"))})) as asking:
        assert (await asking.get("/health")).json()["status"] == "ok"


def test_a_server_without_models_is_refused():
    with pytest.raises(UsageError):
        create_app({})


async def test_every_chunk_of_text_is_written_alike_whatever_is_in_it() -> None:
    pieces = ("one", '"two"\n', "", "dr€i 😀", "\x00", "five")
    async with http(create_app({"m": FakeModel(says(*pieces))})) as asking:
        raw = await asking.post("/v1/chat/completions", json={"model": "m", "messages": HI, "stream": True})
    chunks = [json.loads(frame.data) for frame in FrameReader().feed(raw.content) if frame.data != DONE]
    text_chunks = [chunk for chunk in chunks if chunk["choices"][0]["delta"].get("content")]
    assert [chunk["choices"][0]["delta"].pop("content") for chunk in text_chunks] == [piece for piece in pieces if piece]
    assert all(chunk == text_chunks[0] for chunk in text_chunks)
