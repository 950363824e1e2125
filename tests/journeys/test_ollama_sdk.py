"""The real Ollama client against the real application, over a model that is told what to write and over a real one."""

import json
from typing import Any

import httpx
import ollama
import pytest

from callsmith.core.errors import ModelError
from callsmith.core.events import ModelEvent, Stopped, Text, Thought
from callsmith.core.ports import Model
from callsmith.core.values import Choice, Output
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel, Traits
from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from callsmith.tools.functions import Functions
from tests.fakes import FakeModel
from tests.journeys.scripts import CALLS, FORMATS, HI, SAID, TOOLS, WHOLE, answer_text
from tests.server.asking import BONN, KOELN, calls, says, weather

SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Bonn", "Rome"]}, "people": {"type": "integer", "minimum": 0, "maximum": 999}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Its name.
    """
    return f"sun in {city}"


def client(model: Model, **options: Any) -> ollama.AsyncClient:
    transport = httpx.ASGITransport(app=create_app({"m": model}, **options), raise_app_exceptions=False)
    return ollama.AsyncClient("http://localhost", transport=transport)


async def test_a_question_gets_an_answer_with_its_cost():
    answer = await client(FakeModel([Thought("hm"), *says("hel", "lo")])).chat("m", HI)
    assert (answer.message.content, answer.message.thinking) == ("hello", "hm")
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert (answer.prompt_eval_count, answer.eval_count) == (7, 3)
    assert answer.total_duration is not None
    assert answer.total_duration > 0


async def test_a_stream_comes_in_pieces_and_only_the_last_is_done():
    parts = [part async for part in await client(FakeModel([Thought("hm"), *says("hel", "lo")])).chat("m", HI, stream=True)]
    assert [part.message.content for part in parts] == ["", "hel", "lo", ""]
    assert [part.message.thinking for part in parts] == ["hm", None, None, None]
    assert [part.done for part in parts] == [False, False, False, True]


@pytest.mark.parametrize("chunk", [1, 3, 11, WHOLE])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.sampled
async def test_every_format_arrives_as_text_and_calls_streamed_or_not(name: str, chunk: int):
    format = format_named(name)
    sdk = client(LocalModel(Scripted([answer_text(format)], chunk=chunk, repeat=True), format, Template(CHATML)))
    whole = (await sdk.chat("m", HI, tools=TOOLS)).message
    parts = [part.message async for part in await sdk.chat("m", HI, tools=TOOLS, stream=True)]
    content = "".join(part.content or "" for part in parts)
    called = [call for part in parts for call in part.tool_calls or ()]
    for text, tool_calls in ((whole.content or "", whole.tool_calls or ()), (content, called)):
        assert text.strip() == SAID
        assert [(call.function.name, dict(call.function.arguments)) for call in tool_calls] == CALLS


@pytest.mark.parametrize("stream", [False, True])
async def test_the_round_trip_of_a_call_as_ollamas_users_write_it(stream: bool):
    model = FakeModel(calls(BONN, KOELN), says("Sun."))
    sdk = client(model)
    messages: list[Any] = [*HI]
    if stream:
        parts = [part async for part in await sdk.chat("m", messages, tools=[get_weather], stream=True)]
        messages += [part.message for part in parts if part.message.tool_calls]
    else:
        messages.append((await sdk.chat("m", messages, tools=[get_weather])).message)
    tool_calls = [call for message in messages[1:] for call in message.tool_calls]
    for call in tool_calls:
        messages.append({"role": "tool", "tool_name": call.function.name, "content": get_weather(**call.function.arguments)})
    final = await sdk.chat("m", messages, tools=[get_weather])
    assert final.message.content == "Sun."
    first, second = model.asked
    assert [tool.name for tool in first.tools] == ["get_weather"]
    assert first.tools[0].parameters["properties"]["city"]["description"] == "Its name."
    results = [message for message in second.messages if message.role == "tool"]
    ids = [call.id for message in second.messages for call in message.calls]
    assert [(result.name, result.content) for result in results] == [("weather", "sun in Bonn"), ("weather", "sun in Köln")]
    assert [result.call_id for result in results] == ids
    assert len(set(ids)) == 2


async def test_a_choice_of_tools_is_honoured():
    model = FakeModel(calls(BONN))
    app = create_app({"m": model})
    tool = {"type": "function", "function": {"name": "weather"}}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as http:
        for choice in ("none", "required", {"type": "function", "function": {"name": "weather"}}):
            body = {"model": "m", "messages": HI, "tools": [tool], "tool_choice": choice, "stream": False}
            assert (await http.post("/api/chat", json=body)).status_code == 200
        refused = await http.post("/api/chat", json={"model": "m", "messages": HI, "tools": [tool], "tool_choice": {"name": "x"}})
    assert [request.choice for request in model.asked] == [Choice("none"), Choice("required"), Choice.only("weather")]
    assert refused.status_code == 400
    assert "unknown tool 'x'" in refused.json()["error"]


async def test_a_prompt_is_completed_streamed_or_not():
    model = FakeModel([Thought("hm"), *says("blue", " sky")])
    sdk = client(model)
    whole = await sdk.generate("m", "Why?", system="Be brief.", format=SCHEMA, options={"num_predict": 5})
    assert (whole.response, whole.thinking, whole.done) == ("blue sky", "hm", True)
    parts = [part async for part in await sdk.generate("m", "Why?", stream=True)]
    assert "".join(part.response or "" for part in parts) == "blue sky"
    assert parts[-1].done
    assert [message.role for message in model.asked[0].messages] == ["system", "user"]
    assert model.asked[0].output == Output(SCHEMA)
    assert model.asked[0].sampling.max_tokens == 5


@pytest.mark.parametrize("raw", [{"raw": True}, {"suffix": "end"}, {"template": "x"}])
async def test_what_goes_around_the_template_is_refused_by_name(raw: Any):
    with pytest.raises(ollama.ResponseError, match=next(iter(raw))) as caught:
        await client(FakeModel(says("a"))).generate("m", "Why?", **raw)
    assert caught.value.status_code == 400


async def test_models_are_listed_shown_and_running():
    format = format_named("hermes")
    model = LocalModel(Scripted(["Hello."], repeat=True), format, Template(CHATML), Traits(thinks=True))
    sdk = client(model)
    (listed,) = (await sdk.list()).models
    assert listed.model == "m"
    assert listed.details is not None
    assert listed.details.family == ""  # a script has no weights
    model_card = await sdk.show("m:latest")
    assert model_card.capabilities == ["completion", "tools", "thinking"]
    assert model_card.template == CHATML
    (running,) = (await sdk.ps()).models
    assert (running.name, running.digest) == ("m", listed.digest)
    assert (await sdk.chat("m:latest", HI)).message.content == "Hello."
    with pytest.raises(ollama.ResponseError, match="unknown model 'x'") as caught:
        await sdk.show("x")
    assert caught.value.status_code == 404


async def test_a_request_that_asks_nothing_loads_the_model():
    model = FakeModel(says("never"))
    sdk = client(model)
    assert (await sdk.generate("m", keep_alive=0)).done_reason == "load"
    assert (await sdk.chat("m")).done_reason == "load"
    assert model.asked == []


async def test_the_version_is_one_that_clients_can_compare():
    transport = httpx.ASGITransport(app=create_app({"m": FakeModel(says("a"))}))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        version = (await http.get("/api/version")).json()["version"]
        assert [part.isdecimal() for part in version.split(".")] == [True, True, True]
        assert (await http.head("/")).status_code == 200
        missing = await http.post("/api/pull", json={"model": "m"})
    assert missing.status_code == 404
    assert missing.json()["error"] == "unknown path: /api/pull"


async def test_the_servers_own_tools_run_unseen():
    model = FakeModel([Text("One moment."), *calls(BONN)], says("Sun."))
    answer = await client(model, tools=Functions(weather)).chat("m", HI)
    assert answer.message.content == "One moment.\n\nSun."
    assert answer.message.tool_calls is None


@pytest.mark.parametrize("error", [ModelError("out of memory"), ZeroDivisionError("secret")])
async def test_a_failure_in_the_middle_of_a_stream_is_raised_by_the_client(error: Exception):
    came: list[str | None] = []
    with pytest.raises(ollama.ResponseError) as caught:
        async for part in await client(FakeModel([Text("so far"), error])).chat("m", HI, stream=True):
            came.append(part.message.content)
    assert came == ["so far"]
    assert caught.value.error == ("out of memory" if isinstance(error, ModelError) else caught.value.error)
    assert "secret" not in caught.value.error


async def test_a_slow_stream_is_kept_alive_with_empty_pieces():
    events: list[ModelEvent | Exception | float] = [0.25, Text("late"), Stopped("stop")]
    sdk = client(FakeModel(events), settings=Settings(keep_alive=0.05))
    parts = [part.message.content async for part in await sdk.chat("m", HI, stream=True)]
    assert parts.count("") >= 3
    assert "".join(map(str, parts)) == "late"


# -- a real model


@pytest.mark.weights
@pytest.mark.model
async def test_a_real_model_answers_in_the_format_that_is_asked_for(small: LocalModel):
    answer = await client(small).chat("m", HI, format=SCHEMA, options={"num_predict": 200})
    value = json.loads(answer.message.content or "")
    assert value["city"] in ("Bonn", "Rome")
    assert 0 <= value["people"] <= 999
    assert answer.eval_count


@pytest.mark.weights
@pytest.mark.model
async def test_a_real_model_calls_when_it_must(small: LocalModel):
    app = create_app({"m": small})
    tool = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
    body = {"model": "m", "messages": HI, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost", timeout=60) as http:
        lines = (await http.post("/api/chat", json=body)).text.splitlines()
    (call,) = [call for line in lines for call in json.loads(line)["message"].get("tool_calls", ())]
    assert call["function"]["name"] == "look_up"
    assert call["function"]["arguments"]["city"] in ("Bonn", "Rome")
