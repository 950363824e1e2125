"""The server, asked by the real OpenAI client."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from callsmith.core.errors import ModelError, Rejected, TimedOut, Unavailable, UsageError
from callsmith.core.events import ModelEvent, Stopped, Text, Thought
from callsmith.core.values import Call, Choice, Message, Request, Tool
from callsmith.runtime.execute import Limits
from callsmith.server.app import create_app
from callsmith.server.settings import Requests, Settings
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from callsmith.wire.openai.chat import ChatRequest, write_request
from callsmith.wire.openai.chat_events import EventReader
from callsmith.wire.sse import DONE, FrameReader
from tests.fakes import FakeModel
from tests.server.asking import BONN, HI, KOELN, WEATHER, calls, client, http, listening, says, weather
from tests.virtual_time import virtual_time
from tests.waiting import until

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
    asked = client(model, tools=Functions(weather)).chat.completions
    if stream:
        chunks = [chunk async for chunk in await asked.create(model="m", messages=HI, stream=True)]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks)
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
    else:
        answer = await asked.create(model="m", messages=HI)
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


async def test_an_unknown_model_is_answered_with_those_that_are_known():
    with pytest.raises(openai.NotFoundError, match="known: m") as caught:
        await client(FakeModel(says("a"))).chat.completions.create(model="gpt-9", messages=HI)
    assert caught.value.code == "model_not_found"


async def test_where_one_model_is_served_a_name_of_the_hub_means_it() -> None:
    answer = await client(FakeModel(says("a"))).chat.completions.create(model="Qwen/Qwen3-0.6B", messages=HI)
    assert (answer.model, answer.choices[0].message.content) == ("m", "a")


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


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (Unavailable("no weights", hint="look in /secret"), 503, "no weights"),
        (ModelError("out of memory"), 500, "out of memory"),
        (ModelError("busy", retryable=True), 503, "busy"),
        (TimedOut("too slow"), 504, "too slow"),
        (Rejected("bad key", status=401), 502, "bad key"),
        (UsageError("too long", field="messages"), 400, "too long"),
        (ZeroDivisionError("secret"), 500, "internal error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_fails_at_once_is_an_http_error_and_the_server_goes_on(
    error: Exception, status: int, words: str, stream: bool
):
    model = FakeModel([error], says("fine"))
    asking = client(model).chat.completions
    with pytest.raises(openai.APIStatusError, match=words) as caught:
        await asking.create(model="m", messages=HI, stream=stream)
    assert caught.value.status_code == status
    assert "secret" not in str(caught.value.body)
    assert (await asking.create(model="m", messages=HI)).choices[0].message.content == "fine"
    assert model.open == 0


@pytest.mark.parametrize("error", [Unavailable("gone"), ZeroDivisionError("secret")])
async def test_a_model_that_fails_in_the_middle_of_a_stream_says_so_before_the_end(error: Exception):
    model = FakeModel([Text("so far"), error], says("fine"))
    async with listening(model) as url, httpx2.AsyncClient(base_url=url) as asking:
        response = await asking.post("/v1/chat/completions", json={"model": "m", "messages": HI, "stream": True})
        *_, last = FrameReader().feed(response.content)
        assert response.status_code == 200
        assert set(json.loads(last.data)["error"]) == {"message", "type", "param", "code"}
        assert "secret" not in last.data
        again = await asking.post("/v1/chat/completions", json={"model": "m", "messages": HI})
        assert again.status_code == 200


async def test_the_client_library_raises_on_an_error_in_the_stream():
    with pytest.raises(openai.APIError, match="gone"):
        async for _ in await client(FakeModel([Text("so far"), Unavailable("gone")])).chat.completions.create(
            model="m", messages=HI, stream=True
        ):
            pass


# Connections


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [None, Functions(weather)])
async def test_a_client_that_goes_away_stops_the_generation(stream: bool, tools: Functions | None):
    model = FakeModel([Text("a"), 30.0, Text("b"), Stopped("stop")])
    async with listening(model, tools=tools) as url, httpx2.AsyncClient(base_url=url) as asking:
        task = asyncio.create_task(
            asking.post("/v1/chat/completions", json={"model": "m", "messages": HI, "stream": stream}, timeout=30)
        )
        await until(lambda: model.open == 1)
        task.cancel()
        await until(lambda: model.open == 0)


async def test_a_client_that_stops_reading_half_way_stops_the_generation():
    model = FakeModel([Text("a"), 30.0, Stopped("stop")])
    async with listening(model) as url:
        asking = AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
        stream = await asking.chat.completions.create(model="m", messages=HI, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content == "a":
                break
        assert model.open == 1
        await stream.close()
        await until(lambda: model.open == 0)


@virtual_time
async def test_silence_is_filled_with_comments_that_clients_skip():
    model = FakeModel([0.25, Text("a"), 0.25, Text("b"), Stopped("stop")])
    app = create_app({"m": model}, settings=Settings(keep_alive=0.1))
    async with http(app) as asking:
        response = await asking.post("/v1/chat/completions", json={"model": "m", "messages": HI, "stream": True})
    assert response.content.startswith(b": keep-alive\n\n: keep-alive\n\ndata: ")
    assert response.content.count(b": keep-alive\n\n") == 4
    frames = FrameReader().feed(response.content)
    assert frames[-1].data == DONE
    assert response.headers["content-type"].startswith("text/event-stream")


async def test_pieces_are_sent_as_they_come():
    heard = asyncio.Event()

    class Patient:
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            yield Text("a")
            await heard.wait()  # it goes on when the client has the first piece
            yield Text("b")
            yield Stopped("stop")

    said = ""
    async with listening(Patient()) as url, asyncio.timeout(60):
        asking = AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
        async for chunk in await asking.chat.completions.create(model="m", messages=HI, stream=True):
            said += (chunk.choices[0].delta.content if chunk.choices else "") or ""
            if said:
                heard.set()
    assert said == "ab"


async def test_many_requests_at_once_are_answered_each_with_its_own():
    class Echo:
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            for letter in request.messages[-1].content:
                await asyncio.sleep(0)
                yield Text(letter)
            yield Stopped("stop")

    app = create_app({"echo": Echo()})
    asking = AsyncOpenAI(base_url="http://localhost/v1", api_key="-", http_client=http(app))

    async def ask(text: str) -> str | None:
        messages: Any = [{"role": "user", "content": text}]
        return (await asking.chat.completions.create(model="echo", messages=messages)).choices[0].message.content

    questions = [f"question {number}" for number in range(30)]
    assert await asyncio.gather(*map(ask, questions)) == questions


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


async def test_models_are_listed_and_found():
    asking = client(FakeModel(says("a")))
    assert [model.id async for model in asking.models.list()] == ["m"]
    assert (await asking.models.retrieve("m")).owned_by == "callsmith"
    with pytest.raises(openai.NotFoundError):
        await asking.models.retrieve("n")


async def test_a_model_may_have_a_slash_in_its_name():
    app = create_app({"org/model": FakeModel(says("a"))})
    async with http(app) as asking:
        assert (await asking.get("/v1/models/org/model")).json()["id"] == "org/model"


async def test_health_is_told():
    async with http(create_app({"m": FakeModel(says("a"))})) as asking:
        assert (await asking.get("/health")).json()["status"] == "ok"


def test_a_server_without_models_is_refused():
    with pytest.raises(UsageError):
        create_app({})


async def test_a_call_that_would_have_to_be_confirmed_is_not_run_and_that_is_said():
    ran: list[str] = []

    @tool(side_effects=True)
    async def pay(euros: int) -> None:
        ran.append("pay")

    model = FakeModel(calls(Call("pay", {"euros": 5}, "c1")), says("never"))
    answer = await client(model, tools=Confirmed(Functions(pay))).chat.completions.create(model="m", messages=HI)
    assert answer.choices[0].finish_reason == "stop"
    assert "pay has not been run" in (answer.choices[0].message.content or "")
    assert ran == []


async def test_a_run_that_used_up_its_tokens_ends_like_an_answer_that_was_too_long():
    settings = Settings(limits=Limits(tokens=5))
    asked = client(FakeModel(calls(BONN), says("never")), tools=Functions(weather), settings=settings)
    answer = await asked.chat.completions.create(model="m", messages=HI)
    assert answer.choices[0].finish_reason == "length"


async def test_the_stop_sequence_that_ended_an_answer_is_named_where_tools_ran_too():
    model = FakeModel(calls(BONN), [Text("one"), Stopped("stop", matched="two")])
    async with http(create_app({"m": model}, tools=Functions(weather))) as asking:
        ask = {"model": "m", "messages": HI, "max_tokens": 9, "stop_sequences": ["two"]}
        answer = (await asking.post("/v1/messages", json=ask)).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "two")


async def test_every_chunk_of_text_is_written_alike_whatever_is_in_it() -> None:
    pieces = ("one", '"two"\n', "", "dr€i 😀", "\x00", "five")
    async with http(create_app({"m": FakeModel(says(*pieces))})) as asking:
        raw = await asking.post("/v1/chat/completions", json={"model": "m", "messages": HI, "stream": True})
    chunks = [json.loads(frame.data) for frame in FrameReader().feed(raw.content) if frame.data != DONE]
    said = [chunk for chunk in chunks if chunk["choices"][0]["delta"].get("content")]
    assert [chunk["choices"][0]["delta"].pop("content") for chunk in said] == [piece for piece in pieces if piece]
    assert all(chunk == said[0] for chunk in said)


async def test_the_model_is_told_which_session_a_request_belongs_to() -> None:
    model = FakeModel(says("Hello."))
    await client(model).chat.completions.create(model="m", messages=HI, extra_body={"session_id": "s1"})
    await client(model).chat.completions.create(model="m", messages=HI)
    assert [request.session for request in model.asked] == ["s1", ""]
