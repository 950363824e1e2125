"""What real clients hold a stream to, as small rules over the frames of a stream: `complaints("chat", frames)`.

Each rule stands for something a client is known to fail at, or to lose silently. A rule gets the whole stream and yields what is
wrong with it; where it cannot tell because something else is broken, another rule complains. Streams that fail in the middle end
with the dialect's error, and are otherwise held to the same rules.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jiter import from_json

DONE = "[DONE]"


@dataclass(slots=True)
class Sent:
    """One frame: the name of its event, where it has one, and its data, parsed."""

    event: str
    data: Any


Stream: TypeAlias = Sequence[Sent]
Rule: TypeAlias = Callable[[Stream], Iterator[str]]

RULES: dict[str, dict[str, Rule]] = {"chat": {}, "responses": {}, "anthropic": {}, "ollama": {}}


def rule(dialect: str) -> Callable[[Rule], Rule]:
    """Makes a function a rule of this dialect."""

    def kept(check: Rule) -> Rule:
        RULES[dialect][check.__name__] = check
        return check

    return kept


def complaints(dialect: str, stream: Stream) -> dict[str, list[str]]:
    """What is wrong, by rule."""
    found = {name: list(check(stream)) for name, check in RULES[dialect].items()}
    return {name: wrong for name, wrong in found.items() if wrong}


def parse_events(raw: bytes) -> list[Sent]:
    """Server-sent events, read strictly: one data line each, no half frames."""
    assert raw.endswith(b"\n\n"), "the last frame is not complete"
    sent: list[Sent] = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        fields = [line.partition(": ") for line in lines]
        assert [name for name, _, _ in fields] in ([], ["data"], ["event", "data"]), block
        if fields:
            data = fields[-1][2]
            sent.append(Sent(fields[0][2] if len(fields) == 2 else "", data if data == DONE else json.loads(data)))
    return sent


def parse_lines(raw: bytes) -> list[Sent]:
    """Lines of JSON: clients parse every line, so that none may be empty."""
    assert raw.endswith(b"\n"), "the last line is not complete"
    return [Sent("", json.loads(line)) for line in raw.decode().removesuffix("\n").split("\n")]


def _is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False


def _not_objects(texts: Mapping[Any, str]) -> Iterator[str]:
    """The arguments that are no object. The last call may be cut off: then they must be the beginning of one."""
    for at, (index, text) in enumerate(texts.items()):
        try:
            whole = isinstance(from_json(text.encode() or b"{}", partial_mode=at == len(texts) - 1), dict)
        except ValueError:
            whole = False
        if not whole:
            yield f"call {index}: {text!r}"


def _failed(stream: Stream) -> bool:
    """Whether the last frame is the dialect's error."""
    last = stream[-1].data if stream else None
    return isinstance(last, Mapping) and (last.get("error") is not None or last.get("type") == "response.failed")


def _named(stream: Stream) -> Iterator[tuple[str, dict[str, Any]]]:
    for sent in stream:
        if isinstance(sent.data, dict):
            yield sent.data.get("type", ""), sent.data


def called(dialect: str, stream: Stream) -> list[tuple[str, Any]]:
    """The calls of a stream, as a client puts them together."""
    names: list[str] = []
    texts: list[str] = []
    for kind, data in _named(stream):
        match dialect:
            case "chat":
                for delta in (one for choice in data.get("choices", ()) for one in choice["delta"].get("tool_calls", ())):
                    names += [delta["function"]["name"]] if "id" in delta else []
                    texts += [""] if "id" in delta else []
                    texts[delta["index"]] += delta["function"]["arguments"]
            case "responses" if kind == "response.output_item.done" and data["item"]["type"] == "function_call":
                names.append(data["item"]["name"])
                texts.append(data["item"]["arguments"])
            case "anthropic" if kind == "content_block_start" and data["content_block"]["type"] in _USES:
                names.append(data["content_block"]["name"])
                texts.append("")
            case "anthropic" if kind == "content_block_delta" and "partial_json" in data["delta"]:
                texts[-1] += data["delta"]["partial_json"]
            case "ollama":
                made = (data.get("message") or {}).get("tool_calls", ())
                names += [call["function"]["name"] for call in made]
                texts += [json.dumps(call["function"]["arguments"]) for call in made]
            case _:
                pass
    return [(name, json.loads(text or "{}")) for name, text in zip(names, texts, strict=True)]


# -- chat completions


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
    yield from _not_objects(texts)


