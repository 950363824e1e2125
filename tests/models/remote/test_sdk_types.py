"""What is sent to OpenAI, Anthropic and Ollama, and what they send, held against the types of their own SDKs."""

import json
from collections.abc import Mapping
from typing import Any, get_type_hints

import ollama
import pytest
from anthropic.types import RawMessageStreamEvent
from anthropic.types import message_create_params as anthropic_params
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import ResponseStreamEvent
from openai.types.responses import response_create_params as responses_params
from pydantic import TypeAdapter

pytest.importorskip("aiohttp")

from callsmith.bus.bus import CapabilityBus
from callsmith.capabilities.llm import LlmService
from callsmith.core.values import Call, Choice, Message, Request, Sampling
from callsmith.models.remote.model import RemoteModel
from callsmith.server.app import create_app
from tests.capabilities.chatting import chat as chat_body
from tests.models.remote.scripted import ADD, WEATHER, answer, calls_of, chunks, lines, remote, sse
from tests.scripted_server import scripted
from tests.server.asking import WEATHER as WEATHER_FUNCTION
from tests.server.asking import http

CITY = {"city": "Bonn"}
CHUNKS = chunks(
    {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": ' "Bonn"}'}}]},
    finish="tool_calls",
    usage={"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
)
USAGE = {"input_tokens": 5, "output_tokens": 3}
MESSAGES: list[Any] = [
    {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": USAGE}},
    {"type": "ping"},
    {"type": "content_block_start", "index": 0,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"city": '}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '"Bonn"}'}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]  # fmt: skip
ITEM = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Bonn"}'}
RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt", "output": [], "parallel_tool_calls": True,
    "tool_choice": "auto", "tools": [], "error": None, "status": "in_progress"}  # fmt: skip
EVENTS: list[Any] = [
    {"type": "response.created", "sequence_number": 0, "response": RESPONSE},
    {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
        "item": {**ITEM, "arguments": "", "status": "in_progress"}},
    {"type": "response.function_call_arguments.delta", "sequence_number": 2, "output_index": 0, "item_id": "fc_1",
        "delta": '{"city": "Bonn"}'},
    {"type": "response.function_call_arguments.done", "sequence_number": 3, "output_index": 0, "item_id": "fc_1",
        "name": "weather", "arguments": '{"city": "Bonn"}'},
    {"type": "response.output_item.done", "sequence_number": 4, "output_index": 0, "item": {**ITEM, "status": "completed"}},
    {"type": "response.completed", "sequence_number": 5, "response": {**RESPONSE, "status": "completed", "output": [ITEM],
        "usage": {**USAGE, "total_tokens": 8, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0}}}},
]  # fmt: skip
ROWS: list[Any] = [
    {"model": "mistral", "created_at": "2026-11-16T00:00:00Z", "done": False, "message": {"role": "assistant", "content": "",
        "tool_calls": [{"function": {"name": "weather", "arguments": CITY}}]}},
    {"model": "mistral", "created_at": "2026-11-16T00:00:00Z", "done": True, "done_reason": "stop", "prompt_eval_count": 5,
        "eval_count": 3, "message": {"role": "assistant", "content": ""}},
]  # fmt: skip
# How MiniCPM-V writes a call, behind a server that does not know it.
WRITTEN = chunks({"content": '<tool_call>\n{"name": "weather", '}, {"content": '"arguments": {"city": "Bonn"}}\n</tool_call>'})

ANSWERS: Mapping[str, tuple[str, str, bytes]] = {
    "GPT": ("openai", "chat", sse(*CHUNKS)),
    "GPT, Responses": ("openai", "responses", sse(*EVENTS, done=False)),
    "Claude": ("anthropic", "anthropic", sse(*MESSAGES, done=False)),
    "Mistral at Ollama": ("ollama", "ollama", lines(*ROWS)),
    "MiniCPM-V": ("openbmb", "chat", sse(*WRITTEN)),
}
CALLED = Call("files.read", {"path": "a"}, "call_0")
HISTORY = (
    Message.system("Be brief."),
    Message.user("Hi"),
    Message.assistant("One moment.", calls=[CALLED]),
    Message("tool", "text", call_id="call_0", name="files.read"),
    Message.user("And the weather in Bonn?"),
)
CHOICES = {"auto": Choice(), "none": Choice("none"), "required": Choice("required"), "named": Choice.only("weather")}


def test_the_scripts_are_what_the_vendors_send() -> None:
    for chunk in CHUNKS:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    for event in EVENTS:
        TypeAdapter(ResponseStreamEvent).validate_python(event)
    for event in (event for event in MESSAGES if event["type"] != "ping"):
        TypeAdapter(RawMessageStreamEvent).validate_python(event)
    for row in ROWS:
        ollama.ChatResponse.model_validate(row)


SENT: Mapping[str, Any] = {
    "chat": chat_params.CompletionCreateParamsStreaming,
    "responses": responses_params.ResponseCreateParamsStreaming,
    "anthropic": anthropic_params.MessageCreateParamsStreaming,
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("provider", "api"), [("openai", "chat"), ("openai", "responses"), ("anthropic", "anthropic")])
@pytest.mark.req("R30")
@pytest.mark.req("R137")
@pytest.mark.req("R138")
async def test_what_is_sent_is_what_the_vendors_take(provider: str, api: str, choice: str) -> None:
    streams = {"chat": sse(*CHUNKS), "responses": sse(*EVENTS, done=False), "anthropic": sse(*MESSAGES, done=False)}[api]
    sampling = Sampling(temperature=0.5, max_tokens=50)
    request = Request(HISTORY, (WEATHER, ADD), CHOICES[choice], parallel=False, sampling=sampling, thinking=False)
    async with scripted(streams) as server:
        events = await answer(remote(server, api, provider=provider), request)
    body = server.asked[0]
    assert set(body) <= set(get_type_hints(SENT[api]))
    TypeAdapter(SENT[api]).validate_python(body)
    assert "files_read" in json.dumps(body) and "files.read" not in json.dumps(body)
    assert calls_of(events) == ([] if choice == "none" else [("weather", CITY)])
    wanted = {
        "chat": {"required": "required", "none": "none", "named": {"type": "function", "function": {"name": "weather"}}},
        "responses": {"required": "required", "none": "none", "named": {"type": "function", "name": "weather"}},
        "anthropic": {"required": "any", "none": "none", "named": "tool"},
    }[api].get(choice)
    sent = body.get("tool_choice")
    assert (sent["type"] if api == "anthropic" and wanted else sent) == wanted or choice == "auto"


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.req("R30")
@pytest.mark.req("R139")
async def test_what_is_sent_to_ollama_is_what_its_sdk_sends(choice: str) -> None:
    """Ollama has no choice of tools: which may be called is said by those that are sent."""
    request = Request(HISTORY, (WEATHER, ADD), CHOICES[choice], sampling=Sampling(temperature=0.5, max_tokens=50, top_k=3))
    async with scripted(lines(*ROWS)) as server:
        events = await answer(remote(server, "ollama", provider="ollama"), request)
    body = server.asked[0]
    ollama._types.ChatRequest.model_validate(body)
    assert set(body) <= set(ollama._types.ChatRequest.model_fields)
    offered = {"auto": ["weather", "add"], "none": [], "required": ["weather", "add"], "named": ["weather"]}[choice]
    assert [tool["function"]["name"] for tool in body.get("tools", [])] == offered
    assert body["messages"][3]["tool_name"] == "files.read"
    assert body["options"] == {"temperature": 0.5, "num_predict": 50, "top_k": 3}
    assert calls_of(events) == ([] if choice == "none" else [("weather", CITY)])


@pytest.mark.parametrize("who", ANSWERS)
@pytest.mark.req("R194")
async def test_each_gives_well_formed_calls_for_one_prompt(who: str) -> None:
    provider, api, body = ANSWERS[who]
    async with scripted(body) as server:
        model = remote(server, api, provider=provider)
        client = AsyncOpenAI(base_url="http://localhost/v1", api_key="-", http_client=http(create_app({"m": model})))
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "The weather in Bonn?"}], tools=[WEATHER_FUNCTION], stream=True
        )
        deltas = [chunk.choices[0] async for chunk in stream if chunk.choices]
        await model.close()
    calls = [call for choice in deltas for call in choice.delta.tool_calls or ()]
    assert [call.function.name for call in calls if call.function and call.function.name] == ["weather"]
    assert json.loads("".join(call.function.arguments or "" for call in calls if call.function)) == CITY
    assert {call.index for call in calls} == {0} and calls[0].id
    assert deltas[-1].finish_reason == "tool_calls"


