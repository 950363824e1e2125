"""Where the choice is the model's: no client gets a call of a tool that it did not declare, nor one that cannot be read."""

import json
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.core.events import CallArguments, CallReady, Stopped, Text, Unreadable
from callsmith.core.values import Call, Message, Request, Sampling, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from callsmith.models.traits import Traits
from callsmith.server.app import create_app
from tests.models.remote.scripted import call_delta, chat, remote
from tests.scripted_server import scripted
from tests.server.test_calls_end_answers import APIS, answered, text_of

HERMES = format_named("hermes")
FIRE, BONN = Call("fire", {"at": "will"}), Call("weather", {"city": "Bonn"})
BROKEN = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bo'
UNKNOWN = {
    "structured": chat(call_delta("fire", '{"at": "will"}'), finish="tool_calls"),
    "text": chat({"content": write(HERMES, [FIRE])}),
}
KNOWN = chat(call_delta("weather", '{"city": "Bonn"}'), finish="tool_calls")
WORDS = chat({"content": "I cannot."})


@pytest.mark.req("R8")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("second", [write(HERMES, [BONN]), write(HERMES, [FIRE]), "I cannot."])
async def test_a_local_models_call_of_no_tool_is_asked_for_again(second: str, api: str, stream: bool) -> None:
    engine = Scripted([write(HERMES, [FIRE]), second])
    model = LocalModel(engine, HERMES, Template(CHATML))
    body = await answered(create_app({"m": model}), api, stream=stream, tools=True)
    assert "fire" not in body and len(engine.asked) == 2
    assert "there is no tool 'fire'" in engine.asked[1].prompt.text
    grammar = engine.asked[1].grammar
    assert grammar is not None and grammar.triggers, "calls are held to the tools, and words are free"
    assert ("Bonn" in body, text_of(api, body)) == ("Bonn" in second, "I cannot." if second == "I cannot." else "")


@pytest.mark.req("R8")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("provider", ["", "openai"])  # whose calls are validated here, and whose are not
@pytest.mark.parametrize("how", UNKNOWN)
@pytest.mark.parametrize("second", [KNOWN, WORDS, None], ids=["known", "words", "unknown"])
async def test_another_servers_call_of_no_tool_is_asked_for_again(
    second: bytes | None, how: str, provider: str, api: str, stream: bool
) -> None:
    if how == "text" and provider:
        pytest.skip("its text is text")
    async with scripted(UNKNOWN[how], UNKNOWN[how] if second is None else second) as server:
        model = remote(server, provider=provider)
        body = await answered(create_app({"m": model}), api, stream=stream, tools=True)
    await model.close()
    assert "fire" not in body and len(server.asked) == 2
    assert ("Bonn" in body, text_of(api, body)) == (second is KNOWN, "I cannot." if second is WORDS else "")


WEATHER = Tool("weather", "", {"type": "object"})
PREFILLED = Request((Message.user("Fire."), Message.assistant("So")), (WEATHER,), prefill=True)


@pytest.mark.req("R8")
@pytest.mark.parametrize(("call", "calls"), [(FIRE, []), (BONN, ["weather"])])
async def test_a_call_of_no_tool_behind_a_prefilled_answer_is_left_out(call: Call, calls: list[str]) -> None:
    """Nothing could take its place: another answer would not go on from the same words."""
    engine = Scripted([f" be it. {write(HERMES, [call])}"])
    model = LocalModel(engine, HERMES, Template(CHATML))
    events = [event async for event in model.stream(PREFILLED)]
    assert [event.call.name for event in events if isinstance(event, CallReady)] == calls
    assert "".join([event.text for event in events if isinstance(event, Text)]).startswith(" be it.")
    assert isinstance(events[-1], Stopped) and len(engine.asked) == 1
    assert (events[-1].reason, events[-1].report.retries) == ("calls" if calls else "stop", 0)


@pytest.mark.req("R8")
@pytest.mark.parametrize(("name", "calls"), [("fire", []), ("weather", ["weather"])])
async def test_another_servers_call_of_no_tool_behind_a_prefilled_answer_is_left_out(name: str, calls: list[str]) -> None:
    async with scripted(chat(call_delta(name, '{"city": "Bonn"}'), finish="tool_calls")) as server:
        model = remote(server)
        events = [event async for event in model.stream(PREFILLED)]
    await model.close()
    assert [event.call.name for event in events if isinstance(event, CallReady)] == calls and len(server.asked) == 1
    assert isinstance(events[-1], Stopped) and events[-1].reason == ("calls" if calls else "stop")


@pytest.mark.req("R71")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
async def test_a_call_that_cannot_be_read_is_asked_for_again_constrained(api: str, stream: bool) -> None:
    engine = Scripted([f"Let me see.{BROKEN}", write(HERMES, [BONN])])
    model = LocalModel(engine, HERMES, Template(CHATML))
    body = await answered(create_app({"m": model}), api, stream=stream, tools=True)
    assert [request.grammar is None for request in engine.asked] == [True, False]
    assert engine.asked[1].grammar and not engine.asked[1].grammar.triggers, "nothing but a call can be written"
    assert (text_of(api, body), "Bonn" in body, "<tool_call>" in body) == ("Let me see.", True, False)


@pytest.mark.parametrize("reply", [BROKEN, write(HERMES, [FIRE])])
async def test_a_model_that_is_read_as_it_stands_is_not_asked_again(reply: str) -> None:
    """An evaluation of free answers compares with what the model writes by itself."""
    engine = Scripted([reply, write(HERMES, [BONN])])
    model = LocalModel(engine, HERMES, Template(CHATML), Traits(strict=True))
    events = [event async for event in model.stream(Request((Message.user("Go."),), (WEATHER,)))]
    assert len(engine.asked) == 1 and isinstance(events[-1], Stopped)


@pytest.mark.req("R71")
async def test_arguments_of_another_server_that_are_no_json_are_asked_for_again() -> None:
    broken = chat(call_delta("weather", '{"city": Bo'), finish="tool_calls")
    async with scripted(broken, KNOWN) as server:
        model = remote(server)
        body: Any = json.loads(await answered(create_app({"m": model}), "chat", stream=False, tools=True))
    await model.close()
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert (json.loads(call["function"]["arguments"]), len(server.asked)) == ({"city": "Bonn"}, 2)


async def test_a_long_call_is_passed_on_while_it_is_written() -> None:
    long = Call("write", {"text": "x" * 5_000})
    model = LocalModel(Scripted([write(HERMES, [long])], chunk=50), HERMES, Template(CHATML))
    request = Request((Message.user("Write."),), (Tool("write", "", {"type": "object"}),))
    kinds = [type(event) async for event in model.stream(request) if isinstance(event, CallArguments | CallReady)]
    assert kinds.count(CallArguments) > 50


async def test_a_call_that_was_cut_off_is_not_asked_for_again() -> None:
    engine = Scripted([write(HERMES, [BONN])])
    model = LocalModel(engine, HERMES, Template(CHATML))
    request = Request((Message.user("Go."),), (Tool("weather", "", {"type": "object"}),), sampling=Sampling(max_tokens=15))
    events = [event async for event in model.stream(request)]
    assert isinstance(events[-1], Stopped) and events[-1].reason == "length"
    assert any(isinstance(event, Unreadable) for event in events) and len(engine.asked) == 1
