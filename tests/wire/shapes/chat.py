"""Rules for the chunks of chat completions."""

from collections.abc import Iterator
from typing import Any

from tests.wire.shapes.rules import DONE, Stream, failed, not_objects, rule


def _chunks(stream: Stream) -> list[dict[str, Any]]:
    return [sent.data for sent in stream if isinstance(sent.data, dict) and "error" not in sent.data]


def _choices(stream: Stream) -> list[dict[str, Any]]:
    return [choice for chunk in _chunks(stream) for choice in chunk.get("choices", ())]


def _tool_deltas(stream: Stream) -> list[dict[str, Any]]:
    return [delta for choice in _choices(stream) for delta in choice["delta"].get("tool_calls", ())]


def _finish(stream: Stream) -> str | None:
    return next((choice["finish_reason"] for choice in _choices(stream) if choice.get("finish_reason")), None)


@rule("chat")
def chunks_say_what_they_are(stream: Stream) -> Iterator[str]:
    for chunk in _chunks(stream):
        if chunk.get("object") != "chat.completion.chunk":
            yield f"object is {chunk.get('object')!r}: clients drop such a chunk silently"


@rule("chat")
def all_chunks_are_of_one_completion(stream: Stream) -> Iterator[str]:
    for key in ("id", "model", "created"):
        if len(values := {chunk.get(key) for chunk in _chunks(stream)}) != 1 or None in values:
            yield f"{key} is {values}"


@rule("chat")
def the_role_comes_first_and_once(stream: Stream) -> Iterator[str]:
    roles = [choice["delta"].get("role") for choice in _choices(stream)]
    if roles and (roles[0] != "assistant" or any(roles[1:])):
        yield f"roles: {roles}"


@rule("chat")
def tool_deltas_are_numbered_without_gaps(stream: Stream) -> Iterator[str]:
    following = 0
    for delta in _tool_deltas(stream):
        index = delta.get("index")
        if not isinstance(index, int):
            yield f"no index: {delta}"
        elif index > following:
            yield f"{index} comes where {following} is next"
        else:
            following = max(following, index + 1)


@rule("chat")
def a_calls_identity_comes_once_and_first(stream: Stream) -> Iterator[str]:
    known: set[Any] = set()
    for delta in _tool_deltas(stream):
        function, index = delta.get("function", {}), delta.get("index")
        if index in known:
            if "id" in delta or "name" in function or "type" in delta:
                yield f"repeated, and clients concatenate: {delta}"
        elif not (delta.get("id") and delta.get("type") == "function" and function.get("name")):
            yield f"the first of a call lacks id, type or name: {delta}"
        known.add(index)


@rule("chat")
def arguments_are_pieces_of_text(stream: Stream) -> Iterator[str]:
    for delta in _tool_deltas(stream):
        if not isinstance(delta.get("function", {}).get("arguments"), str):
            yield f"{delta}"


@rule("chat")
def calls_come_one_after_the_other(stream: Stream) -> Iterator[str]:
    order = [delta.get("index") for delta in _tool_deltas(stream)]
    if order != sorted(order, key=lambda index: index if isinstance(index, int) else -1):
        yield f"interleaved: {order}"


@rule("chat")
def ids_of_calls_are_different(stream: Stream) -> Iterator[str]:
    ids = [delta["id"] for delta in _tool_deltas(stream) if delta.get("id")]
    if len(set(ids)) != len(ids):
        yield f"{ids}"


@rule("chat")
def arguments_add_up_to_an_object(stream: Stream) -> Iterator[str]:
    texts: dict[Any, str] = {}
    for delta in _tool_deltas(stream):
        texts[delta.get("index")] = texts.get(delta.get("index"), "") + str(delta.get("function", {}).get("arguments") or "")
    yield from not_objects(texts)


@rule("chat")
def the_finish_comes_once_and_last(stream: Stream) -> Iterator[str]:
    reasons = [choice.get("finish_reason") for choice in _choices(stream)]
    if any(reasons[:-1]) or (not failed(stream) and not (reasons and reasons[-1])):
        yield f"finish reasons: {reasons}"
    if reasons and reasons[-1] and _choices(stream)[-1]["delta"]:
        yield f"the last delta says something: {_choices(stream)[-1]['delta']}"


@rule("chat")
def the_finish_fits_what_was_said(stream: Stream) -> Iterator[str]:
    reason = _finish(stream)
    if reason not in (None, "stop", "length", "tool_calls"):
        yield f"unknown: {reason}"
    if reason == "tool_calls" and not _tool_deltas(stream):
        yield "tool_calls, without any"


@rule("chat")
def usage_comes_once_behind_the_choices(stream: Stream) -> Iterator[str]:
    for at, chunk in enumerate(_chunks(stream)):
        last = at == len(_chunks(stream)) - 1
        if chunk.get("usage") is not None and (not last or chunk["choices"] != []):
            yield f"usage in chunk {at}"
        if not chunk.get("choices") and chunk.get("usage") is None:
            yield f"chunk {at} has neither choices nor usage"


@rule("chat")
def it_ends_with_done_or_an_error(stream: Stream) -> Iterator[str]:
    ends = [at for at, sent in enumerate(stream) if sent.data == DONE or "error" in sent.data]
    if ends != [len(stream) - 1]:
        yield f"ends at {ends} of {len(stream)}"


@rule("chat")
def there_are_no_event_names(stream: Stream) -> Iterator[str]:
    yield from (f"event: {sent.event}" for sent in stream if sent.event)
