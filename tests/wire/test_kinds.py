"""Kinds of tools: each that a vendor's SDK knows is offered or refused by name, and calls keep their shape both ways."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import anthropic.types
import anthropic.types.beta
import openai.types.chat
import openai.types.responses
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import response_input_item_param, tool_param

from callsmith.core.errors import UsageError
from callsmith.core.events import CallArguments, CallReady, CallStarted, Stopped
from callsmith.core.schema import GRAMMAR, check_schema, validate
from callsmith.core.values import Call, Choice, Message, Request, Tool
from callsmith.formats import format_named
from callsmith.grammar.calls import list_unenforced
from callsmith.wire.anthropic import messages as anthropic_wire
from callsmith.wire.kinds.custom import InputReader, as_function
from callsmith.wire.kinds.table import CALL_ITEMS, KINDS
from callsmith.wire.kinds.toolsets import TOOLSETS, members_of
from callsmith.wire.ollama import requests as ollama_wire
from callsmith.wire.openai import chat, chat_events, responses, responses_events
from callsmith.wire.openai.kind_items import OUTPUT_ITEMS
from callsmith.wire.upstream.quirks import Quirks, fit_request

HI: Any = [{"role": "user", "content": "hi"}]
LARK: Any = {"syntax": "lark", "definition": "start: /a+/"}


def leaves(union: Any) -> Iterator[Any]:
    """The members of a union, however deep."""
    inner = get_args(union)
    if not inner:
        yield union
    for member in inner:
        yield from leaves(member)


def types_of(union: Any) -> list[tuple[str, Any]]:
    """The types of tools in a union of an SDK, each with the fields that its definition has."""
    found: list[tuple[str, Any]] = []
    for member in leaves(union):
        hints = get_type_hints(member)
        found += [(type, hints) for type in leaves_of_literal(hints["type"])]
    return found


def leaves_of_literal(hint: Any) -> list[str]:
    return [
        value
        for part in get_args(hint)
        for value in (leaves_of_literal(part) if get_args(part) else [part])
        if isinstance(value, str)
    ]


# What definitions need besides their type.
FIELDS: dict[str, Any] = {
    "name": "a", "input_schema": {"type": "object"}, "parameters": {"type": "object"}, "strict": False, "tools": [],
    "function": {"name": "a"}, "custom": {"name": "a"}, "server_label": "files", "mcp_server_name": "files",
    "display_width": 9, "display_height": 9, "display_width_px": 9, "display_height_px": 9, "environment": "browser",
}  # fmt: skip


def sample(type: str, hints: Any) -> dict[str, Any]:
    fields = {key: value for key, value in FIELDS.items() if key in hints}
    if type == "shell":
        fields.pop("environment")
    return {"type": type, **fields}


def read_chat(tools: Any) -> Any:
    return chat.read_request({"model": "m", "messages": HI, "tools": tools})


def read_responses(tools: Any) -> Any:
    return responses.read_request({"model": "m", "input": "hi", "tools": tools})


def read_messages(tools: Any) -> Any:
    return anthropic_wire.read_request({"model": "m", "max_tokens": 9, "messages": HI, "tools": tools})


SDK_TYPES = [
    *((read_chat, *found) for found in types_of(openai.types.chat.ChatCompletionToolUnionParam)),
    *((read_responses, *found) for found in types_of(tool_param.ToolParam)),
    *((read_messages, *found) for found in types_of(anthropic.types.ToolUnionParam)),
    *((read_messages, *found) for found in types_of(anthropic.types.beta.BetaToolUnionParam)),
]


@pytest.mark.req("R215")
@pytest.mark.parametrize(("read", "type", "hints"), SDK_TYPES, ids=lambda value: value if isinstance(value, str) else "")
def test_every_kind_of_tool_in_the_sdks_is_offered_run_here_or_refused_by_name(read: Any, type: str, hints: Any):
    entry = sample(type, hints)
    try:
        request = read([{"type": "function", "name": "add"} if read is read_responses else {"name": "add"}, entry])
    except UsageError as error:
        assert error.field == "tools.1.type"
        assert f"{type!r} runs at " in str(error), error
        assert " only: " in str(error)
        return
    served = type in ("mcp", "mcp_toolset", "tool_search", "namespace") or type.startswith("tool_search_tool_")
    offered = request.request.tools[1:]
    assert len(offered) == (0 if served else len(TOOLSETS[type][1]) if type in TOOLSETS else 1)
    for tool in offered:
        check_schema(tool.parameters, "parameters")
        assert tool.parameters["type"] == "object"
        assert (tool.kind or "function") in (type, "function")


def test_there_are_enough_kinds_that_the_walk_means_something():
    assert len(SDK_TYPES) > 60
    assert {"custom", "shell", "bash_20250124", "web_search", "code_execution_20250522"} <= {type for _, type, _ in SDK_TYPES}


@pytest.mark.parametrize(
    ("read", "type", "says"),
    [
        (read_chat, "shell", "'shell' is a kind of tool of Responses, and not of Chat Completions"),
        (read_chat, "web_search_preview", "'web_search_preview' runs at OpenAI only"),
        (read_responses, "bash_20250124", "'bash_20250124' is a kind of tool of Messages, and not of Responses"),
        (read_responses, "teleport", "'teleport' is not known here: a tool of Responses is one of apply_patch, "),
        (read_messages, "function", "'function' is not known here: a tool of Messages is one of bash_20241022, "),
        (lambda tools: ollama_wire.read_chat({"messages": HI, "tools": tools}), "custom", "not of Ollama's chat"),
    ],
)
def test_kinds_of_others_and_of_nobody_are_refused_by_name(read: Any, type: str, says: str):
    with pytest.raises(UsageError, match=re.escape(says)) as refused:
        read([{"type": type, "name": "a"}])
    assert refused.value.field == "tools.0.type"


def test_the_items_that_are_read_are_those_of_the_sdk():
    known = {type for type, _ in types_of(response_input_item_param.ResponseInputItemParam)}
    assert CALL_ITEMS.keys() <= known
    assert known >= OUTPUT_ITEMS


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.parameters], ids=lambda kind: kind.types[0])
def test_the_arguments_of_a_kind_are_a_valid_schema_that_says_what_is_required(kind: Any):
    check_schema(kind.parameters, "parameters")
    assert kind.parameters["required"]
    assert validate(kind.parameters, {})


SCHEMAS = [
    *((kind.types[0], kind.parameters) for kind in KINDS if kind.parameters),
    *((f"{family}__{name}", schema) for family, members in TOOLSETS.values() for name, schema in members.items()),
]


@pytest.mark.parametrize("format", ("hermes", "qwen3-coder", "pythonic"))
def test_a_grammar_holds_all_of_the_arguments_of_every_kind(format: str):
    for name, schema in SCHEMAS:
        tool = Tool(name, parameters=schema, strict=True)
        assert list_unenforced(format_named(format), tool) == (), name


# Toolsets


@pytest.mark.parametrize("type", TOOLSETS)
def test_a_toolset_has_the_tools_and_the_arguments_that_the_sdk_has(type: str):
    family, members = TOOLSETS[type]
    assert members.keys() == set(get_args(getattr(anthropic.types, f"{family.title()}MemberName")))
    for name, schema in members.items():
        inputs = getattr(anthropic.types, f"{family.title()}{name.title().replace('_', '')}Input").model_json_schema()
        assert schema["properties"].keys() == inputs["properties"].keys(), name
        assert set(schema.get("required", ())) == set(inputs.get("required", ())), name


def test_of_a_toolset_some_can_be_switched_off_and_no_others_named():
    off = {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}, "key": {"enabled": None}}}
    names = [tool.name for tool in read_messages([off]).request.tools]
    assert len(names) == 16
    assert "computer__zoom" not in names
    assert members_of(read_messages([off]).request.tools)["computer__key"] == ("computer", "key")
    with pytest.raises(UsageError) as refused:
        read_messages([{"type": "computer_toolset_20260801", "configs": {"fly": {}}}])
    assert refused.value.field == "tools.0.configs.fly"


# Custom tools


@pytest.mark.parametrize("nested", (False, True))
@pytest.mark.parametrize("read", (read_chat, read_responses))
def test_a_grammar_is_a_keyword_of_the_input(read: Any, nested: bool):
    format = {"type": "grammar", **({"grammar": LARK} if nested else LARK)}
    (tool,) = read([{"type": "custom", "name": "a", "description": "A.", "format": format}]).request.tools
    assert (tool.name, tool.description, tool.strict, tool.kind) == ("a", "A.", True, "custom")
    schema = {"type": "object", "properties": {"input": {"type": "string", GRAMMAR: LARK}}}
    assert tool.parameters == {**schema, "required": ["input"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("format", "field"),
    [
        ({"type": "xml"}, "format.type"),
        ({"type": "grammar"}, "format.syntax"),
        ({"type": "grammar", "syntax": "ebnf", "definition": "a"}, "format.syntax"),
        ({"type": "grammar", "syntax": "lark", "definition": ""}, "format.definition"),
        ({"type": "grammar", "syntax": "lark", "definition": "a" * 300_000}, "format.definition"),
        ("text", "format"),
    ],
)
def test_a_format_that_is_wrong_is_refused_by_name(format: Any, field: str):
    with pytest.raises(UsageError) as refused:
        read_responses([{"type": "custom", "name": "a", "format": format}])
    assert refused.value.field == f"tools.0.{field}"


@given(st.text(), st.lists(st.integers(1, 9)), st.booleans())
def test_the_input_streams_as_it_is_whatever_its_json_looks_like(text: str, sizes: list[int], ascii: bool):
    written = json.dumps({"input": text}, ensure_ascii=ascii)
    reader, given = InputReader(), list[str]()
    while written:
        size = sizes.pop() if sizes else 1
        given.append(reader.feed(written[:size]))
        written = written[size:]
        assert text.startswith("".join(given)), given
    assert "".join(given) == text  # nothing is left for the end
    assert (reader.finish(), reader.given) == ("", text)


@pytest.mark.parametrize(
    ("arguments", "input"),
    [('{"input": 5}', '{"input": 5}'), ('{"text": "a"}', '{"text": "a"}'), ("{}", "{}"), ('{"b": 1, "input": "a"}', "a")],
)
def test_arguments_without_an_input_are_the_input_themselves(arguments: str, input: str):
    reader = InputReader()
    assert "".join(map(reader.feed, arguments)) + reader.finish() == input


def test_a_text_that_is_no_json_costs_no_more_the_longer_it_is():
    reader = InputReader()
    reader.feed('{"input": "a')
    began = time.process_time()
    for _ in range(200_000):
        reader.feed("\n" + "x" * 20)  # no string of JSON has a line break in it
    assert time.process_time() - began < 5
    assert reader.given == "a"


def events_of(text: str, pieces: int) -> list[Any]:
    call = Call("patch", {"input": text}, "c1")
    size = max(1, len(call.text) // pieces)
    parts = [call.text[at : at + size] for at in range(0, len(call.text), size)]
    return [CallStarted(0, "patch", "c1"), *(CallArguments(0, part) for part in parts), CallReady(0, call), Stopped("calls")]


@given(st.text(), st.integers(1, 5))
def test_what_is_written_of_a_custom_tools_call_is_read_back(text: str, pieces: int):
    heading = chat_events.ChatHeading("i", "m", 0, kinds={"patch": "custom"})
    chunks = chat_events.ChunkWriter(heading).write_all(events_of(text, pieces))
    whole = chat_events.write_response(events_of(text, pieces), heading)
    items = responses_events.ResponsesHeading("resp_i", "m", 0, kinds={"patch": "custom"})
    sent = responses_events.EventWriter(items).write_all(events_of(text, pieces))
    response = responses_events.write_response(events_of(text, pieces), items)
    for reader, bodies in [
        (chat_events.EventReader(), chunks),
        (chat_events.EventReader(), [whole]),
        (responses_events.EventReader(), sent),
        (responses_events.EventReader(), [response]),
    ]:
        events = [event for body in bodies for event in reader.feed(json.loads(json.dumps(body)))] + reader.close()
        (ready,) = [event for event in events if isinstance(event, CallReady)]
        assert ready.call == Call("patch", {"input": text}, "c1")
        assert "".join(event.text for event in events if isinstance(event, CallArguments)) == ready.call.text


def custom_request() -> Request:
    (tool,) = read_responses([{"type": "custom", "name": "patch", "format": {"type": "grammar", **LARK}}]).request.tools
    called = Message.assistant(calls=[Call("patch", {"input": "aa"}, "c1")])
    messages = (Message.user("hi"), called, Message("tool", "done", call_id="c1", name="patch"), Message.user("more"))
    return Request(messages, (tool, Tool("add")), Choice.only("patch"), parallel=False)


def test_a_request_with_a_custom_tool_is_written_as_it_is_read():
    request = custom_request()
    body = chat.write_request(chat.ChatRequest("m", request))
    assert body["tools"][0] == {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": LARK}}}
    assert body["tool_choice"] == {"type": "custom", "custom": {"name": "patch"}}
    assert chat.read_request(json.loads(json.dumps(body))).request == request
    written = responses.write_request(responses.ResponsesRequest("m", request))
    assert [item["type"] for item in written["input"]] == ["message", "custom_tool_call", "custom_tool_call_output", "message"]
    assert responses.read_request(json.loads(json.dumps(written))).request == request


def test_a_server_that_knows_only_functions_gets_functions_and_the_grammar_in_words():
    request, left_out = fit_request(custom_request(), Quirks())
    patch, add = request.tools
    assert (patch.kind, patch.strict, GRAMMAR in str(patch.parameters), add) == ("", False, False, Tool("add"))
    assert patch.description.endswith("The input has to fit this grammar (lark):\nstart: /a+/")
    assert left_out == ("the grammar of patch: this API does not take it",)
    assert fit_request(custom_request(), Quirks(kinds=("custom",))) == (custom_request(), ())
    (bash,) = read_messages([{"type": "bash_20250124", "name": "bash"}]).request.tools
    assert as_function(bash) == Tool("bash", bash.description, bash.parameters)


# The table in the guide

APIS = {"chat": "Chat Completions", "responses": "Responses", "messages": "Messages"}
SAYS = {"client": "offered", "server": "runs on the server", "vendor": "refused", "nobody": "left out with a notice"}


def test_the_table_in_the_guide_is_the_one_in_the_code():
    guide = Path("docs/tools.md").read_text("utf-8").partition("## Kinds of tools")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in guide.splitlines() if line.startswith("| `")]
    documented = {
        (type.removesuffix("…"), api.strip()): says
        for kinds, apis, says, *_ in rows
        for type in re.findall("`([^`]+)`", kinds)
        for api in apis.split(",")
    }
    known = [((type, APIS[api]), kind) for kind in KINDS for type in kind.types for api in kind.apis]
    assert documented.keys() == {key for key, _ in known} | {("function", "all")}
    for key, kind in known:
        assert SAYS[kind.runner] in documented[key], key
        assert documented[key].startswith(SAYS[kind.runner]) or kind.when is not None, key
        if kind.item:
            assert f"`{kind.item}`" in documented[key], key
        if kind.when is not None:
            assert f'`"{kind.when[0]}": {json.dumps(kind.when[1])}`' in documented[key], key