@rule("chat")
def the_finish_comes_once_and_last(stream: Stream) -> Iterator[str]:
    reasons = [choice.get("finish_reason") for choice in _choices(stream)]
    if any(reasons[:-1]) or (not _failed(stream) and not (reasons and reasons[-1])):
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


# -- responses

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
    types = [kind for kind, _ in _named(stream)]
    if types[:2] != ["response.created", "response.in_progress"] or "response.created" in types[1:]:
        yield f"{types[:3]}"


@rule("responses")
def events_are_numbered(stream: Stream) -> Iterator[str]:
    numbers = [data.get("sequence_number") for _, data in _named(stream)]
    if numbers != list(range(len(numbers))):
        yield f"{numbers}"


@rule("responses")
def the_response_keeps_its_id(stream: Stream) -> Iterator[str]:
    ids = {data["response"].get("id") for _, data in _named(stream) if "response" in data}
    if len(ids) != 1 or None in ids:
        yield f"{ids}"


@rule("responses")
def items_are_added_in_order_each_once(stream: Stream) -> Iterator[str]:
    places = [data.get("output_index") for kind, data in _named(stream) if kind == "response.output_item.added"]
    if places != list(range(len(places))):
        yield f"{places}"


@rule("responses")
def nothing_is_told_of_an_item_that_is_not_open(stream: Stream) -> Iterator[str]:
    opened: dict[Any, Any] = {}
    for kind, data in _named(stream):
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

    for kind, data in _named(stream):
        if kind.startswith("response.output_item") and known.setdefault(data["output_index"], trait(data["item"])) != trait(
            data["item"]
        ):
            yield f"{kind}: {trait(data['item'])}"
        if kind in _LAST and [trait(item) for item in data["response"]["output"]] != list(known.values()):
            yield f"in the end: {data['response']['output']}"


@rule("responses")
def items_begin_empty(stream: Stream) -> Iterator[str]:
    for kind, data in _named(stream):
        if kind == "response.output_item.added":
            item = data["item"]
            empty = item.get("status") == "in_progress" and not item.get("content") and not item.get("arguments")
            if item["type"] in _IN_PIECES and not empty:
                yield f"{item}"
            if item.get("output") or item.get("error") or item.get("tools"):
                yield f"{item}"


@rule("responses")
def pieces_add_up(stream: Stream) -> Iterator[str]:
    said: dict[Any, str] = {}
    for kind, data in _named(stream):
        place = data.get("output_index")
        if kind.endswith(".delta"):
            said[place] = said.get(place, "") + data["delta"]
        elif kind in ("response.output_text.done", "response.reasoning_text.done") and data["text"] != said.get(place):
            yield f"{kind}: {data['text']!r}"
        elif kind.endswith("call_arguments.done") and data["arguments"] != said.get(place, ""):
            yield f"{kind}: {data['arguments']!r}"
        elif kind == "response.output_item.done":
            item = data["item"]
            whole = item.get("arguments", "") + "".join(part["text"] for part in item.get("content", ()))
            if item["type"] in _IN_PIECES and whole != said.get(place, ""):
                yield f"item {place}: {whole!r}"


@rule("responses")
def parts_are_added_filled_and_done(stream: Stream) -> Iterator[str]:
    steps: dict[Any, list[str]] = {}
    for kind, data in _named(stream):
        step = kind.rpartition(".")[2]
        if kind.startswith(("response.content_part", "response.output_text", "response.reasoning_text")):
            own = steps.setdefault(data.get("output_index"), [])
            own += [] if step == "delta" and own[-1:] == ["delta"] else [step if "_text" in kind else f"part {step}"]
    for place, taken in steps.items():
        if taken != ["part added", "delta", "done", "part done"]:
            yield f"item {place}: {taken}"


@rule("responses")
def arguments_are_done_before_their_item(stream: Stream) -> Iterator[str]:
    done: set[Any] = set()
    for kind, data in _named(stream):
        if kind.endswith("call_arguments.done"):
            done.add(data["output_index"])
        if kind == "response.output_item.done" and data["item"]["type"] in _CALLS and data["output_index"] not in done:
            yield f"item {data['output_index']}"


@rule("responses")
def completed_calls_have_an_object(stream: Stream) -> Iterator[str]:
    for kind, data in _named(stream):
        item = data.get("item", {})
        complete = item.get("type") in _CALLS and item.get("status") == "completed"
        if kind == "response.output_item.done" and complete and not _is_object(item["arguments"]):
            yield f"{item}"


