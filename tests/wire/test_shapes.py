"""Every dialect's streams hold to the rules of `shapes`, whatever the format, the chunking and the turn of events.

The second half breaks good streams on purpose: every rule is seen to complain.
"""

import asyncio
import copy
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import pytest
from starlette.applications import Starlette

from callsmith.core.errors import ModelError
from callsmith.core.events import ConfirmationNeeded, ModelEvent
from callsmith.core.ports import Context
from callsmith.core.values import Call, Request, Result, Sampling, Tool
from callsmith.engines import Finished, Piece
from callsmith.engines.scripted import Scripted
from callsmith.formats import formats
from callsmith.formats.layout import Format
from callsmith.formats.prompt import Prompt, fit_id
from callsmith.formats.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.grammar.nodes import Grammar
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from tests.files_tools import Files
from tests.wire.shapes import DONE, RULES, Sent, called, complaints, parse_events, parse_lines

WHOLE = 100_000
CHUNKS = (1, 3, 11, WHOLE)
DIALECTS = ("chat", "responses", "anthropic", "ollama")
PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}, "size": {"type": "integer"}}, "required": ["text"]}
NAMES = ("note", "now")


def body_of(dialect: str, limit: int) -> tuple[str, dict[str, Any]]:
    """Where and what is asked in this dialect."""
    asked: dict[str, Any] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    functions = [{"name": name, "parameters": PARAMETERS if name == "note" else {"type": "object"}} for name in NAMES]
    wrapped = [{"type": "function", "function": one} for one in functions]
    match dialect:
        case "chat":
            return "/v1/chat/completions", {
                **asked, "tools": wrapped, "max_tokens": limit, "stream_options": {"include_usage": True}
            }  # fmt: skip
        case "responses":
            tools = [{"type": "function", **one} for one in functions]
            return "/v1/responses", {
                "model": "m", "stream": True, "store": False, "input": "hi", "tools": tools, "max_output_tokens": limit
            }  # fmt: skip
        case "anthropic":
            tools = [{"name": one["name"], "input_schema": one["parameters"]} for one in functions]
            return "/v1/messages", {**asked, "tools": tools, "max_tokens": limit}
        case _:
            return "/api/chat", {**asked, "tools": wrapped, "options": {"num_predict": limit}}


async def streamed(app: Starlette, path: str, body: dict[str, Any]) -> bytes:
    """What the application sends, byte for byte."""
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path}
    scope |= {"raw_path": path.encode(), "query_string": b"", "headers": [], "scheme": "http", "server": ("callsmith", 80)}
    incoming = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    pieces: list[bytes] = []

    async def receive() -> Any:
        if incoming:
            return incoming.pop()
        return await asyncio.Event().wait()  # the client stays

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200, message
        pieces.append(message.get("body", b""))

    await app({**scope, "state": {}}, receive, send)
    return b"".join(pieces)


