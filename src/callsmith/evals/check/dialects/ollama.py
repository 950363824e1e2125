"""Ollama's chat."""

import json
from collections.abc import Mapping
from typing import Any

from callsmith.core.types.tables import as_object, as_objects, as_text
from callsmith.evals.check.dialects.dialect import CheckedDialect, whole
from callsmith.evals.check.exchange import Answer, ReceivedCall


def _read_whole(answer: Answer) -> None:
    _add(answer, whole(answer), is_last=True)


def _read_stream(answer: Answer) -> None:
    lines = [line for line in answer.exchange.text.split("\n") if line.strip()]
    for number, line in enumerate(lines, 1):
        try:
            chunk = as_object(json.loads(line))
        except (ValueError, RecursionError):
            answer.fault("frames", f"a line is no JSON: {line[:80]}")
            continue
        _add(answer, chunk, is_last=number == len(lines))


def _add(answer: Answer, chunk: Mapping[str, Any], *, is_last: bool) -> None:
    message = as_object(chunk.get("message"))
    answer.text += as_text(message.get("content"))
    answer.thoughts += as_text(message.get("thinking"))
    for call in as_objects(message.get("tool_calls")):
        function = as_object(call.get("function"))
        if not isinstance(function.get("arguments"), dict):
            answer.fault("arguments", "the arguments of a call are no object")
        arguments = json.dumps(function.get("arguments"), ensure_ascii=False)
        answer.calls.append(ReceivedCall(as_text(function.get("name")), arguments, as_text(call.get("id"))))
    if chunk.get("done") is not is_last:
        answer.fault("finish", "done is not true in the last object alone")
    if chunk.get("done"):
        reason = str(chunk.get("done_reason") or "")
        answer.finish = "calls" if answer.calls and reason == "stop" else reason
        counts = {key: chunk[key] for key in ("prompt_eval_count", "eval_count") if isinstance(chunk.get(key), int)}
        answer.usage = counts or None


OLLAMA = CheckedDialect("ollama", "Ollama", _read_whole, _read_stream, has_seed=True)
