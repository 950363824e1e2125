"""An answer ends with its calls: what a model goes on to say without their results reaches nobody, in any API."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.settings import Llm, Settings
from callsmith.tools.mcp import McpHost
from tests.models.remote.scripted import call_delta, chat, remote
from tests.scripted_server import scripted
from tests.server.asking import http
from tests.tools.mcp.trying import alive, plain

APIS = ("chat", "responses", "messages", "ollama")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages", "ollama": "/api/chat"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "", "parameters": CITY}
HERMES = format_named("hermes")
TALK = "\nIt is sunny, 30 degrees."
BONN, ULM = Call("weather", {"city": "Bonn"}), Call("weather", {"city": "Ulm"})


def tools_of(api: str) -> Any:
    match api:
        case "responses":
            return [{"type": "function", **FUNCTION}]
        case "messages":
            return [{"name": "weather", "input_schema": CITY}]
        case _:
            return [{"type": "function", "function": FUNCTION}]


def asked(api: str, *, stream: bool, tools: bool) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Weather?"}]
    what: dict[str, Any] = {"input": messages} if api == "responses" else {"messages": messages, "max_tokens": 500}
    return {"model": "m", "stream": stream, **what, **({"tools": tools_of(api)} if tools else {})}


def frames_of(body: str) -> list[Any]:
    """The JSON of an answer: one document, or those of a stream."""
    if body.startswith("{") and "\n{" not in body:
        return [json.loads(body)]
    lines = (line.removeprefix("data: ") for line in body.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


def text_of(api: str, body: str) -> str:
    """What the client is told in words."""
    texts: list[str] = []
    for frame in frames_of(body):
        if api == "chat":
            choice = frame["choices"][0] if frame.get("choices") else {}
            texts.append((choice.get("delta") or choice.get("message") or {}).get("content") or "")
        elif api == "ollama":
            texts.append(frame["message"]["content"])
        elif api == "messages":
            texts += [part["text"] for part in frame.get("content", ()) if part["type"] == "text"]
            texts.append(frame.get("delta", {}).get("text", ""))
        elif frame.get("type") == "response.output_text.delta":
            texts.append(frame["delta"])
        elif "output" in frame:
            parts = (part for item in frame["output"] if item["type"] == "message" for part in item["content"])
            texts += [part["text"] for part in parts]
    return "".join(texts)


async def answered(app: Any, api: str, *, stream: bool, tools: bool) -> str:
    async with http(app) as client:
        answer = await client.post(PATHS[api], json=asked(api, stream=stream, tools=tools))
        assert answer.status_code == 200, answer.text
        return answer.text


class Counted(Scripted):
    """The scripted engine, which also says what it had written when it was told to stop."""

    written = ""

    async def generate(self, *arguments: Any) -> AsyncIterator[Any]:
        self.written = ""
        async for piece in super().generate(*arguments):
            self.written += getattr(piece, "text", "")
            yield piece


def model_of(*replies: str, chunk: int = 5) -> tuple[LocalModel, Counted]:
    engine = Counted(replies, chunk=chunk)
    return LocalModel(engine, HERMES, Template(CHATML)), engine


@pytest.mark.req("R113")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
async def test_the_stream_finishes_behind_calls_of_the_clients_tools(api: str, stream: bool) -> None:
    model, engine = model_of(write(HERMES, [BONN, ULM], text="Let me see.") + TALK + " Nice there." * 50)
    body = await answered(create_app({"m": model}), api, stream=stream, tools=True)
    assert "Bonn" in body and "Ulm" in body  # all that were made at once
    assert text_of(api, body).strip() == "Let me see."
    assert len(engine.written) < len(write(HERMES, [BONN, ULM], text="Let me see.")) + 20, "it was stopped at once"


@asynccontextmanager
async def the_desk() -> AsyncIterator[McpHost]:
    """A real MCP server in a process of its own."""
    async with McpHost([plain("desk", trust=True, approval=(("*", "auto"),))]) as host:
        yield host


PID = Call("pid", {})
ROWS = [(sent, own) for sent in (False, True) for own in (False, True)]


@pytest.mark.req("R113")
@pytest.mark.req("R114")
@pytest.mark.req("R115")
@pytest.mark.req("R116")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("sent", "own"), ROWS)
@pytest.mark.sampled
async def test_who_runs_a_call_with_a_real_server_of_tools(sent: bool, own: bool, api: str, stream: bool) -> None:
    first = write(HERMES, [BONN if sent else PID], text="Let me see.") + TALK
    model, engine = model_of(first, "It rains.")
    async with the_desk() as host:
        body = await answered(create_app({"m": model}, mcp=host if own else None), api, stream=stream, tools=sent)
        text, prompts = text_of(api, body), [request.prompt.text for request in engine.asked]
        if sent:  # outside, whether there are servers or not
            assert (text.strip(), len(prompts)) == ("Let me see.", 1)
            assert "Bonn" in body and '"pid"' not in prompts[0]
        elif own:  # inside: paused, run, resumed
            assert (text.split(), len(prompts)) == (["Let", "me", "see.", "It", "rains."], 2)
            ran = re.search(r"<tool_response>\s*(\d+)", prompts[1])
            assert ran and alive(int(ran[1])), "the tool ran in the server's process"
            assert prompts[1].startswith(prompts[0]) and "sunny" not in prompts[1]
            assert "pid" not in body
        else:  # nothing is a call
            assert (text, len(prompts)) == (first, 1)


@pytest.mark.req("R113")
@pytest.mark.parametrize("stream", [False, True])
async def test_mixed_calls_end_the_answer_too(stream: bool) -> None:
    model, engine = model_of(write(HERMES, [PID, BONN]) + TALK)
    settings = Settings(llm=Llm(tool_mode="mixed"))
    async with the_desk() as host:
        body = await answered(create_app({"m": model}, mcp=host, settings=settings), "chat", stream=stream, tools=True)
    assert "Bonn" in body and text_of("chat", body) == "" and len(engine.asked) == 1


CALLED = call_delta("weather", '{"city": "Bonn"}')
AGAIN = call_delta("weather", '{"city": "Ulm"}', "call_2", 1)
AS_TEXT = write(HERMES, [BONN])
REMOTE = {
    "structured": [{"content": "Let me see."}, CALLED, {"content": TALK}, {"reasoning_content": "Hm, sunny."}, AGAIN],
    "text": [{"content": f"Let me see.{AS_TEXT}\n{write(HERMES, [ULM])}{TALK}"}, {"content": f"{AS_TEXT} sunny"}],
    "both": [{"content": "Let me see."}, CALLED, AGAIN, {"content": f"{AS_TEXT}{TALK}{AS_TEXT}"}],
    "text, then structured": [{"content": f"Let me see.{AS_TEXT}"}, CALLED, AGAIN],
}


@pytest.mark.req("R113")
@pytest.mark.req("R61")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("how", REMOTE)
async def test_what_another_server_says_behind_its_calls_is_left_out(how: str, api: str, stream: bool) -> None:
    async with scripted(chat(*REMOTE[how], finish="tool_calls" if how != "text" else "stop")) as server:
        model = remote(server)
        body = await answered(create_app({"m": model}), api, stream=stream, tools=True)
    await model.close()
    assert text_of(api, body).strip() == "Let me see."
    assert "sunny" not in body and "Hm" not in body
    last = frames_of(body)[-1]
    calls = sum(item["type"] == "function_call" for item in last.get("response", last)["output"]) if api == "responses" else 2
    assert "Bonn" in body and "Ulm" in body and calls == 2


@pytest.mark.weights
@pytest.mark.model  # with models by script, all of them are tried above
@pytest.mark.req("R113")
@pytest.mark.req("R115")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
async def test_a_real_model_that_talks_on_is_stopped(small: LocalModel, api: str, stream: bool) -> None:
    history: list[Any] = []
    for city, weather in (("Rome", "sunny"), ("Oslo", "cold"), ("Bonn", "wet")):  # what it has seen, it does again
        example = f"{write(small.format, [Call('weather', {'city': city})])}\nIt is {weather} there."
        history += [{"role": "user", "content": f"Weather in {city}?"}, {"role": "assistant", "content": example}]
    history.append({"role": "user", "content": "Weather in Paris?"})
    body = asked(api, stream=stream, tools=True) | {"input" if api == "responses" else "messages": history}
    body |= {"options": {"temperature": 0}} if api == "ollama" else {"temperature": 0}
    async with http(create_app({"m": small})) as client:
        answer = await client.post(PATHS[api], json=body)
    assert "Paris" in answer.text
    assert text_of(api, answer.text).strip() == ""
