"""Law 7: our client against our own server, in every dialect, equals asking the model directly."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, Thought
from callsmith.core.ports import Model
from callsmith.core.values import Call, Choice, Message, Output, Request, Sampling
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel, Traits
from callsmith.models.opening import Options, open_model
from callsmith.server.app import create_app
from callsmith.wire.openai.responses import read_request
from tests.models.remote.scripted import ADD, WEATHER
from tests.serving import served

DIALECTS = ("chat", "responses", "anthropic", "ollama")
SAMPLING = Sampling(temperature=0.8, top_p=0.95, seed=7, max_tokens=12)
QUESTION = (Message.user("What is the weather in Bonn?"),)
CALLED = Call("weather", {"city": "Bonn"}, "call_1")
ANSWERED = (*QUESTION, Message.assistant(calls=[CALLED]), Message("tool", "sunny", call_id="call_1", name="weather"))
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Bonn", "Ulm"]}}, "required": ["city"]}
WHOLE = replace(SAMPLING, max_tokens=80)  # enough for a call
REQUESTS = {
    "text": Request(QUESTION, sampling=SAMPLING),
    "tools": Request(QUESTION, (WEATHER, ADD), sampling=SAMPLING),
    "required": Request(QUESTION, (WEATHER, ADD), Choice("required"), parallel=False, sampling=WHOLE),
    "named": Request(QUESTION, (WEATHER, ADD), Choice.only("add"), parallel=False, sampling=WHOLE),
    "none": Request(QUESTION, (WEATHER, ADD), Choice("none"), sampling=SAMPLING),
    "history": Request(ANSWERED, (WEATHER, ADD), sampling=SAMPLING),
    "output": Request(QUESTION, output=Output(SCHEMA), sampling=WHOLE),
    "stopped": Request(QUESTION, sampling=replace(SAMPLING, stop=(" the",))),
}


DIRECT: dict[str, Any] = {}  # what the small model answers when it is asked directly


def essence(events: Sequence[ModelEvent]) -> dict[str, Any]:
    """What counts of an answer: how it is cut into pieces, and the ids of calls, differ each time."""
    end = events[-1]
    assert isinstance(end, Stopped)
    return {
        "text": "".join(event.text for event in events if isinstance(event, Text)),
        "thoughts": "".join(event.text for event in events if isinstance(event, Thought)),
        "calls": [(event.call.name, dict(event.call.arguments)) for event in events if isinstance(event, CallReady)],
        "reason": end.reason,
        "tokens": (end.usage.prompt, end.usage.completion),
        "report": end.report,
    }


@asynccontextmanager
async def at_our_server(model: Model, dialect: str) -> AsyncIterator[Model]:
    async with served(create_app({"m": model})) as url:
        opened = open_model(f"callsmith+{url}/v1#m", Options(api=dialect))
        try:
            yield opened
        finally:
            await opened.close()


@pytest.mark.model
@pytest.mark.weights
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.req("R138")
async def test_a_real_model_behind_our_server_answers_as_if_asked_directly(shallow: LocalModel, dialect: str) -> None:
    async with at_our_server(shallow, dialect) as remote:
        for name, request in REQUESTS.items():
            if name not in DIRECT:
                DIRECT[name] = essence([event async for event in shallow.stream(request)])
            assert essence([event async for event in remote.stream(request)]) == DIRECT[name], name


SAID = {
    "calls": "Let me see.\n<tool_call>\n" + '{"name": "weather", "arguments": {"city": "Bonn"}}' + "\n</tool_call>\n<tool_call>\n"
    '{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
    "thoughts": '<think>\nHm, "Bonn"?\n</think>\n\nIt is ä ☀ 🌞.',
    "thoughts and a call": '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("what", SAID)
async def test_calls_and_thoughts_come_as_they_were_made(dialect: str, what: str) -> None:
    engine = Scripted([SAID[what]], chunk=3, repeat=True)
    local = LocalModel(engine, format_named("hermes"), Template(CHATML), Traits(thinks=True))
    request = replace(REQUESTS["tools"], thinking=True, sampling=Sampling(seed=7))
    async with at_our_server(local, dialect) as remote:
        direct = essence([event async for event in local.stream(request)])
        assert essence([event async for event in remote.stream(request)]) == direct
    assert direct["calls"] or direct["thoughts"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_tools_that_are_no_functions_are_called_through_another_server(dialect: str) -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": "[a-z ]+"}
    tools: Any = [{"type": "custom", "name": "patch", "format": grammar}, {"type": "shell"}]
    body: Any = {"model": "m", "input": "hi", "tools": tools}
    request = read_request(body).request
    called = Message.assistant(calls=[Call("patch", {"input": "a patch"}, "call_1")])
    request = replace(request, messages=(*request.messages, called, Message("tool", "it fits", call_id="call_1", name="patch")))
    made = [Call("patch", {"input": "another patch"}), Call("shell", {"commands": ["ls"]})]
    engine = Scripted([write(format_named("hermes"), made)], chunk=3, repeat=True)
    local = LocalModel(engine, format_named("hermes"), Template(CHATML))
    async with at_our_server(local, dialect) as remote:
        answer = essence([event async for event in remote.stream(request)])
    assert answer["calls"] == [(call.name, call.arguments) for call in made]
    prompt = engine.asked[-1].prompt.text
    assert "[a-z ]+" in prompt  # as a grammar, or in words
    assert '{"input": "a patch"}' in prompt
    assert "it fits" in prompt
    told = dialect in ("chat", "responses")  # our own server takes custom tools there
    assert answer["report"].notices == (() if told else ("the grammar of patch: this API does not take it",))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_history_with_reasoning_calls_and_results_arrives_whole(dialect: str) -> None:
    engine = Scripted(["Fine."], repeat=True)
    local = LocalModel(engine, format_named("hermes"), Template(CHATML))
    two = (CALLED, Call("add", {"a": 1, "b": 2}, "call_2"))
    turn = Message.assistant("Let me see.", reasoning="Hm.", calls=two)
    results = (Message("tool", "sunny", call_id="call_1", name="weather"), Message("tool", "3", call_id="call_2", name="add"))
    request = Request((*QUESTION, turn, *results, Message.user("And?")), (WEATHER, ADD))
    async with at_our_server(local, dialect) as remote:
        _ = [event async for event in local.stream(request)]
        _ = [event async for event in remote.stream(request)]
    direct, sent = (asked.prompt for asked in engine.asked)
    assert sent.text == direct.text
