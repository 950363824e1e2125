"""The schemas of requests: their fields are those that the readers ask for, and what the readers take fits them."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from callsmith.core.errors import UsageError
from callsmith.server.app import create_app
from callsmith.wire import llama_server
from callsmith.wire.anthropic import messages as anthropic
from callsmith.wire.declare import RequestFields
from callsmith.wire.extensions import read_extensions
from callsmith.wire.fields import Fields
from callsmith.wire.ollama import requests as ollama
from callsmith.wire.openai import chat, completions, responses
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.server.openapi.checking import checker_of
from tests.wire.anthropic.test_messages import requests as anthropic_requests
from tests.wire.openai.test_chat import requests as chat_requests
from tests.wire.openai.test_responses import requests as responses_requests
from tests.wire.test_every_field import TYPES

CHECKER = checker_of(create_app({"m": FakeModel(says("hi"))}))
SCHEMAS = CHECKER.document["components"]["schemas"]


def with_extensions(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda body: (read(body), read_extensions(body))


def read_response(body: Any) -> Any:
    responses.read_references(body)
    return responses.read_request(body, known={}), read_extensions(body)


# The schema of each request, how it is read, a body, and which fields nothing comes of.
READERS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "ChatRequest": (with_extensions(chat.read_request), TYPES["chat"], chat.ChatFields.ignored),
    "CompletionsRequest": (completions.read_request, TYPES["completions"], completions.CompletionsFields.ignored),
    "ResponsesRequest": (read_response, TYPES["responses"], responses.ResponsesFields.ignored),
    "MessagesRequest": (with_extensions(anthropic.read_request), TYPES["messages"], anthropic.MessagesFields.ignored),
    "OllamaChatRequest": (with_extensions(ollama.read_chat), TYPES["ollama chat"], {}),
    "OllamaGenerateRequest": (with_extensions(ollama.read_generate), TYPES["ollama generate"], {}),
    "CompletionRequest": (llama_server.read_completion, TYPES["completions"], {}),
}
# What a reader asks for only if another field says so: bodies that bring it about.
AT_ITS_WORD: Any = {"guided_json": {"type": "object"}, "as_written": True}
MORE: dict[str, list[Any]] = {
    "ChatRequest": [
        {"functions": [{"name": "add"}], "function_call": {"name": "add"}},
        {
            "tools": [{"type": "function", "function": {"name": "add"}}],
            "tool_choice": {"type": "function", "function": {"name": "add"}},
        },
        {"tools": [{"name": "add"}], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "add"}]}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/a.png"}}]}]},
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "3"}, "4"]},
                {"role": "assistant", "function_call": {"name": "add", "arguments": "{}"}},
                {"role": "function", "name": "add", "content": "3"},
            ]
        },
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}, "strict": True}}},
        {"structured_outputs": {"choice": ["a", "b"]}},
        AT_ITS_WORD,
        {"max_tokens": -1, "repeat_penalty": 1.1, "logit_bias": {"5": 1}},
    ],
    "ResponsesRequest": [
        {"tools": [{"type": "mcp", "server_label": "files", "require_approval": {"always": {"tool_names": ["a"]}}}]},
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "add"}]}, {"type": "tool_search"}]},
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "3"},
                {"type": "mcp_call", "id": "m", "server_label": "files", "name": "read", "arguments": "{}", "output": "x"},
                {"type": "mcp_approval_request", "id": "q", "server_label": "files", "name": "read", "arguments": "{}"},
                {"type": "mcp_approval_response", "approval_request_id": "q", "approve": True},
            ]
        },
        {
            "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
            "chat_template_kwargs": {"thinking": True},
        },
    ],
    "MessagesRequest": [
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "files", "configs": {"read": {"enabled": True}}}]},
        {
            "tools": [
                {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
                {"name": "add", "defer_loading": True},
            ]
        },
        {
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "tool_use", "id": "c", "name": "add", "input": {}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "3", "is_error": False}]},
            ],
        },
        {"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
    ],
    "OllamaChatRequest": [
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {}}}]},
                {"role": "tool", "tool_name": "add", "content": "3"},
            ],
            "tools": [{"type": "function", "function": {"name": "add"}}],
            "tool_choice": "required",
        },
        {"options": {"num_predict": 5, "repeat_penalty": 1.1}, "think": "low", "keep_alive": -1},
        {"format": {"type": "object"}, "as_written": True},
    ],
    "OllamaGenerateRequest": [{"format": {"type": "object"}, "as_written": True}],
    "CompletionsRequest": [AT_ITS_WORD],
    "CompletionRequest": [AT_ITS_WORD],
}


def bodies(schema: str) -> Iterator[Any]:
    """Bodies that the reader of a request takes, with every field of the vendor's own type and what belongs to it."""
    read, kind, _ = READERS[schema]
    for field, sample in kind.samples.items():
        body = {**kind.body, **kind.beside.get(field, {}), field: sample}
        with suppress(UsageError):
            read(body)
            yield body
    for more in MORE.get(schema, ()):
        body = {**kind.body, **more}
        read(body)
        yield body


