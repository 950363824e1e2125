"""The pipeline of every answer: admitted, given, recorded, and ended with its client."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from callsmith.core.errors import ModelError, QueueFull, Rejected, TimedOut, Unavailable, UsageError
from callsmith.core.events import ModelEvent, Stopped, Text
from callsmith.core.values import Call, Message, Request
from callsmith.runtime.execute import Limits
from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from callsmith.server.tools.planner import ToolPlanner
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from callsmith.wire.sse import DONE, FrameReader
from tests.fakes import FakeModel
from tests.server.asking import BONN, HI, calls, client, http, listening, make_pipeline, says, weather
from tests.virtual_time import virtual_time
from tests.waiting import until

ASKED = Request((Message.user("hi"),))


async def test_an_answer_takes_a_place_and_is_recorded_with_what_it_cost():
    model = FakeModel(says("a", "b"))
    answers = make_pipeline({"m": model})
    texts = list[str]()
    async for event in answers.answer(model, ASKED):
        texts += [event.text] if isinstance(event, Text) else []
        assert answers.gate.active == 1
    (turn,) = [known.turn for known in answers.turns.latest()]
    assert (texts, answers.gate.active) == (["a", "b"], 0)
    assert (turn.model, turn.usage.completion, turn.reason) == ("m", 3, "stop")


async def test_where_all_places_are_taken_nothing_is_asked():
    model = FakeModel(says("a"))
    answers = make_pipeline({"m": model}, settings=Settings(queue=0))
    with pytest.raises(QueueFull):
        [_ async for _ in answers.answer(model, ASKED)]
    assert model.asked == []


async def test_other_tools_are_used_for_one_request_only():
    model = FakeModel(says("a"), says("b"))
    answers = make_pipeline({"m": model}, Functions(weather))
    [_ async for _ in answers.with_tools(ToolPlanner(answers.settings)).answer(model, ASKED)]
    [_ async for _ in answers.answer(model, ASKED)]
    assert [[tool.name for tool in request.tools] for request in model.asked] == [[], ["weather"]]


# Asked by a client


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

    text = ""
    async with listening(Patient()) as url, asyncio.timeout(60):
        asking = AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0)
        async for chunk in await asking.chat.completions.create(model="m", messages=HI, stream=True):
            text += (chunk.choices[0].delta.content if chunk.choices else "") or ""
            if text:
                heard.set()
    assert text == "ab"


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
    sdk = client(FakeModel(calls(BONN), says("never")), tools=Functions(weather), settings=settings)
    answer = await sdk.chat.completions.create(model="m", messages=HI)
    assert answer.choices[0].finish_reason == "length"


async def test_the_stop_sequence_that_ended_an_answer_is_named_where_tools_ran_too():
    model = FakeModel(calls(BONN), [Text("one"), Stopped("stop", matched="two")])
    async with http(create_app({"m": model}, tools=Functions(weather))) as asking:
        ask = {"model": "m", "messages": HI, "max_tokens": 9, "stop_sequences": ["two"]}
        answer = (await asking.post("/v1/messages", json=ask)).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "two")


async def test_the_model_is_told_which_session_a_request_belongs_to() -> None:
    model = FakeModel(says("Hello."))
    await client(model).chat.completions.create(model="m", messages=HI, extra_body={"session_id": "s1"})
    await client(model).chat.completions.create(model="m", messages=HI)
    assert [request.origin.session for request in model.asked] == ["s1", ""]
