"""Rules for the events of `/v1/messages`."""

from collections.abc import Iterator
from typing import Any

from tests.wire.shapes.rules import USES, Stream, failed, not_objects, rule, typed_data

_DELTAS = {
    "text": {"text_delta"},
    "tool_use": {"input_json_delta"},
    "mcp_tool_use": {"input_json_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
}
_REASONS = {"end_turn", "max_tokens", "stop_sequence", "tool_use"}


@rule("anthropic")
def events_have_their_line(stream: Stream) -> Iterator[str]:
    for sent in stream:
        if not isinstance(sent.data, dict) or not sent.event or sent.event != sent.data.get("type"):
            yield f"{sent.event!r}, which clients ignore silently: {sent.data}"


@rule("anthropic")
def it_begins_with_an_empty_message(stream: Stream) -> Iterator[str]:
    types = [kind for kind, _ in typed_data(stream) if kind != "ping"]
    if types[:1] != ["message_start"] or types.count("message_start") != 1:
        yield f"{types[:2]}"
    for kind, data in typed_data(stream):
        if kind == "message_start" and (data["message"].get("content") != [] or data["message"].get("role") != "assistant"):
            yield f"{data['message']}"


@rule("anthropic")
def the_start_has_usage(stream: Stream) -> Iterator[str]:
    for kind, data in typed_data(stream):
        usage = data["message"].get("usage") or {} if kind == "message_start" else {"input_tokens": 0, "output_tokens": 0}
        if not (isinstance(usage.get("input_tokens"), int) and isinstance(usage.get("output_tokens"), int)):
            yield f"{usage}"


@rule("anthropic")
def blocks_are_numbered_without_gaps(stream: Stream) -> Iterator[str]:
    indexes = [data.get("index") for kind, data in typed_data(stream) if kind == "content_block_start"]
    if indexes != list(range(len(indexes))):
        yield f"{indexes}"


@rule("anthropic")
def one_block_is_open_at_a_time(stream: Stream) -> Iterator[str]:
    opened: Any = None
    for kind, data in typed_data(stream):
        index = data.get("index")
        if kind == "content_block_start":
            if opened is not None:
                yield f"{index} begins while {opened} is open"
            opened = index
        elif kind in ("content_block_delta", "content_block_stop"):
            if opened is None or index != opened:
                yield f"{kind} of {index} while {opened} is open"
            opened = None if kind == "content_block_stop" else opened
        elif kind in ("message_delta", "message_stop") and opened is not None:
            yield f"{kind} while {opened} is open"


@rule("anthropic")
def deltas_fit_their_block(stream: Stream) -> Iterator[str]:
    kinds: dict[Any, str] = {}
    for kind, data in typed_data(stream):
        if kind == "content_block_start":
            kinds[data.get("index")] = data["content_block"]["type"]
        elif kind == "content_block_delta" and data["delta"]["type"] not in _DELTAS.get(kinds.get(data.get("index"), ""), ()):
            yield f"{data['delta']['type']} in {kinds.get(data.get('index'))}"


@rule("anthropic")
def tool_blocks_begin_with_their_identity(stream: Stream) -> Iterator[str]:
    ids: set[str] = set()
    for kind, data in typed_data(stream):
        block = data.get("content_block", {})
        if kind == "content_block_start" and block.get("type") in USES:
            if not block.get("id") or block["id"] in ids or not block.get("name") or block.get("input") != {}:
                yield f"{block}"
            ids.add(block.get("id", ""))


def _begun(stream: Stream, kind: str) -> Iterator[dict[str, Any]]:
    for event_type, data in typed_data(stream):
        if event_type == "content_block_start" and data["content_block"]["type"] == kind:
            yield data["content_block"]


@rule("anthropic")
def calls_that_ran_name_their_server(stream: Stream) -> Iterator[str]:
    for block in _begun(stream, "mcp_tool_use"):
        if not isinstance(block.get("server_name"), str) or not block["server_name"]:
            yield f"{block}"


@rule("anthropic")
def results_are_whole_when_they_begin(stream: Stream) -> Iterator[str]:
    for block in _begun(stream, "mcp_tool_result"):
        texts = block.get("content")
        if not isinstance(block.get("is_error"), bool) or not isinstance(texts, list):
            yield f"{block}"
        elif not all(text.get("type") == "text" and text.get("text") for text in texts):  # sent back, an empty one is an error
            yield f"{texts}"


@rule("anthropic")
def what_ran_is_answered_once(stream: Stream) -> Iterator[str]:
    running: set[str] = set()
    for kind, data in typed_data(stream):
        block = data.get("content_block", {})
        if kind == "content_block_start" and block.get("type") == "mcp_tool_use":
            running.add(block.get("id", ""))
        elif kind == "content_block_start" and block.get("type") == "mcp_tool_result":
            if block.get("tool_use_id") not in running:
                yield f"nothing that runs: {block.get('tool_use_id')}"
            running.discard(block.get("tool_use_id", ""))
        elif running and kind == "content_block_start" and block.get("type") != "tool_use":
            yield f"{block} while {running} run"
    if running and not failed(stream):
        yield f"no result: {running}"


@rule("anthropic")
def inputs_add_up_to_an_object(stream: Stream) -> Iterator[str]:
    texts: dict[Any, str] = {}
    for kind, data in typed_data(stream):
        if kind == "content_block_delta" and data["delta"]["type"] == "input_json_delta":
            texts[data.get("index")] = texts.get(data.get("index"), "") + data["delta"].get("partial_json", "")
    yield from not_objects(texts)


@rule("anthropic")
def the_reason_comes_once_with_usage(stream: Stream) -> Iterator[str]:
    deltas = [data for kind, data in typed_data(stream) if kind == "message_delta"]
    if len(deltas) != 1 and not (failed(stream) and not deltas):
        yield f"{len(deltas)} times"
    for data in deltas:
        if data["delta"].get("stop_reason") not in _REASONS or "stop_sequence" not in data["delta"]:
            yield f"{data['delta']}"
        if not isinstance((data.get("usage") or {}).get("output_tokens"), int):
            yield "no usage"


@rule("anthropic")
def the_reason_fits_the_blocks(stream: Stream) -> Iterator[str]:
    kinds = [data["content_block"]["type"] for kind, data in typed_data(stream) if kind == "content_block_start"]
    for kind, data in typed_data(stream):
        if kind == "message_delta" and data["delta"].get("stop_reason") == "tool_use" and "tool_use" not in kinds:
            yield "tool_use, without any"


@rule("anthropic")
def it_ends_with_message_stop_or_an_error(stream: Stream) -> Iterator[str]:
    ends = [at for at, (kind, _) in enumerate(typed_data(stream)) if kind in ("message_stop", "error")]
    if ends != [len(stream) - 1]:
        yield f"ends at {ends} of {len(stream)}"
    for kind, data in typed_data(stream):
        if kind == "error" and not (data.get("error", {}).get("type") and data["error"].get("message")):
            yield f"{data}"