@pytest.mark.parametrize("schema", READERS)
def test_what_is_read_fits_the_schema(schema: str):
    unread = [
        (body, *CHECKER.complaints({"$ref": f"#/components/schemas/{schema}"}, body, is_closed=False)) for body in bodies(schema)
    ]
    assert [item for item in unread if len(item) > 1] == []
    assert len(unread) >= 10


@pytest.mark.parametrize("schema", READERS)
def test_null_is_absence_in_the_schema_too(schema: str):
    _, kind, _ = READERS[schema]
    body = {**dict.fromkeys(SCHEMAS[schema]["properties"]), **kind.body}
    assert [*CHECKER.complaints({"$ref": f"#/components/schemas/{schema}"}, body, is_closed=False)] == []


@pytest.fixture
def read_fields(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """What readers ask for: the paths of objects, and the names of fields in them."""
    names: set[tuple[str, str]] = set()
    init, refuse = Fields.__init__, RequestFields.refuse_unsupported

    class RecordedData(dict[str, Any]):
        path = ""

        def get(self, key: str, default: Any = None) -> Any:
            names.add((re.sub(r"\b\d+\b", "*", self.path), key))
            return super().get(key, default)

    def recorded(self: Fields, data: Any, path: Any = "") -> None:
        wrapped = RecordedData(data)
        init(self, wrapped, path)
        wrapped.path = self.path

    def refused(self: RequestFields) -> None:
        names.update((self.path, name) for name in self.refused)
        refuse(self)

    monkeypatch.setattr(Fields, "__init__", recorded)
    monkeypatch.setattr(RequestFields, "refuse_unsupported", refused)
    return names


@pytest.mark.parametrize("schema", READERS)
def test_the_fields_of_the_schema_are_those_that_are_read(schema: str, read_fields: set[tuple[str, str]]):
    assert [*bodies(schema)]
    listed, hints, read = (
        set(SCHEMAS[schema]["properties"]),
        set(READERS[schema][2]),
        {key for path, key in read_fields if not path},
    )
    assert read | hints == listed
    unknown = {(path, key) for path, key in read_fields if path and not is_listed(schema, path.split("."), key)}
    assert unknown == set()


def is_listed(schema: str, path: list[str], key: str) -> bool:
    """Whether the schema has such a field at a path, or leaves open what is there."""
    inside = [SCHEMAS[schema]]
    for part in path:
        inside = [inner for item in inside for inner in step(item, part)]
    plain = [variant for some in inside for variant in variants(some)]
    plain += [
        variant for some in plain if "items" in some for variant in variants(some["items"])
    ]  # a text is short for one of these
    return any(
        item.get("additionalProperties") or item.keys() <= {"description"} or key in item.get("properties", {}) for item in plain
    )


def variants(schema: Any) -> Iterator[Any]:
    if "$ref" in schema:
        yield from variants(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    elif "anyOf" in schema:
        for item in schema["anyOf"]:
            yield from variants(item)
    else:
        yield schema


def step(schema: Any, part: str) -> Iterator[Any]:
    for variant in variants(schema):
        if part == "*" and "items" in variant:
            yield variant["items"]
        elif part in variant.get("properties", {}):
            yield variant["properties"][part]
        elif variant.get("additionalProperties"):
            yield {} if variant["additionalProperties"] is True else variant["additionalProperties"]


@given(chat_requests())
def test_every_chat_that_is_written_fits(chat_request: chat.ChatRequest):
    check("ChatRequest", chat.write_request(chat_request))


@given(responses_requests())
def test_every_response_that_is_asked_for_fits(response_request: responses.ResponsesRequest):
    check("ResponsesRequest", responses.write_request(response_request))


@given(anthropic_requests())
def test_every_message_that_is_written_fits(messages_request: anthropic.MessagesRequest):
    check("MessagesRequest", anthropic.write_request(messages_request))


def check(schema: str, body: Any) -> None:
    whole = json.loads(json.dumps(body))
    assert [*CHECKER.complaints({"$ref": f"#/components/schemas/{schema}"}, whole, is_closed=False)] == []