@pytest.mark.parametrize("who", ANSWERS)
@pytest.mark.req("R194")
async def test_each_gives_well_formed_frames_of_a_call_for_one_prompt(who: str) -> None:
    provider, api, body = ANSWERS[who]
    tool = {"name": "weather", "parameters_schema": WEATHER_FUNCTION["function"]["parameters"]}
    bus = CapabilityBus()
    async with scripted(body) as server:
        model = remote(server, api, provider=provider)
        LlmService(bus, {"m": model}).register()
        frames = [item async for item in bus.stream("llm.chat", (2, 0), chat_body("The weather in Bonn?", tools=[tool]))]
        await model.close()
    deltas = [frame.data for frame in frames if frame.event == "tool_call_delta"]
    (call,) = [frame.data for frame in frames if frame.event == "tool_call"]
    assert (call["name"], call["arguments"], bool(call["id"])) == ("weather", CITY, True)
    assert {delta["id"] for delta in deltas} <= {call["id"]}
    assert not deltas or json.loads("".join(delta["arguments_delta"] for delta in deltas)) == CITY
    assert (frames[-1].event, frames[-1].data["stop_reason"]) == ("done", "tool_calls")


@pytest.mark.req("R31")
async def test_a_backend_without_tools_says_so_where_a_call_is_required() -> None:
    async with scripted(sse(*chunks({"content": "No."}))) as server:
        model: RemoteModel = remote(server, quirks=remote_without_tools())
        events = await answer(model, Request(HISTORY, (WEATHER,), Choice("required")))
    assert "tools" not in server.asked[0]
    assert events[-1].report.notices == (  # type: ignore[union-attr]
        "a call was required, and gpt answered without one, also when asked again",
    )


def remote_without_tools() -> Any:
    from callsmith.wire.upstream.quirks import Quirks

    return Quirks(tools=False)
