"""Thoughts that are signed come back to their author as they were; others are not sent where they would be refused."""

import json
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from anthropic.types import MessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from callsmith.core.capability.origin import Origin
from callsmith.core.events import ModelEvent
from callsmith.core.values import Choice, Message, Request
from callsmith.models.remote.model import RemoteModel
from tests.models.remote.scripted import ASK, answer, call_delta, chat, made_calls, remote, sse, thoughts_of
from tests.scripted_server import http, scripted

THINKING = {"type": "thinking", "thinking": "Bonn it is.", "signature": "EqQBCgIYAhIM"}
HIDDEN = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3"}
USE = {"type": "tool_use", "id": "toolu_01", "name": "weather", "input": {"city": "Bonn"}}
SAID = {"type": "text", "text": "One moment."}


def message(*content: Any, reason: str = "tool_use") -> bytes:
    """A message of Anthropic's, streamed as its API does."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "c", "content": [], "stop_reason": None}
    sent: list[Any] = [{"type": "message_start", "message": {**head, "usage": {"input_tokens": 9, "output_tokens": 1}}}]
    for index, block in enumerate(content):
        sent += _block(index, block)
    sent.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 7}})
    return sse(*sent, {"type": "message_stop"}, done=False)


def _block(index: int, block: dict[str, Any]) -> list[Any]:
    deltas: list[Any] = []
    begun = dict(block)
    if block["type"] == "thinking":
        begun |= {"thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in (block["thinking"][:4], block["thinking"][4:])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] == "text":
        begun, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    elif block["type"] == "tool_use":
        text = json.dumps(block["input"])
        begun["input"] = {}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", text[:5], text[5:])]
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


async def ask(model: RemoteModel, request: Request) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


def after(events: list[ModelEvent], request: Request) -> Request:
    """The request with the answer and the results, as any client sends it: the signatures are gone."""
    calls = made_calls(events)
    results = [Message("tool", "sunny", call_id=call.id, name=call.name) for call in calls]
    turn = Message.assistant("One moment.", reasoning=thoughts_of(events), calls=calls)
    return Request((*request.messages, turn, *results), request.tools, thinking=request.thinking)


THOUGHTFUL = Request(ASK.messages, ASK.tools, thinking=True)


async def test_signed_blocks_of_anthropic_come_back_as_they_were() -> None:
    blocks = (THINKING, HIDDEN, SAID, USE)
    async with scripted(message(*blocks), message(SAID, reason="end_turn")) as server:
        model = remote(server, "anthropic", provider="anthropic")
        first = await ask(model, THOUGHTFUL)
        await answer(model, after(first, THOUGHTFUL))
    assert thoughts_of(first) == "Bonn it is."
    again = server.asked[1]
    assert again["messages"][1] == {"role": "assistant", "content": list(blocks)}
    assert again["messages"][2]["content"][0]["tool_use_id"] == "toolu_01"
    assert again["thinking"] == {"type": "adaptive"}
    TypeAdapter(list[MessageParam]).validate_python(again["messages"])


async def test_where_the_signature_is_lost_the_round_goes_on_without_thoughts() -> None:
    async with scripted(message(THINKING, USE), message(SAID, reason="end_turn")) as server:
        first = await answer(remote(server, "anthropic", provider="anthropic"), THOUGHTFUL)
        await answer(remote(server, "anthropic", provider="anthropic"), after(first, THOUGHTFUL))  # another process
    again = server.asked[1]
    assert [block["type"] for block in again["messages"][1]["content"]] == ["text", "tool_use"]
    assert again["thinking"] == {"type": "disabled"}


async def test_a_required_call_and_thoughts_do_not_go_together_at_anthropic() -> None:
    async with scripted(message(USE)) as server:
        events = await answer(remote(server, "anthropic", provider="anthropic"), THOUGHTFUL, choice=Choice("required"))
    assert server.asked[0]["thinking"] == {"type": "disabled"}
    assert server.asked[0]["tool_choice"] == {"type": "any"}
    assert "reasoning: this API does not reason where a call is required" in events[-1].report.notices  # type: ignore[union-attr]


async def test_signatures_are_kept_by_whose_they_are() -> None:
    async with scripted(message(THINKING, USE), message(SAID, reason="end_turn")) as server:
        model = remote(server, "anthropic", provider="anthropic")
        first = await ask(model, THOUGHTFUL)
        theirs = after(first, THOUGHTFUL)
        await answer(model, Request(theirs.messages, theirs.tools, thinking=True, origin=Origin(cache_salt="somebody else")))
    assert "thinking" not in json.dumps(server.asked[1]["messages"])


REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Bonn."}],
    "encrypted_content": "gAAA",
}
FUNCTION = {"type": "function_call", "id": "fc_1", "call_id": "call_9", "name": "weather", "arguments": '{"city": "Bonn"}'}


def response(*items: Any) -> bytes:
    """A response of OpenAI's, whole: what counts here is what comes back of it."""
    body = {"id": "resp_1", "object": "response", "status": "completed", "output": list(items), "error": None}
    return http(json.dumps({**body, "usage": {"input_tokens": 5, "output_tokens": 3}}).encode())


async def test_encrypted_reasoning_of_openai_comes_back_before_its_call() -> None:
    done = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
    async with scripted(response(REASONING, FUNCTION), response(done)) as server:
        model = remote(server, "responses", provider="openai")
        first = await ask(model, THOUGHTFUL)
        await answer(model, after(first, THOUGHTFUL))
    assert thoughts_of(first) == "Bonn."
    assert server.asked[0]["include"] == ["reasoning.encrypted_content"]
    assert server.asked[0]["store"] is False
    items = server.asked[1]["input"]
    assert items[1:3] == [REASONING, FUNCTION]
    assert items[3] == {"type": "function_call_output", "call_id": "call_9", "output": "sunny"}
    TypeAdapter(list[ResponseInputItemParam]).validate_python(items)


async def test_details_of_reasoning_in_chat_completions_come_back_too() -> None:
    details = [{"type": "reasoning.text", "text": "Hm", "signature": "sig", "index": 0}]
    signed = call_delta("weather", '{"city": "Bonn"}', "call_5")
    signed["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "g1"}}
    said = chat({"reasoning": "Hm", "reasoning_details": details}, signed, finish="tool_calls")
    async with scripted(said, chat({"content": "Fine."})) as server:
        model = remote(server, provider="openrouter")
        first = await ask(model, THOUGHTFUL)
        await answer(model, after(first, THOUGHTFUL))
    turn = server.asked[1]["messages"][1]
    assert turn["reasoning_details"] == details
    assert turn["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "g1"}}
    assert server.asked[0]["reasoning"] == {"enabled": True}


@pytest.mark.parametrize(("provider", "key"), [("openai", None), ("openrouter", "reasoning"), ("vllm", "reasoning_content")])
async def test_unsigned_reasoning_goes_where_it_is_taken(provider: str, key: str | None) -> None:
    async with scripted(chat({"content": "Fine."})) as server:
        turn = Message.assistant("Hello.", reasoning="A greeting.")
        await answer(remote(server, provider=provider), Request((Message.user("Hi"), turn, Message.user("And?"))))
    sent = server.asked[0]["messages"][1]
    assert {name: value for name, value in sent.items() if name.startswith("reasoning")} == ({key: "A greeting."} if key else {})
