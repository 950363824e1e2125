"""Servers that answer oddly, and legally: empty reasons, calls that are cut off, refusals, images of results, other names."""

import base64
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.core.events import CallReady
from callsmith.core.values import Call, Image, Message, Sampling, TokenBias, Tool
from callsmith.wire.openai.chat import read_request
from tests.models.remote.scripted import ASK, answer, call_delta, calls_of, chat, end_of, lines, remote, sse, text_of
from tests.scripted_server import http, scripted

LIST = Tool("list_files", "", {"type": "object", "properties": {"path": {"type": "string"}}})
PNG = Image(f"data:image/png;base64,{base64.b64encode(bytes(40)).decode()}")
OLLAMA = lines({"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": True, "done_reason": "stop"})


def piece(delta: dict[str, Any], reason: Any = None) -> dict[str, Any]:
    return {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


async def test_an_empty_finish_reason_ends_no_call() -> None:
    pieces = [
        piece({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "list_files", "arguments": ""}}]}, ""),
        piece({"tool_calls": [{"index": 0, "function": {"arguments": '{"path":'}}]}, ""),
        piece({"tool_calls": [{"index": 0, "function": {"arguments": ' "/tmp"}'}}]}, ""),
        piece({}, "tool_calls"),
    ]
    async with scripted(sse(*pieces)) as server:
        events = await answer(remote(server), tools=(LIST,))
    assert calls_of(events) == [("list_files", {"path": "/tmp"})]


async def test_openai_is_sent_the_images_of_results_as_the_users() -> None:
    calls = [Call("list_files", {}, "a"), Call("list_files", {}, "b")]
    messages = (
        Message.user("Look."),
        Message.assistant(calls=calls),
        Message("tool", "", call_id="a", name="list_files", images=(PNG,)),
        Message("tool", "none", call_id="b", name="list_files"),
    )
    async with scripted(chat({"content": "A cat."})) as server:
        await answer(remote(server, provider="openai"), messages=messages, tools=(LIST,))
    sent = server.asked[0]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert all(isinstance(message["content"], str) for message in sent if message["role"] == "tool")
    assert sent[-1]["content"][-1] == {"type": "image_url", "image_url": {"url": PNG.url}}


def message_start() -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {}}}


CUT = {
    "chat": sse(piece(call_delta("list_files", "")), piece({}, "length")),
    "anthropic": sse(
        message_start(),
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "t", "name": "list_files", "input": {}},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
        done=False,
    ),
    "responses": sse(
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "function_call", "call_id": "a", "name": "list_files", "arguments": "", "status": "incomplete"},
        },
        {"type": "response.incomplete", "response": {"status": "incomplete", "output": []}},
        done=False,
    ),
}


@pytest.mark.parametrize("api", CUT)
async def test_a_call_that_is_cut_off_before_its_arguments_is_no_call(api: str) -> None:
    async with scripted(CUT[api]) as server:
        events = await answer(remote(server, api), tools=(LIST,))
    assert calls_of(events) == []
    assert end_of(events).reason == "length"


async def test_a_custom_call_that_is_cut_off_is_no_call() -> None:
    half = {"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "list_files", "input": "rm -rf /tmp"}}]}
    async with scripted(sse(piece(half), piece({}, "length"))) as server:
        events = await answer(remote(server), tools=(LIST,))
    assert calls_of(events) == []


async def test_a_call_without_arguments_that_is_not_cut_off_stays_one() -> None:
    ended = CUT["anthropic"].replace(b"max_tokens", b"tool_use__")  # of the same length
    async with scripted(ended) as server:
        events = await answer(remote(server, "anthropic"), tools=(LIST,))
    assert [event.call.arguments for event in events if isinstance(event, CallReady)] == [{}]


REFUSED = {
    "stream": ("chat", chat({"refusal": "I can"}, {"refusal": "not."})),
    "whole": (
        "chat",
        http(
            json.dumps(
                {"choices": [{"index": 0, "message": {"content": None, "refusal": "I cannot."}, "finish_reason": "stop"}]}
            ).encode()
        ),
    ),
    "responses": (
        "responses",
        http(
            json.dumps(
                {
                    "object": "response",
                    "status": "completed",
                    "output": [
                        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
                    ],
                }
            ).encode()
        ),
    ),
}


@pytest.mark.parametrize("how", REFUSED)
async def test_a_refusal_is_said(how: str) -> None:
    api, says = REFUSED[how]
    async with scripted(says) as server:
        events = await answer(remote(server, api, provider="openai"), tools=())
    assert text_of(events) == "I cannot."


def test_a_refusal_that_comes_back_is_read() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "refusal": "I cannot."}]
    assert read_request({"messages": messages}).request.messages[1].content == "I cannot."


async def test_the_repetition_penalty_has_the_name_that_the_server_knows() -> None:
    asks = {"sampling": Sampling(repetition_penalty=1.3), "tools": ()}
    async with scripted(OLLAMA) as ollama, scripted(chat({"content": "Hi"})) as llama:
        await answer(remote(ollama, "ollama", provider="ollama"), **asks)
        await answer(remote(llama, provider="llama-server"), **asks)
    assert ollama.asked[0]["options"]["repeat_penalty"] == 1.3
    assert llama.asked[0]["repeat_penalty"] == 1.3


async def test_a_bias_that_ollama_does_not_know_is_said_to_be_left_out() -> None:

    async with scripted(OLLAMA) as server:
        events = await answer(
            remote(server, "ollama", provider="ollama"), sampling=Sampling(logit_bias=(TokenBias(3, 1.0),)), tools=()
        )
    assert any("logit_bias" in notice for notice in end_of(events).report.notices)


@pytest.mark.parametrize("api", ["chat", "ollama"])
async def test_arguments_that_are_null_as_text_are_none(api: str) -> None:
    row = {
        "model": "m",
        "message": {"role": "assistant", "tool_calls": [{"function": {"name": "list_files", "arguments": "null"}}]},
    }
    says = chat(call_delta("list_files", "null"), finish="tool_calls") if api == "chat" else lines({**row, "done": True})
    async with scripted(says) as server:
        events = await answer(remote(server, api), ASK, tools=(LIST,))
    assert calls_of(events) == [("list_files", {})]