@rule("responses")
def it_ends_once_with_everything_done(stream: Stream) -> Iterator[str]:
    types = [kind for kind, _ in _named(stream)]
    ends = [at for at, kind in enumerate(types) if kind in _LAST]
    if ends != [len(stream) - 1]:
        yield f"ends at {ends} of {len(stream)}"
    if types.count("response.output_item.added") != types.count("response.output_item.done"):
        yield "an item is not done"


@rule("responses")
def the_end_says_how_and_what(stream: Stream) -> Iterator[str]:
    items = [data["item"] for kind, data in _named(stream) if kind == "response.output_item.done"]
    for kind, data in _named(stream):
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
    for kind, data in _named(stream):
        place, step = data.get("output_index"), kind.rpartition(".")[2]
        if kind.startswith(("response.mcp_call", "response.mcp_list_tools")):
            own = steps.setdefault(place, [])
            own += [] if step == "delta" and own[-1:] == ["delta"] else [step]
        item = data.get("item", {})
        if kind == "response.output_item.done" and item["type"] in _WAYS and item.get("status") != "incomplete":
            taken = steps.get(place, [])
            if taken not in _WAYS[item["type"]] or item.get("status", taken[-1]) != taken[-1]:
                yield f"item {place}, {item.get('status')}: {taken}"


def _mcp_items(stream: Stream, kind: str) -> Iterator[dict[str, Any]]:
    for named, data in _named(stream):
        if named == "response.output_item.done" and data["item"]["type"] == kind:
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
        for one in item["tools"]:
            if not isinstance(one.get("name"), str) or not isinstance(one.get("input_schema"), dict):
                yield f"{one}"


@rule("responses")
def approvals_are_asked_for_whole(stream: Stream) -> Iterator[str]:
    """Their id, and arguments that are an object: the client sends back the one, and shows the other to a person."""
    ids: set[str] = set()
    for item in _mcp_items(stream, "mcp_approval_request"):
        if not item.get("id") or item["id"] in ids or not _is_object(item.get("arguments")) or "status" in item:
            yield f"{item}"
        ids.add(item.get("id", ""))


# -- messages

_USES = ("tool_use", "mcp_tool_use")  # what a client runs, and what ran on a server
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
    types = [kind for kind, _ in _named(stream) if kind != "ping"]
    if types[:1] != ["message_start"] or types.count("message_start") != 1:
        yield f"{types[:2]}"
    for kind, data in _named(stream):
        if kind == "message_start" and (data["message"].get("content") != [] or data["message"].get("role") != "assistant"):
            yield f"{data['message']}"


@rule("anthropic")
def the_start_has_usage(stream: Stream) -> Iterator[str]:
    for kind, data in _named(stream):
        usage = data["message"].get("usage") or {} if kind == "message_start" else {"input_tokens": 0, "output_tokens": 0}
        if not (isinstance(usage.get("input_tokens"), int) and isinstance(usage.get("output_tokens"), int)):
            yield f"{usage}"


@rule("anthropic")
def blocks_are_numbered_without_gaps(stream: Stream) -> Iterator[str]:
    indexes = [data.get("index") for kind, data in _named(stream) if kind == "content_block_start"]
    if indexes != list(range(len(indexes))):
        yield f"{indexes}"


@rule("anthropic")
def one_block_is_open_at_a_time(stream: Stream) -> Iterator[str]:
    opened: Any = None
    for kind, data in _named(stream):
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
    for kind, data in _named(stream):
        if kind == "content_block_start":
            kinds[data.get("index")] = data["content_block"]["type"]
        elif kind == "content_block_delta" and data["delta"]["type"] not in _DELTAS.get(kinds.get(data.get("index"), ""), ()):
            yield f"{data['delta']['type']} in {kinds.get(data.get('index'))}"


@rule("anthropic")
def tool_blocks_begin_with_their_identity(stream: Stream) -> Iterator[str]:
    ids: set[str] = set()
    for kind, data in _named(stream):
        block = data.get("content_block", {})
        if kind == "content_block_start" and block.get("type") in _USES:
            if not block.get("id") or block["id"] in ids or not block.get("name") or block.get("input") != {}:
                yield f"{block}"
            ids.add(block.get("id", ""))


def _begun(stream: Stream, kind: str) -> Iterator[dict[str, Any]]:
    for named, data in _named(stream):
        if named == "content_block_start" and data["content_block"]["type"] == kind:
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
        elif not all(one.get("type") == "text" and one.get("text") for one in texts):  # sent back, an empty one is an error
            yield f"{texts}"


