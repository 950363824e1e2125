"""Good streams are broken on purpose: every rule of `shapes` is seen to complain."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import formats
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from tests.wire.shapes import DONE, RULES, Sent, complaints, parse_events, parse_lines
from tests.wire.streams import DIALECTS, TEMPLATE, Breaking, running, stream_of, with_mcp


async def good(dialect: str, *, broken: bool = False) -> list[Sent]:
    """A stream with a thought, a text and two calls."""
    format = formats()["hermes"]
    calls = [Call("note", {"text": "Hello", "size": 3}), Call("now"), Call("note", {"text": "x"})]
    text = write(format, calls, text="Let me see.", thought="Hm, hm.")
    stream = await stream_of(dialect, LocalModel((Breaking if broken else Scripted)([text], chunk=5), format, TEMPLATE))
    assert complaints(dialect, stream) == {}
    return stream


def having(stream: list[Sent], wanted: Callable[[Any], Any], number: int = 0) -> Sent:
    return [sent for sent in stream if isinstance(sent.data, dict) and wanted(sent.data)][number]


def typed(stream: list[Sent], kind: str, number: int = 0) -> Sent:
    return having(stream, lambda data: data.get("type") == kind, number)


def tool_delta(stream: list[Sent], number: int) -> Any:
    chunk = having(stream, lambda data: data["choices"] and data["choices"][0]["delta"].get("tool_calls"), number)
    return chunk.data["choices"][0]["delta"]["tool_calls"][0]


def swap(stream: list[Sent], event: Sent, other: Sent) -> None:
    first, second = stream.index(event), stream.index(other)
    stream[first], stream[second] = other, event


def starts(stream: list[Sent]) -> list[Any]:
    deltas = [sent.data["choices"][0]["delta"] for sent in stream if sent.data != DONE and sent.data["choices"]]
    return [call for delta in deltas for call in delta.get("tool_calls", ()) if "id" in call]


def finish(stream: list[Sent]) -> Any:
    return having(stream, lambda data: data["choices"] and data["choices"][0]["finish_reason"]).data["choices"][0]


def interleave(stream: list[Sent]) -> None:
    """The first call's last piece behind the second call's first."""
    starting = [sent for sent in stream if sent.data != DONE and any(call in str(sent.data) for call in ("'index': 1",))]
    last = [sent for sent in stream if sent.data != DONE and "'tool_calls': [{'index': 0" in str(sent.data)][-1]
    stream.remove(last)
    stream.insert(stream.index(starting[0]) + 1, last)


def part(stream: list[Sent], kind: str, number: int = 0) -> Any:
    return typed(stream, kind, number).data


def item_done(stream: list[Sent], kind: str) -> Any:
    wanted = having(stream, lambda data: data["type"] == "response.output_item.done" and data["item"]["type"] == kind)
    return wanted.data["item"]


def tool_start(stream: list[Sent], number: int = 0) -> Any:
    return having(stream, lambda data: data.get("content_block", {}).get("type") == "tool_use", number).data["content_block"]


Broken = Callable[[list[Sent]], Any]

MUTATIONS: dict[str, list[tuple[str, Broken]]] = {
    "chat": [
        ("chunks_say_what_they_are", lambda s: s[1].data.update(object="chat.completion")),
        ("all_chunks_are_of_one_completion", lambda s: s[2].data.update(id="other")),
        ("the_role_comes_first_and_once", lambda s: s[0].data["choices"][0]["delta"].pop("role")),
        ("the_role_comes_first_and_once", lambda s: s[1].data["choices"][0]["delta"].update(role="assistant")),
        ("tool_deltas_are_numbered_without_gaps", lambda s: tool_delta(s, 1).pop("index")),
        ("tool_deltas_are_numbered_without_gaps", lambda s: [call.update(index=call["index"] + 1) for call in starts(s)]),
        ("a_calls_identity_comes_once_and_first", lambda s: tool_delta(s, 1).update(id="call_1")),
        ("a_calls_identity_comes_once_and_first", lambda s: tool_delta(s, 1)["function"].update(name="note")),
        ("a_calls_identity_comes_once_and_first", lambda s: tool_delta(s, 0).pop("id")),
        ("arguments_are_pieces_of_text", lambda s: tool_delta(s, 1)["function"].update(arguments={"text": "Hello"})),
        ("calls_come_one_after_the_other", interleave),
        ("ids_of_calls_are_different", lambda s: [call.update(id="same") for call in starts(s)]),
        ("arguments_add_up_to_an_object", lambda s: tool_delta(s, 1)["function"].update(arguments="{{")),
        ("the_finish_comes_once_and_last", lambda s: finish(s).update(finish_reason=None)),
        ("the_finish_comes_once_and_last", lambda s: s[1].data["choices"][0].update(finish_reason="stop")),
        ("the_finish_comes_once_and_last", lambda s: finish(s)["delta"].update(content="more")),
        ("the_finish_fits_what_was_said", lambda s: finish(s).update(finish_reason="done")),
        ("the_finish_fits_what_was_said", lambda s: [s.remove(item) for item in list(s) if "tool_calls': [" in str(item.data)]),
        ("usage_comes_once_behind_the_choices", lambda s: s[1].data.update(usage={"total_tokens": 1})),
        ("usage_comes_once_behind_the_choices", lambda s: s[1].data.update(choices=[])),
        ("it_ends_with_done_or_an_error", lambda s: s.pop()),
        ("it_ends_with_done_or_an_error", lambda s: s.append(Sent("", DONE))),
        ("there_are_no_event_names", lambda s: setattr(s[0], "event", "message")),
    ],
    "responses": [
        ("event_lines_name_the_type", lambda s: setattr(s[3], "event", "")),
        ("event_lines_name_the_type", lambda s: s.append(Sent("", DONE))),
        ("it_begins_with_created_and_in_progress", lambda s: s.pop(0)),
        ("events_are_numbered", lambda s: s[4].data.update(sequence_number=3)),
        ("the_response_keeps_its_id", lambda s: s[-1].data["response"].update(id="resp_other")),
        ("items_are_added_in_order_each_once", lambda s: part(s, "response.output_item.added", 1).update(output_index=0)),
        ("nothing_is_told_of_an_item_that_is_not_open",
         lambda s: swap(s, typed(s, "response.output_item.added"), typed(s, "response.content_part.added"))),
        ("nothing_is_told_of_an_item_that_is_not_open",
         lambda s: part(s, "response.function_call_arguments.delta").update(item_id="fc_other")),
        ("nothing_is_told_of_an_item_that_is_not_open",
         lambda s: s.insert(-1, copy.deepcopy(typed(s, "response.output_item.done")))),
        ("items_keep_their_identity", lambda s: item_done(s, "function_call").update(call_id="other")),
        ("items_keep_their_identity", lambda s: s[-1].data["response"]["output"][0].update(id="other")),
        ("items_begin_empty", lambda s: part(s, "response.output_item.added", 2)["item"].update(arguments="{}")),
        ("items_begin_empty", lambda s: part(s, "response.output_item.added", 2)["item"].update(status="completed")),
        ("pieces_add_up", lambda s: part(s, "response.output_text.delta").update(delta="?")),
        ("pieces_add_up", lambda s: part(s, "response.function_call_arguments.done").update(arguments="{}")),
        ("pieces_add_up", lambda s: part(s, "response.output_text.done").update(text="?")),
        ("parts_are_added_filled_and_done", lambda s: s.remove(typed(s, "response.content_part.done"))),
        ("parts_are_added_filled_and_done",
         lambda s: swap(s, typed(s, "response.output_text.done"), typed(s, "response.output_text.delta"))),
        ("arguments_are_done_before_their_item", lambda s: s.remove(typed(s, "response.function_call_arguments.done"))),
        ("completed_calls_have_an_object", lambda s: item_done(s, "function_call").update(arguments="{")),
        ("it_ends_once_with_everything_done", lambda s: s.pop()),
        ("it_ends_once_with_everything_done", lambda s: s.remove(typed(s, "response.output_item.done"))),
        ("the_end_says_how_and_what", lambda s: s[-1].data["response"].update(status="in_progress")),
        ("the_end_says_how_and_what", lambda s: s[-1].data["response"].update(output=[])),
        ("the_end_says_how_and_what", lambda s: s[-1].data["response"].update(usage=None)),
    ],
    "anthropic": [
        ("events_have_their_line", lambda s: setattr(s[2], "event", "")),
        ("it_begins_with_an_empty_message", lambda s: s.pop(0)),
        ("it_begins_with_an_empty_message", lambda s: s[0].data["message"].update(content=[{"type": "text", "text": "x"}])),
        ("the_start_has_usage", lambda s: s[0].data["message"].pop("usage")),
        ("blocks_are_numbered_without_gaps", lambda s: part(s, "content_block_start", 1).update(index=2)),
        ("one_block_is_open_at_a_time", lambda s: s.remove(typed(s, "content_block_stop"))),
        ("one_block_is_open_at_a_time", lambda s: part(s, "content_block_delta").update(index=7)),
        ("one_block_is_open_at_a_time", lambda s: swap(s, typed(s, "content_block_stop", 3), typed(s, "message_delta"))),
        ("deltas_fit_their_block", lambda s: part(s, "content_block_delta")["delta"].update(type="input_json_delta")),
        ("tool_blocks_begin_with_their_identity", lambda s: tool_start(s).pop("id")),
        ("tool_blocks_begin_with_their_identity", lambda s: tool_start(s, 1).update(id=tool_start(s)["id"])),
        ("tool_blocks_begin_with_their_identity", lambda s: tool_start(s).update(input={"text": "x"})),
        ("inputs_add_up_to_an_object",
         lambda s: having(s, lambda d: "partial_json" in d.get("delta", {})).data["delta"].update(partial_json="{{")),
        ("the_reason_comes_once_with_usage", lambda s: s.remove(typed(s, "message_delta"))),
        ("the_reason_comes_once_with_usage", lambda s: part(s, "message_delta").pop("usage")),
        ("the_reason_comes_once_with_usage", lambda s: part(s, "message_delta")["delta"].update(stop_reason="tool_calls")),
        ("the_reason_fits_the_blocks",
         lambda s: [item.data["content_block"].update(type="text") for item in s if "content_block" in item.data]),
        ("it_ends_with_message_stop_or_an_error", lambda s: s.pop()),
        ("it_ends_with_message_stop_or_an_error", lambda s: s.append(Sent("error", {"type": "error", "error": {}}))),
    ],
    "ollama": [
        ("every_line_is_of_one_answer", lambda s: s[1].data.update(model="other")),
        ("every_line_has_a_message", lambda s: s[1].data.pop("message")),
        ("every_line_has_a_message", lambda s: s[1].data["message"].update(content=None)),
        ("only_the_last_line_is_done", lambda s: s.pop()),
        ("only_the_last_line_is_done", lambda s: s[1].data.update(done=True)),
        ("the_end_has_a_reason_and_counts", lambda s: s[-1].data.pop("done_reason")),
        ("the_end_has_a_reason_and_counts", lambda s: s[-1].data.pop("eval_count")),
        ("arguments_are_objects",
         lambda s: having(s, lambda d: d["message"].get("tool_calls")).data["message"]["tool_calls"][0]["function"].update(
             arguments="{}")),
        ("an_error_is_a_text_and_the_last_line", lambda s: s.insert(1, Sent("", {"error": "no"}))),
        ("an_error_is_a_text_and_the_last_line", lambda s: s.append(Sent("", {"error": {"message": "no"}}))),
    ],
}  # fmt: skip


def far(stream: list[Sent], kind: str, number: int = 0) -> Any:
    return having(stream, lambda data: data.get("content_block", {}).get("type") == kind, number).data["content_block"]


RUNNING_MUTATIONS: list[tuple[str, Broken]] = [
    ("tool_blocks_begin_with_their_identity", lambda s: far(s, "mcp_tool_use").update(input={"path": "a"})),
    ("tool_blocks_begin_with_their_identity", lambda s: far(s, "tool_use").update(id=far(s, "mcp_tool_use")["id"])),
    ("deltas_fit_their_block",
     lambda s: s.insert(s.index(having(s, lambda d: d.get("content_block", {}).get("type") == "mcp_tool_result")) + 1,
                        Sent("", {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}}))),
    ("inputs_add_up_to_an_object",
     lambda s: having(s, lambda d: "partial_json" in d.get("delta", {})).data["delta"].update(partial_json='{"a')),
    ("calls_that_ran_name_their_server", lambda s: far(s, "mcp_tool_use").pop("server_name")),
    ("results_are_whole_when_they_begin", lambda s: far(s, "mcp_tool_result").update(is_error=None)),
    ("results_are_whole_when_they_begin", lambda s: far(s, "mcp_tool_result").update(content="Hello")),
    ("results_are_whole_when_they_begin", lambda s: far(s, "mcp_tool_result")["content"][0].update(text="")),
    ("what_ran_is_answered_once", lambda s: far(s, "mcp_tool_result").update(tool_use_id="other")),
    ("what_ran_is_answered_once", lambda s: far(s, "mcp_tool_result", 1).update(far(s, "mcp_tool_result"))),
    ("what_ran_is_answered_once", lambda s: far(s, "mcp_tool_result").update(type="text", text="")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(RUNNING_MUTATIONS)))
async def test_a_stream_in_which_tools_ran_is_complained_about_when_it_is_broken_on_purpose(number: int):
    name, broken = RUNNING_MUTATIONS[number]
    text = write(
        formats()["hermes"],
        [Call("files_read", {"path": "a"}), Call("now"), Call("note", {"text": "x"})],
        text="Let me see.",
        thought="Hm.",
    )
    stream = await running([text], 5)
    assert complaints("anthropic", stream) == {}
    broken(stream)
    assert name in complaints("anthropic", stream)


@pytest.mark.parametrize(
    ("dialect", "name", "number"),
    [(dialect, name, at) for dialect, all_of_them in MUTATIONS.items() for at, (name, _) in enumerate(all_of_them)],
)
async def test_a_stream_that_is_broken_on_purpose_is_complained_about(dialect: str, name: str, number: int):
    stream = copy.deepcopy(await good(dialect))
    MUTATIONS[dialect][number][1](stream)
    assert name in complaints(dialect, stream)


def ran(stream: list[Sent]) -> Any:
    """The item of a call that went well."""
    return having(stream, lambda data: (data.get("item") or {}).get("output") is not None).data["item"]


MCP_MUTATIONS: list[tuple[str, Broken]] = [
    ("nothing_is_told_of_an_item_that_is_not_open", lambda s: part(s, "response.mcp_call.completed").update(item_id="other")),
    ("nothing_is_told_of_an_item_that_is_not_open",
     lambda s: part(s, "response.mcp_list_tools.completed").update(output_index=9)),
    ("items_begin_empty", lambda s: part(s, "response.output_item.added")["item"].update(tools=[{}])),
    ("pieces_add_up", lambda s: part(s, "response.mcp_call_arguments.done").update(arguments="?")),
    ("arguments_are_done_before_their_item", lambda s: s.remove(typed(s, "response.mcp_call_arguments.done"))),
    ("completed_calls_have_an_object", lambda s: ran(s).update(arguments="[")),
    ("mcp_items_go_their_way", lambda s: s.remove(typed(s, "response.mcp_call.in_progress"))),
    ("mcp_items_go_their_way", lambda s: s.remove(typed(s, "response.mcp_call.failed"))),
    ("mcp_items_go_their_way",
     lambda s: swap(s, typed(s, "response.mcp_call_arguments.delta"), typed(s, "response.mcp_call.in_progress"))),
    ("mcp_items_go_their_way", lambda s: part(s, "response.mcp_call.completed").update(type="response.mcp_call.failed")),
    ("mcp_items_go_their_way", lambda s: s.remove(typed(s, "response.mcp_list_tools.completed"))),
    ("mcp_items_name_their_server", lambda s: item_done(s, "mcp_list_tools").pop("server_label")),
    ("mcp_items_name_their_server", lambda s: item_done(s, "mcp_approval_request").update(name="")),
    ("mcp_calls_end_with_an_output_or_an_error", lambda s: ran(s).update(output=None)),
    ("mcp_calls_end_with_an_output_or_an_error", lambda s: ran(s).update(status="failed")),
    ("lists_of_tools_say_how_they_are_called", lambda s: item_done(s, "mcp_list_tools")["tools"][0].pop("input_schema")),
    ("approvals_are_asked_for_whole", lambda s: item_done(s, "mcp_approval_request").update(arguments="")),
    ("approvals_are_asked_for_whole", lambda s: item_done(s, "mcp_approval_request").update(status="completed")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MCP_MUTATIONS)))
async def test_a_stream_with_items_of_mcp_servers_is_complained_about_when_it_is_broken_on_purpose(number: int):
    name, broken = MCP_MUTATIONS[number]
    stream = copy.deepcopy(await with_mcp())
    broken(stream)
    assert name in complaints("responses", stream)


def test_every_rule_is_seen_to_fail():
    broken = {dialect: {name for name, _ in mutations} for dialect, mutations in MUTATIONS.items()}
    broken["anthropic"] |= {name for name, _ in RUNNING_MUTATIONS}
    broken["responses"] |= {name for name, _ in MCP_MUTATIONS}
    assert {dialect: set(rules) for dialect, rules in RULES.items()} == broken


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_failure_must_be_the_end_of_a_stream(dialect: str):
    stream = await good(dialect, broken=True)
    assert "out of memory" in json.dumps(stream[-1].data)
    assert complaints(dialect, stream[:-1])
    assert complaints(dialect, [*stream[:-2], stream[-1], stream[-2]])


@pytest.mark.parametrize("raw", [b"data: 1\n", b"data: 1\ndata: 1\n\n", b"id: 1\ndata: 1\n\n", b"data: {\n\n", b"data: \xff\n\n"])
def test_half_frames_and_odd_lines_are_not_read(raw: bytes):
    with pytest.raises((AssertionError, ValueError)):
        parse_events(raw)


@pytest.mark.parametrize("raw", [b"{}", b"{}\n\n{}\n", b": keep-alive\n"])
def test_lines_that_clients_cannot_parse_are_not_read(raw: bytes):
    with pytest.raises((AssertionError, ValueError)):
        parse_lines(raw)
