"""Chat Completions."""

from collections.abc import Mapping
from typing import Any

from callsmith.core.types.tables import as_object, as_objects, as_text
from callsmith.evals.check.dialects.dialect import CheckedDialect, json_frames, sse_frames, whole
from callsmith.evals.check.exchange import Answer, ReceivedCall
from callsmith.wire.sse import DONE

_FINISHES = {"tool_calls": "calls", "function_call": "calls"}


def _read_whole(answer: Answer) -> None:
    body = whole(answer)
    choices = as_objects(body.get("choices"))
    if len(choices) != 1:
        answer.fault("frames", f"one choice was asked for, and there are {len(choices)}")
        return
    message = as_object(choices[0].get("message"))
    if message.get("role") != "assistant":
        answer.fault("frames", f"the role of the message is {message.get('role')!r}")
    answer.text, answer.thoughts = as_text(message.get("content")), _thoughts(message)
    for call in as_objects(message.get("tool_calls")):
        _check_kind(answer, call)
        function = as_object(call.get("function"))
        if not isinstance(function.get("arguments"), str):
            answer.fault("arguments", "the arguments of a call are not a string of JSON")
        name, text = as_text(function.get("name")), as_text(function.get("arguments"))
        answer.calls.append(ReceivedCall(name, text, as_text(call.get("id"))))
    _check_ids(answer)
    _finish(answer, choices[0].get("finish_reason"))
    answer.usage = body.get("usage") if isinstance(body.get("usage"), dict) else None


def _read_stream(answer: Answer) -> None:
    frames = sse_frames(answer)
    if not frames or frames[-1].data.strip() != DONE:
        answer.fault("frames", f"the stream does not end with data: {DONE}")
    calls: dict[int, ReceivedCall] = {}
    ids = set[str]()
    for _, chunk in json_frames(answer, [frame for frame in frames if frame.data.strip() != DONE]):
        if "error" in chunk:
            answer.fault("frames", f"the stream has an error in it: {str(chunk['error'])[:200]}")
            continue
        ids.add(as_text(chunk.get("id")))
        if isinstance(chunk.get("usage"), dict):
            answer.usage = chunk["usage"]
        for choice in as_objects(chunk.get("choices")):
            delta = as_object(choice.get("delta"))
            has_content = bool(delta.get("content") or delta.get("tool_calls") or _thoughts(delta))
            if answer.finish and (has_content or choice.get("finish_reason")):
                answer.fault("finish", "something comes behind the finish_reason")
            answer.text += as_text(delta.get("content"))
            answer.thoughts += _thoughts(delta)
            for piece in as_objects(delta.get("tool_calls")):
                _add_piece(answer, calls, piece)
            if choice.get("finish_reason"):
                _finish(answer, choice["finish_reason"])
    if len(ids) > 1:
        answer.fault("ids", f"the chunks of one answer have {len(ids)} ids")
    answer.calls = [calls[index] for index in sorted(calls)]
    _check_ids(answer)
    if not answer.finish:
        answer.fault("finish", "there is no finish_reason")


def _add_piece(answer: Answer, calls: dict[int, ReceivedCall], piece: Mapping[str, Any]) -> None:
    """Add a delta of a call, as an SDK does it: by its index."""
    index, function = piece.get("index"), as_object(piece.get("function"))
    if not isinstance(index, int):
        answer.fault("indices", "a delta of a call has no index")
        index = len(calls) if piece.get("id") else max(calls, default=0)
    call = calls.get(index)
    if call is None:
        if index != len(calls):
            answer.fault("indices", f"call number {len(calls)} has the index {index}")
        call = calls[index] = ReceivedCall()
        _check_kind(answer, piece)
        if not piece.get("id") or not function.get("name"):
            answer.fault("order", "the first delta of a call lacks its id or its name")
    elif index != max(calls):
        answer.fault("order", "deltas of one call come after another has begun")
    if piece.get("id") and call.id and piece["id"] != call.id:
        answer.fault("ids", "one call has two ids")
    if function.get("name") and call.name:
        answer.fault("order", "the name of a call comes twice: clients add the pieces up")
    call.id = call.id or as_text(piece.get("id"))
    call.name += as_text(function.get("name"))
    call.text += as_text(function.get("arguments"))


def _check_kind(answer: Answer, call: Mapping[str, Any]) -> None:
    if call.get("type") != "function":
        answer.fault("order", f'the type of a call is {call.get("type")!r}, not "function"')


def _check_ids(answer: Answer) -> None:
    ids = [call.id for call in answer.calls]
    if not all(ids):
        answer.fault("ids", "a call has no id")
    elif len(set(ids)) != len(ids):
        answer.fault("ids", "two calls have the same id")


def _finish(answer: Answer, reason: object) -> None:
    answer.finish = _FINISHES.get(str(reason), str(reason or ""))
    if answer.finish not in ("stop", "length", "calls", "content_filter"):
        answer.fault("finish", f"the finish_reason is {reason!r}")


def _thoughts(message: Mapping[str, Any]) -> str:
    return as_text(message.get("reasoning_content")) or as_text(message.get("reasoning"))


CHAT = CheckedDialect("chat", "Chat Completions", _read_whole, _read_stream, has_seed=True)