class Breaking(Scripted):
    """Breaks down in the middle of what it says."""

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        said = [piece async for piece in super().generate(prompt, sampling, grammar)]
        for piece in said[: max(1, len(said) // 2)]:
            yield piece
        raise ModelError("out of memory")


def scenarios(format: Format) -> dict[str, tuple[str, list[Call] | None]]:
    """What the model writes in each turn of events, and the calls in it where all of it arrives."""

    def call(number: int, name: str, **arguments: Any) -> Call:
        return Call(name, arguments, fit_id(f"call_{number}", format.ids))

    plain, empty = call(0, "note", text="Hello", size=3), call(1, "now")
    unicode = call(2, "note", text='naïve "東京" 🐈\n\\ {1}')
    both = write(format, [plain, unicode], text="Let me see.")
    return {
        "text": (write(format, text="Just words, <b>tags</b> and 東京 🐈."), []),
        "text and a call": (write(format, [plain], text="Let me see."), [plain]),
        "parallel calls": (write(format, [plain, empty, unicode]), [plain, empty, unicode]),
        "empty arguments": (write(format, [empty]), [empty]),
        "thinking": (write(format, [plain], text="So.", thought="Let me think."), [plain]),
        "unreadable": (both[: len(both) - len(write(format, [unicode])) // 2], None),
        "cut off": (both, None),
        "error": (both, None),
        "nothing": ("", []),
    }


class Lent:
    """A model that is another one each time: an application is dear, a model cheap."""

    def __init__(self) -> None:
        self.model: LocalModel | None = None

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        assert self.model is not None
        return self.model.stream(request)


LENT, TEMPLATE = Lent(), Template(CHATML)
APP = create_app({"m": LENT})
RUNNING = create_app({"m": LENT}, tools=Files(a="Hello", empty=""))


def opened(format: Format, scenario: str, text: str, chunk: int) -> tuple[LocalModel, int]:
    """The model, and how many pieces it may say."""
    kind = Breaking if scenario == "error" else Scripted
    limit = max(1, math.ceil(len(text) / chunk) * 2 // 3) if scenario == "cut off" else 10**6
    return LocalModel(kind([text], chunk=chunk, repeat=True), format, TEMPLATE), limit


async def stream_of(dialect: str, model: LocalModel, limit: int = 10**6) -> list[Sent]:
    path, body = body_of(dialect, limit)
    LENT.model = model
    raw = await streamed(APP, path, body)
    return parse_lines(raw) if dialect == "ollama" else parse_events(raw)


async def check(name: str, dialect: str, chunks: Iterable[int]) -> None:
    format = formats()[name]
    for scenario, (text, expected) in scenarios(format).items():
        for chunk in chunks:
            model, limit = opened(format, scenario, text, chunk)
            stream = await stream_of(dialect, model, limit)
            assert complaints(dialect, stream) == {}, f"{scenario}, in pieces of {chunk}: {text!r}"
            if expected is not None:
                assert called(dialect, stream) == [(call.name, call.arguments) for call in expected]
            assert ("out of memory" in json.dumps(stream[-1].data)) == (scenario == "error")


@pytest.mark.req("R103")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", formats())
async def test_streams_hold_to_the_rules(name: str, dialect: str):
    await check(name, dialect, (3,))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", formats())
async def test_streams_hold_to_the_rules_in_pieces_of_any_size(name: str, dialect: str):
    await check(name, dialect, CHUNKS)


SERVERS = [{"type": "mcp_toolset", "mcp_server_name": name} for name in ("files", "clock")]


async def running(texts: list[str], chunk: int, scenario: str = "") -> list[Sent]:
    """The stream of an answer for which tools of MCP servers run, beside those of the client's."""
    path, body = body_of("anthropic", 10**6)
    body["tools"] = [*body["tools"][:1], *SERVERS]
    LENT.model = LocalModel((Breaking if scenario == "error" else Scripted)(texts, chunk=chunk), formats()["hermes"], TEMPLATE)
    return parse_events(await streamed(RUNNING, path, body))


FOUND, LOST = Call("files_read", {"path": "a"}), Call("files_read", {"path": "東京"})
RAN: dict[str, list[list[Call]]] = {
    "one": [[FOUND]],
    "several": [[FOUND, LOST, Call("now")], [Call("files_read", {"path": "empty"})]],
    "with the client's": [[FOUND, Call("note", {"text": "x"})]],
    "refused": [[Call("files_read", {"size": 3}), Call("nope")]],
    "asked about": [[FOUND, Call("delete", {"path": "a"})]],
    "error": [[FOUND]],
}


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("scenario", RAN)
async def test_streams_in_which_tools_of_mcp_servers_ran_hold_to_the_rules(scenario: str, chunk: int):
    format = formats()["hermes"]
    texts = [write(format, calls, text="Let me see.", thought="Hm.") for calls in RAN[scenario]]
    stream = await running([*texts, "Done."], chunk, scenario)
    assert complaints("anthropic", stream) == {}
    known = {"files_read": "read", "now": "now", "note": "note"}
    ran = [(known[call.name], call.arguments) for calls in RAN[scenario] for call in calls if call.name in known]
    assert called("anthropic", stream) == ([] if scenario in ("refused", "error") else ran)


# -- every rule can fail


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


def swap(stream: list[Sent], one: Sent, other: Sent) -> None:
    first, second = stream.index(one), stream.index(other)
    stream[first], stream[second] = other, one


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
        ("the_finish_fits_what_was_said", lambda s: [s.remove(one) for one in list(s) if "tool_calls': [" in str(one.data)]),
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
         lambda s: [one.data["content_block"].update(type="text") for one in s if "content_block" in one.data]),
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
    text = write(formats()["hermes"], [FOUND, Call("now"), Call("note", {"text": "x"})], text="Let me see.", thought="Hm.")
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


class Notes:
    """Tools of an MCP server: some that run, one that fails, one that is asked about."""

    async def tools(self) -> Sequence[Tool]:
        names = ("note", "now", "pay")
        return [Tool(name, parameters=PARAMETERS if name == "note" else {}, source="mcp:notes") for name in names]

    async def call(self, call: Call, context: Context) -> AsyncIterator[Result | ConfirmationNeeded]:
        if call.name == "pay":
            yield ConfirmationNeeded("confirm_1", call)
            return
        await context.starting()
        yield Result(call.id, call.name, "so", ok=call.name == "note")


async def with_mcp(scenario: str = "") -> list[Sent]:
    """A stream with a list, a call that ran, one that failed, one that was refused, an approval, and a function of the client."""
    format = formats()["hermes"]
    made = [Call("note", {"text": "Hello"}), Call("now"), Call("note", {}), Call("own", {"a": 1}), Call("pay", {"euros": 5})]
    texts = [write(format, made[:3], text="Let me see."), write(format, made[3:], text="And now.")]
    model = LocalModel((Breaking if scenario else Scripted)(texts, chunk=5), format, TEMPLATE)
    own = {"type": "function", "name": "own", "parameters": {"type": "object"}}
    body = {"model": "m", "stream": True, "input": "hi", "tools": [{"type": "mcp", "server_label": "notes"}, own]}
    return parse_events(await streamed(create_app({"m": model}, tools=Notes()), "/v1/responses", body))


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


async def test_streams_with_items_of_mcp_servers_hold_to_the_rules():
    stream = await with_mcp()
    assert complaints("responses", stream) == {}
    kinds = [sent.data["item"]["type"] for sent in stream if sent.event == "response.output_item.done"]
    assert sorted(kinds) == [
        "function_call", "mcp_approval_request", "mcp_call", "mcp_call", "mcp_call", "mcp_list_tools", "message", "message"
    ]  # fmt: skip
    assert complaints("responses", await with_mcp("breaks")) == {}


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
