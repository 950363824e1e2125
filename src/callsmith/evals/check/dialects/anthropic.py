"""Anthropic's Messages."""

import json
from collections.abc import Mapping
from typing import Any

from callsmith.core.types.tables import as_object, as_objects, as_text
from callsmith.evals.check.dialects.dialect import CheckedDialect, json_frames, sse_frames, whole
from callsmith.evals.check.exchange import Answer, ReceivedCall

_FINISHES = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "calls"}


def _read_whole(answer: Answer) -> None:
    body = whole(answer)
    if body.get("type") != "message" or body.get("role") != "assistant":
        answer.fault("frames", "the answer is no message of the assistant")
    for block in as_objects(body.get("content")):
        match block.get("type"):
            case "text":
                answer.text += as_text(block.get("text"))
            case "thinking":
                answer.thoughts += as_text(block.get("thinking"))
            case "tool_use":
                if not isinstance(block.get("input"), dict):
                    answer.fault("arguments", "the input of a call is no object")
                arguments = json.dumps(block.get("input"), ensure_ascii=False)
                answer.calls.append(ReceivedCall(as_text(block.get("name")), arguments, as_text(block.get("id"))))
            case _:
                pass
    _end(answer, body.get("stop_reason"))
    answer.usage = body.get("usage") if isinstance(body.get("usage"), dict) else None


def _read_stream(answer: Answer) -> None:
    blocks: dict[int, ReceivedCall | None] = {}
    open_block: int | None = None
    seen = list[str]()
    reason: object = None
    for name, event in json_frames(answer, sse_frames(answer)):
        kind = as_text(event.get("type"))
        if name != kind:
            answer.fault("frames", f"the event {name!r} has the type {kind!r}")
        if kind == "ping":
            continue
        if not seen and kind != "message_start":
            answer.fault("order", f"the stream begins with {kind}")
        if "message_stop" in seen:
            answer.fault("finish", f"{kind} comes behind message_stop")
        seen.append(kind)
        match kind:
            case "content_block_start":
                if open_block is not None or event.get("index") != len(blocks):
                    answer.fault("indices", "the blocks are not numbered in their order, one at a time")
                open_block = len(blocks)
                blocks[open_block] = _begin(answer, as_object(event.get("content_block")))
            case "content_block_delta":
                if event.get("index") != open_block:
                    answer.fault("indices", "a delta belongs to no open block")
                _add(answer, blocks.get(open_block if open_block is not None else -1), as_object(event.get("delta")))
            case "content_block_stop":
                open_block = None
            case "message_delta":
                reason = as_object(event.get("delta")).get("stop_reason") or reason
                answer.usage = event.get("usage") if isinstance(event.get("usage"), dict) else answer.usage
            case _:
                pass
    if seen.count("message_stop") != 1 or seen.count("message_start") != 1:
        answer.fault("finish", "there is not one message_start and one message_stop")
    answer.calls = [call for call in blocks.values() if call is not None]
    for call in answer.calls:
        call.text = call.text or "{}"
    _end(answer, reason)


def _begin(answer: Answer, block: Mapping[str, Any]) -> ReceivedCall | None:
    if block.get("type") != "tool_use":
        answer.text += as_text(block.get("text"))
        return None
    if block.get("input") not in ({}, None):
        answer.fault("order", "a call begins with its input, which its deltas repeat")
    return ReceivedCall(as_text(block.get("name")), "", as_text(block.get("id")))


def _add(answer: Answer, call: ReceivedCall | None, delta: Mapping[str, Any]) -> None:
    answer.text += as_text(delta.get("text"))
    answer.thoughts += as_text(delta.get("thinking"))
    if piece := as_text(delta.get("partial_json")):
        if call is None:
            answer.fault("order", "JSON comes for a block that is no call")
        else:
            call.text += piece


def _end(answer: Answer, reason: object) -> None:
    ids = [call.id for call in answer.calls]
    if not all(ids) or len(set(ids)) != len(ids):
        answer.fault("ids", "a call has no id, or one that another has too")
    answer.finish = _FINISHES.get(str(reason), str(reason or ""))
    if answer.finish not in ("stop", "length", "calls"):
        answer.fault("finish", f"the stop_reason is {reason!r}")


ANTHROPIC = CheckedDialect("anthropic", "Anthropic Messages", _read_whole, _read_stream)
