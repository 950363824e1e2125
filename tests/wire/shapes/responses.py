"""Rules for the events of `/v1/responses`."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.wire.shapes.rules import Stream, is_object, rule, typed_data

_LAST = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}
_ABOUT_ITEMS = (
    "response.content_part", "response.output_text", "response.reasoning_text", "response.function_call_arguments",
    "response.mcp_call", "response.mcp_list_tools",
)  # fmt: skip
_IN_PIECES = ("message", "reasoning", "function_call", "mcp_call")  # the others are told at once
_CALLS = ("function_call", "mcp_call")


@rule("responses")
def event_lines_name_the_type(stream: Stream) -> Iterator[str]:
    for sent in stream:
        if not isinstance(sent.data, dict) or not sent.event or sent.event != sent.data.get("type"):
            yield f"{sent.event!r}: {sent.data}"


@rule("responses")
def it_begins_with_created_and_in_progress(stream: Stream) -> Iterator[str]:
    types = [kind for kind, _ in typed_data(stream)]
    if types[:2] != ["response.created", "response.in_progress"] or "response.created" in types[1:]:
        yield f"{types[:3]}"


@rule("responses")
def events_are_numbered(stream: Stream) -> Iterator[str]:
    numbers = [data.get("sequence_number") for _, data in typed_data(stream)]
    if numbers != list(range(len(numbers))):
        yield f"{numbers}"


@rule("responses")
def the_response_keeps_its_id(stream: Stream) -> Iterator[str]:
    ids = {data["response"].get("id") for _, data in typed_data(stream) if "response" in data}
    if len(ids) != 1 or None in ids:
        yield f"{ids}"


@rule("responses")
def items_are_added_in_order_each_once(stream: Stream) -> Iterator[str]:
    places = [data.get("output_index") for kind, data in typed_data(stream) if kind == "response.output_item.added"]
    if places != list(range(len(places))):
        yield f"{places}"


@rule("responses")
def nothing_is_told_of_an_item_that_is_not_open(stream: Stream) -> Iterator[str]:
    opened: dict[Any, Any] = {}
    for kind, data in typed_data(stream):
        place = data.get("output_index")
        if kind == "response.output_item.added":
            opened[place] = data["item"]["id"]
        elif kind == "response.output_item.done":
            if opened.pop(place, None) is None:
                yield f"done, but not open: {place}"
        elif kind.startswith(_ABOUT_ITEMS) and opened.get(place, "") != data.get("item_id"):
            yield f"{kind} at {place}: {data.get('item_id')} is not open"


@rule("responses")
def items_keep_their_identity(stream: Stream) -> Iterator[str]:
    known: dict[Any, tuple[Any, ...]] = {}

    def trait(item: Mapping[str, Any]) -> tuple[Any, ...]:
        return (item.get("type"), item.get("id"), item.get("call_id"), item.get("name"))

    for kind, data in typed_data(stream):
        if kind.startswith("response.output_item") and known.setdefault(data["output_index"], trait(data["item"])) != trait(
            data["item"]
        ):
            yield f"{kind}: {trait(data['item'])}"
        if kind in _LAST and [trait(item) for item in data["response"]["output"]] != list(known.values()):
            yield f"in the end: {data['response']['output']}"


@rule("responses")
def items_begin_empty(stream: Stream) -> Iterator[str]:
    for kind, data in typed_data(stream):
        if kind == "response.output_item.added":
            item = data["item"]
            empty = item.get("status") == "in_progress" and not item.get("content") and not item.get("arguments")
            if item["type"] in _IN_PIECES and not empty:
                yield f"{item}"
            if item.get("output") or item.get("error") or item.get("tools"):
                yield f"{item}"


@rule("responses")
def pieces_add_up(stream: Stream) -> Iterator[str]:
    texts: dict[Any, str] = {}
    for kind, data in typed_data(stream):
        place = data.get("output_index")
        if kind.endswith(".delta"):
            texts[place] = texts.get(place, "") + data["delta"]
        elif kind in ("response.output_text.done", "response.reasoning_text.done") and data["text"] != texts.get(place):
            yield f"{kind}: {data['text']!r}"
        elif kind.endswith("call_arguments.done") and data["arguments"] != texts.get(place, ""):
            yield f"{kind}: {data['arguments']!r}"
        elif kind == "response.output_item.done":
            item = data["item"]
            whole = item.get("arguments", "") + "".join(part["text"] for part in item.get("content", ()))
            if item["type"] in _IN_PIECES and whole != texts.get(place, ""):
                yield f"item {place}: {whole!r}"


@rule("responses")
def parts_are_added_filled_and_done(stream: Stream) -> Iterator[str]:
    steps: dict[Any, list[str]] = {}
    for kind, data in typed_data(stream):
        step = kind.rpartition(".")[2]
        if kind.startswith(("response.content_part", "response.output_text", "response.reasoning_text")):
            own = steps.setdefault(data.get("output_index"), [])
            own += [] if step == "delta" and own[-1:] == ["delta"] else [step if "_text" in kind else f"part {step}"]
    for place, item_steps in steps.items():
        if item_steps != ["part added", "delta", "done", "part done"]:
            yield f"item {place}: {item_steps}"


@rule("responses")
def arguments_are_done_before_their_item(stream: Stream) -> Iterator[str]:
    done: set[Any] = set()
    for kind, data in typed_data(stream):
        if kind.endswith("call_arguments.done"):
            done.add(data["output_index"])
        if kind == "response.output_item.done" and data["item"]["type"] in _CALLS and data["output_index"] not in done:
            yield f"item {data['output_index']}"


@rule("responses")
def completed_calls_have_an_object(stream: Stream) -> Iterator[str]:
    for kind, data in typed_data(stream):
        item = data.get("item", {})
        complete = item.get("type") in _CALLS and item.get("status") == "completed"
        if kind == "response.output_item.done" and complete and not is_object(item["arguments"]):
            yield f"{item}"


@rule("responses")
def it_ends_once_with_everything_done(stream: Stream) -> Iterator[str]:
    types = [kind for kind, _ in typed_data(stream)]
    ends = [at for at, kind in enumerate(types) if kind in _LAST]
    if ends != [len(stream) - 1]:
        yield f"ends at {ends} of {len(stream)}"
    if types.count("response.output_item.added") != types.count("response.output_item.done"):
        yield "an item is not done"


@rule("responses")
def the_end_says_how_and_what(stream: Stream) -> Iterator[str]:
    items = [data["item"] for kind, data in typed_data(stream) if kind == "response.output_item.done"]
    for kind, data in typed_data(stream):
        if kind in _LAST:
            response = data["response"]
            if response["status"] != _LAST[kind] and response["status"] != "cancelled":
                yield f"{kind} with status {response['status']}"
            if response["output"] != items:
                yield "the output is not what was told"
            if kind != "response.failed" and not response.get("usage"):
                yield "no usage"
            if kind == "response.failed" and not (response.get("error") or {}).get("message"):
                yield "no error"


_WAYS = {
    "mcp_call": (["in_progress", "delta", "done", "completed"], ["in_progress", "delta", "done", "failed"]),
    "mcp_list_tools": (["in_progress", "completed"], ["in_progress", "failed"]),
}


@rule("responses")
def mcp_items_go_their_way(stream: Stream) -> Iterator[str]:
    """In progress, the arguments, and how it ended: clients show it step by step."""
    steps: dict[Any, list[str]] = {}
    for kind, data in typed_data(stream):
        place, step = data.get("output_index"), kind.rpartition(".")[2]
        if kind.startswith(("response.mcp_call", "response.mcp_list_tools")):
            own = steps.setdefault(place, [])
            own += [] if step == "delta" and own[-1:] == ["delta"] else [step]
        item = data.get("item", {})
        if kind == "response.output_item.done" and item["type"] in _WAYS and item.get("status") != "incomplete":
            item_steps = steps.get(place, [])
            if item_steps not in _WAYS[item["type"]] or item.get("status", item_steps[-1]) != item_steps[-1]:
                yield f"item {place}, {item.get('status')}: {item_steps}"


def _mcp_items(stream: Stream, kind: str) -> Iterator[dict[str, Any]]:
    for event_type, data in typed_data(stream):
        if event_type == "response.output_item.done" and data["item"]["type"] == kind:
            yield data["item"]


@rule("responses")
def mcp_items_name_their_server(stream: Stream) -> Iterator[str]:
    for kind in ("mcp_list_tools", "mcp_call", "mcp_approval_request"):
        for item in _mcp_items(stream, kind):
            if not item.get("server_label") or not (kind == "mcp_list_tools" or item.get("name")):
                yield f"{item}"


@rule("responses")
def mcp_calls_end_with_an_output_or_an_error(stream: Stream) -> Iterator[str]:
    for item in _mcp_items(stream, "mcp_call"):
        error = item.get("error")
        if item["status"] == "completed" and (not isinstance(item.get("output"), str) or error is not None):
            yield f"completed: {item}"
        if item["status"] == "failed" and (item.get("output") is not None or not (isinstance(error, dict) and error.get("type"))):
            yield f"failed: {item}"


@rule("responses")
def lists_of_tools_say_how_they_are_called(stream: Stream) -> Iterator[str]:
    for item in _mcp_items(stream, "mcp_list_tools"):
        for tool in item["tools"]:
            if not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), dict):
                yield f"{tool}"


@rule("responses")
def approvals_are_asked_for_whole(stream: Stream) -> Iterator[str]:
    """Their id, and arguments that are an object: the client sends back the one, and shows the other to a person."""
    ids: set[str] = set()
    for item in _mcp_items(stream, "mcp_approval_request"):
        if not item.get("id") or item["id"] in ids or not is_object(item.get("arguments")) or "status" in item:
            yield f"{item}"
        ids.add(item.get("id", ""))