@rule("anthropic")
def what_ran_is_answered_once(stream: Stream) -> Iterator[str]:
    running: set[str] = set()
    for kind, data in _named(stream):
        block = data.get("content_block", {})
        if kind == "content_block_start" and block.get("type") == "mcp_tool_use":
            running.add(block.get("id", ""))
        elif kind == "content_block_start" and block.get("type") == "mcp_tool_result":
            if block.get("tool_use_id") not in running:
                yield f"nothing that runs: {block.get('tool_use_id')}"
            running.discard(block.get("tool_use_id", ""))
        elif running and kind == "content_block_start" and block.get("type") != "tool_use":
            yield f"{block} while {running} run"
    if running and not _failed(stream):
        yield f"no result: {running}"


@rule("anthropic")
def inputs_add_up_to_an_object(stream: Stream) -> Iterator[str]:
    texts: dict[Any, str] = {}
    for kind, data in _named(stream):
        if kind == "content_block_delta" and data["delta"]["type"] == "input_json_delta":
            texts[data.get("index")] = texts.get(data.get("index"), "") + data["delta"].get("partial_json", "")
    yield from _not_objects(texts)


@rule("anthropic")
def the_reason_comes_once_with_usage(stream: Stream) -> Iterator[str]:
    deltas = [data for kind, data in _named(stream) if kind == "message_delta"]
    if len(deltas) != 1 and not (_failed(stream) and not deltas):
        yield f"{len(deltas)} times"
    for data in deltas:
        if data["delta"].get("stop_reason") not in _REASONS or "stop_sequence" not in data["delta"]:
            yield f"{data['delta']}"
        if not isinstance((data.get("usage") or {}).get("output_tokens"), int):
            yield "no usage"


@rule("anthropic")
def the_reason_fits_the_blocks(stream: Stream) -> Iterator[str]:
    kinds = [data["content_block"]["type"] for kind, data in _named(stream) if kind == "content_block_start"]
    for kind, data in _named(stream):
        if kind == "message_delta" and data["delta"].get("stop_reason") == "tool_use" and "tool_use" not in kinds:
            yield "tool_use, without any"


@rule("anthropic")
def it_ends_with_message_stop_or_an_error(stream: Stream) -> Iterator[str]:
    ends = [at for at, (kind, _) in enumerate(_named(stream)) if kind in ("message_stop", "error")]
    if ends != [len(stream) - 1]:
        yield f"ends at {ends} of {len(stream)}"
    for kind, data in _named(stream):
        if kind == "error" and not (data.get("error", {}).get("type") and data["error"].get("message")):
            yield f"{data}"


# -- Ollama

_COUNTS = ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration")


@rule("ollama")
def every_line_is_of_one_answer(stream: Stream) -> Iterator[str]:
    for key in ("model", "created_at"):
        if len(values := {data.get(key) for _, data in _named(stream) if "error" not in data}) > 1 or None in values:
            yield f"{key} is {values}"


@rule("ollama")
def every_line_has_a_message(stream: Stream) -> Iterator[str]:
    for _, data in _named(stream):
        message = data.get("message") or {}
        if "error" not in data and (message.get("role") != "assistant" or not isinstance(message.get("content"), str)):
            yield f"{data}"


@rule("ollama")
def only_the_last_line_is_done(stream: Stream) -> Iterator[str]:
    done = [data.get("done") for _, data in _named(stream) if "error" not in data]
    if any(one is not False for one in done[:-1]) or (not _failed(stream) and done[-1:] != [True]):
        yield f"{done}"


@rule("ollama")
def the_end_has_a_reason_and_counts(stream: Stream) -> Iterator[str]:
    for _, data in _named(stream):
        if data.get("done"):
            if data.get("done_reason") not in ("stop", "length", "load"):
                yield f"{data.get('done_reason')}"
            yield from (f"{key}: {data.get(key)}" for key in _COUNTS if not isinstance(data.get(key), int) or data[key] < 0)


@rule("ollama")
def arguments_are_objects(stream: Stream) -> Iterator[str]:
    calls = [call for _, data in _named(stream) for call in (data.get("message") or {}).get("tool_calls", ())]
    for at, call in enumerate(calls):
        function = call.get("function", {})
        if not function.get("name") or not isinstance(function.get("arguments"), dict) or function.get("index") != at:
            yield f"{call}"


@rule("ollama")
def an_error_is_a_text_and_the_last_line(stream: Stream) -> Iterator[str]:
    for at, (_, data) in enumerate(_named(stream)):
        if "error" in data and (at != len(stream) - 1 or not isinstance(data["error"], str) or not data["error"]):
            yield f"line {at}: {data}"
