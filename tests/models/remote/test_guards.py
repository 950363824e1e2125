"""The guards of small models where another server runs the model: it repeats its call, says nothing, or copies the result."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.core.events import CallReady, ModelEvent, Stopped, Text
from callsmith.core.ports import model_info
from callsmith.core.values import Call, Choice, Request
from callsmith.engines.completions import tokenizer
from callsmith.formats import format_named
from callsmith.formats.prompt.template import Template
from callsmith.models.local import LocalModel, Traits
from callsmith.models.opening import Options, open_model
from callsmith.models.plugins import register_presets_file
from callsmith.runtime.guards.answers import LINE
from callsmith.runtime.guards.guards import guard_model
from callsmith.runtime.loop import run
from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from callsmith.tools.functions import Functions
from tests.engines.completions.scripted_servers import TEMPLATE, Kind, ScriptedServer
from tests.engines.completions.test_kinds import KINDS, opened
from tests.fakes import FakeModel
from tests.models.remote.scripted import call_delta, chat, remote
from tests.models.remote.test_own_server import DIALECTS
from tests.runtime.guards.histories import CLOCK, JSON, WEATHER, bonn, history
from tests.scripted_server import scripted
from tests.server.asking import calls, http, says
from tests.serving import served

ASKED = Request(history((bonn(), JSON)), (WEATHER, CLOCK))
REPEATED = chat(call_delta("weather", '{"city": "Bonn"}', "call_9"), finish="tool_calls")
ANSWER = chat({"content": "It is mild."})


def said(events: Sequence[ModelEvent]) -> tuple[str, list[Call], Stopped]:
    """The text, the calls, and the end of an answer."""
    end = events[-1]
    assert isinstance(end, Stopped)
    text = "".join(event.text for event in events if isinstance(event, Text))
    return text, [event.call for event in events if isinstance(event, CallReady)], end


async def answer(model: Any, guards: Sequence[str] | None = None) -> tuple[str, list[Call], Stopped]:
    try:
        return said([event async for event in guard_model(model, guards).stream(ASKED)])
    finally:
        await model.close()


@pytest.mark.req("R102")
@pytest.mark.parametrize(
    ("useless", "name"),
    [(REPEATED, "repeated_call"), (chat({"content": ""}), "empty"), (chat({"content": JSON}), "copy")],
)
async def test_what_is_of_no_use_after_a_result_is_taken_back_and_asked_for_again(useless: bytes, name: str) -> None:
    async with scripted(useless, ANSWER) as server:
        text, tool_calls, end = await answer(remote(server, guards=("small",)))
    assert (text, tool_calls, end.reason) == ("It is mild.", [], "stop")
    assert end.report.taken_back == (name,)
    assert LINE in server.asked[1]["messages"][-1]["content"]


async def test_an_upstream_that_repeats_its_call_for_ever_is_not_asked_for_ever() -> None:
    async with scripted(REPEATED) as server:
        _, tool_calls, end = await answer(remote(server, guards=("small",)))
    assert not tool_calls and end.reason == "stop"
    assert len(server.asked) <= 3


async def test_without_guards_the_call_goes_through() -> None:
    async with scripted(REPEATED) as server:
        _, tool_calls, end = await answer(remote(server))
    assert [call.name for call in tool_calls] == ["weather"] and end.reason == "calls"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_dialect_is_guarded(dialect: str) -> None:
    upstream = FakeModel(calls(Call("weather", {"city": "Bonn"}, "c9")), says("It is mild."))
    async with served(create_app({"m": upstream})) as url:
        model = open_model(f"callsmith+{url}/v1#m", Options(api=dialect))
        text, tool_calls, end = await answer(model, guards=("small",))
    assert (text, tool_calls, end.report.taken_back) == ("It is mild.", [], ("repeated_call",))
    assert LINE in upstream.asked[1].messages[-1].content


async def test_a_run_runs_the_tool_once() -> None:
    ran: list[str] = []

    def weather(city: str) -> str:
        """The weather."""
        ran.append(city)
        return JSON

    first = chat(call_delta("weather", '{"city": "Bonn"}', "call_1"), finish="tool_calls")
    async with scripted(first, REPEATED, ANSWER) as server:
        model = remote(server, guards=("small",))
        request = Request(ASKED.messages[:1], ())
        events = [event async for event in run(guard_model(model), Functions(weather), request)]
        await model.close()
    assert ran == ["Bonn"]
    assert "It is mild." in "".join(event.text for event in events if isinstance(event, Text))


async def test_the_gateway_guards_a_model_by_a_preset_of_the_operators(tmp_path: Path) -> None:
    presets = tmp_path / "mine.toml"
    presets.write_text(
        '[looping]\nmodels = ["some-looping-model*"]\nformats = ["hermes"]\nguards = ["small"]\n', encoding="utf-8"
    )
    register_presets_file(presets)
    called = {"name": "weather", "arguments": '{"city": "Bonn"}'}
    messages = [
        {"role": "user", "content": "What is the weather in Bonn?"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": called}]},
        {"role": "tool", "tool_call_id": "c1", "content": JSON},
    ]
    tools = [{"type": "function", "function": {"name": "weather", "parameters": dict(WEATHER.parameters)}}]
    for settings, expected in ((Settings(), "stop"), (Settings(guards=False), "tool_calls")):
        async with scripted(REPEATED, ANSWER) as server:
            model = open_model(f"{server.url}/v1#some-looping-model-7b", Options())
            assert model_info(model).guards == ("small",)
            async with http(create_app({"m": model}, settings=settings)) as asking:
                response = await asking.post("/v1/chat/completions", json={"model": "m", "messages": messages, "tools": tools})
            await model.close()
        body = response.json()
        assert body["choices"][0]["finish_reason"] == expected
        assert body.get("callsmith", {}).get("taken_back") == (["repeated_call"] if expected == "stop" else None)


@pytest.mark.parametrize("kind", KINDS)
async def test_raw_completions_of_every_server_are_guarded(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "_STEP", 500)
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
    async with opened(ScriptedServer(kind, says=[call, "It is mild."])) as engine:
        model = LocalModel(engine, format_named("hermes"), Template(TEMPLATE), Traits(guards=("small",)))
        events = [event async for event in guard_model(model).stream(replace(ASKED, choice=Choice("auto")))]
    text, tool_calls, end = said(events)
    assert (text, tool_calls, end.report.taken_back) == ("It is mild.", [], ("repeated_call",))
