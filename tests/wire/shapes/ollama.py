"""Rules for the lines of `/api/chat`."""

from collections.abc import Iterator

from tests.wire.shapes.rules import Stream, failed, rule, typed_data

_COUNTS = ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration")


@rule("ollama")
def every_line_is_of_one_answer(stream: Stream) -> Iterator[str]:
    for key in ("model", "created_at"):
        if len(values := {data.get(key) for _, data in typed_data(stream) if "error" not in data}) > 1 or None in values:
            yield f"{key} is {values}"


@rule("ollama")
def every_line_has_a_message(stream: Stream) -> Iterator[str]:
    for _, data in typed_data(stream):
        message = data.get("message") or {}
        if "error" not in data and (message.get("role") != "assistant" or not isinstance(message.get("content"), str)):
            yield f"{data}"


@rule("ollama")
def only_the_last_line_is_done(stream: Stream) -> Iterator[str]:
    done = [data.get("done") for _, data in typed_data(stream) if "error" not in data]
    if any(item is not False for item in done[:-1]) or (not failed(stream) and done[-1:] != [True]):
        yield f"{done}"


@rule("ollama")
def the_end_has_a_reason_and_counts(stream: Stream) -> Iterator[str]:
    for _, data in typed_data(stream):
        if data.get("done"):
            if data.get("done_reason") not in ("stop", "length", "load"):
                yield f"{data.get('done_reason')}"
            yield from (f"{key}: {data.get(key)}" for key in _COUNTS if not isinstance(data.get(key), int) or data[key] < 0)


@rule("ollama")
def arguments_are_objects(stream: Stream) -> Iterator[str]:
    calls = [call for _, data in typed_data(stream) for call in (data.get("message") or {}).get("tool_calls", ())]
    for at, call in enumerate(calls):
        function = call.get("function", {})
        if not function.get("name") or not isinstance(function.get("arguments"), dict) or function.get("index") != at:
            yield f"{call}"


@rule("ollama")
def an_error_is_a_text_and_the_last_line(stream: Stream) -> Iterator[str]:
    for at, (_, data) in enumerate(typed_data(stream)):
        if "error" in data and (at != len(stream) - 1 or not isinstance(data["error"], str) or not data["error"]):
            yield f"line {at}: {data}"
