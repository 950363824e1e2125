"""Responses."""

from collections.abc import Mapping
from typing import Any

from callsmith.core.types.tables import as_object, as_objects, as_text
from callsmith.evals.check.dialects.dialect import CheckedDialect, json_frames, sse_frames, whole
from callsmith.evals.check.exchange import Answer, ReceivedCall
from callsmith.wire.sse import DONE


def _read_whole(answer: Answer) -> None:
    _read_response(answer, whole(answer))


def _read_response(answer: Answer, body: Mapping[str, Any]) -> None:
    if body.get("object") != "response":
        answer.fault("frames", f"the object is {body.get('object')!r}")
    for item in as_objects(body.get("output")):
        match item.get("type"):
            case "message":
                answer.text += "".join(as_text(part.get("text")) for part in as_objects(item.get("content")))
            case "reasoning":
                answer.thoughts += "".join(as_text(part.get("text")) for part in as_objects(item.get("content")))
            case "function_call":
                if not isinstance(item.get("arguments"), str):
                    answer.fault("arguments", "the arguments of a call are not a string of JSON")
                answer.calls.append(
                    ReceivedCall(as_text(item.get("name")), as_text(item.get("arguments")), as_text(item.get("call_id")))
                )
            case _:
                pass
    ids = [call.id for call in answer.calls]
    if not all(ids) or len(set(ids)) != len(ids):
        answer.fault("ids", "a call has no call_id, or one that another has too")
    status = body.get("status")
    if status == "incomplete" and as_object(body.get("incomplete_details")).get("reason") == "max_output_tokens":
        answer.finish = "length"
    elif status == "completed":
        answer.finish = "calls" if answer.calls else "stop"
    else:
        answer.finish = str(status)
        answer.fault("finish", f"the status is {status!r}")
    answer.usage = body.get("usage") if isinstance(body.get("usage"), dict) else None


def _read_stream(answer: Answer) -> None:
    arguments: dict[str, str] = {}
    texts, expected, last = "", None, as_object(None)
    ends = 0
    frames = [frame for frame in sse_frames(answer) if frame.data.strip() != DONE]
    for name, event in json_frames(answer, frames):
        kind = as_text(event.get("type"))
        if name and name != kind:
            answer.fault("frames", f"the event {name} has the type {kind}")
        number = event.get("sequence_number")
        if not isinstance(number, int):
            answer.fault("indices", f"{kind} has no sequence_number")
        elif expected is not None and number != expected:
            answer.fault("indices", f"sequence_number is {number}, where {expected} was expected")
        expected = number + 1 if isinstance(number, int) else None
        if ends:
            answer.fault("finish", f"{kind} comes behind the end")
        match kind:
            case "response.output_text.delta":
                texts += as_text(event.get("delta"))
            case "response.function_call_arguments.delta":
                key = as_text(event.get("item_id"))
                arguments[key] = arguments.get(key, "") + as_text(event.get("delta"))
            case "response.function_call_arguments.done":
                if arguments.get(as_text(event.get("item_id")), "") != event.get("arguments"):
                    answer.fault("arguments", "the deltas of a call do not add up to its arguments")
            case "response.completed" | "response.incomplete" | "response.failed":
                ends, last = ends + 1, as_object(event.get("response"))
            case _:
                pass
    if ends != 1:
        answer.fault("finish", f"the stream has {ends} ends")
    _read_response(answer, last)
    if texts != answer.text:
        answer.fault("order", "the deltas do not add up to the text of the response")


RESPONSES = CheckedDialect("responses", "Responses", _read_whole, _read_stream)
