"""Every field of the vendors' request types is honoured, refused by name, or a hint whose reason is written down.

The fields are those of the installed SDKs: one that a new release adds has no sample here, and the test says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import ollama._types
import pytest
from anthropic.types import message_create_params as messages
from anthropic.types.beta import message_create_params as beta_messages
from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
from openai.types.shared_params import FunctionDefinition

from callsmith.core.errors import UsageError
from callsmith.wire.anthropic import messages as anthropic_wire
from callsmith.wire.ollama import requests as ollama_wire
from callsmith.wire.openai import chat as chat_wire
from callsmith.wire.openai import completions as completions_wire
from callsmith.wire.openai import responses as responses_wire

SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
HI: Any = [{"role": "user", "content": "hi"}]
ADD: Any = {"type": "function", "function": {"name": "add"}}


@dataclass(frozen=True)
class RequestType:
    """A request type: its fields, how it is read, and for each field a value that asks for something."""

    fields: frozenset[str]
    read: Callable[[Any], Any]
    body: Mapping[str, Any]
    samples: Mapping[str, Any]
    hints: Mapping[str, str]
    beside: Mapping[str, Any]  # what a field needs beside it to mean anything


def _fields(*types: Any) -> frozenset[str]:
    return frozenset(name for request_type in types for name in get_type_hints(request_type))


def _read_response(body: Any) -> Any:
    read = responses_wire.read_request(body)
    return (
        read,
        {key: value for key, value in read.repeated.items() if key not in responses_wire.ResponsesFields.ignored},
        read.input,
    )


SAMPLING: Any = {"temperature": 0.3, "top_p": 0.4}

TYPES = {
    "chat": RequestType(
        _fields(chat.CompletionCreateParamsBase),
        chat_wire.read_request,
        {"model": "m", "messages": HI},
        {
            **SAMPLING,
            "audio": {"voice": "alloy", "format": "wav"},
            "frequency_penalty": 0.5,
            "function_call": "none",
            "functions": [{"name": "add"}],
            "logit_bias": {"5": 1},
            "logprobs": True,
            "max_completion_tokens": 5,
            "max_tokens": 5,
            "messages": [{"role": "user", "content": "ho"}],
            "metadata": {"a": "b"},
            "modalities": ["audio"],
            "model": "n",
            "moderation": {"model": "x"},
            "n": 2,
            "parallel_tool_calls": False,
            "prediction": {"type": "content", "content": "x"},
            "presence_penalty": 0.5,
            "prompt_cache_key": "k",
            "prompt_cache_options": {"ttl": 5},
            "prompt_cache_retention": "24h",
            "reasoning_effort": "none",
            "response_format": {"type": "json_object"},
            "safety_identifier": "x",
            "seed": 5,
            "service_tier": "flex",
            "stop": "x",
            "store": True,
            "stream_options": {"include_usage": True},
            "tool_choice": "required",
            "tools": [ADD],
            "top_logprobs": 2,
            "user": "u",
            "verbosity": "low",
            "web_search_options": {},
        },
        chat_wire.ChatFields.ignored,
        {"tool_choice": {"tools": [ADD]}, "function_call": {"functions": [{"name": "add"}]}, "top_logprobs": {"logprobs": True}},
    ),
    "completions": RequestType(
        _fields(completions.CompletionCreateParamsBase),
        completions_wire.read_request,
        {"model": "m", "prompt": "hi"},
        {
            **SAMPLING,
            "best_of": 2,
            "echo": True,
            "frequency_penalty": 0.5,
            "logit_bias": {"5": 1},
            "logprobs": 2,
            "max_tokens": 5,
            "model": "n",
            "n": 2,
            "presence_penalty": 0.5,
            "prompt": [1, 2],
            "seed": 5,
            "stop": "x",
            "stream_options": {"include_usage": True},
            "suffix": "x",
            "user": "u",
        },
        completions_wire.CompletionsFields.ignored,
        {},
    ),
    "responses": RequestType(
        _fields(responses.ResponseCreateParamsBase),
        _read_response,
        {"model": "m", "input": "hi"},
        {
            **SAMPLING,
            "access_programs": {"x": True},
            "background": True,
            "context_management": [{"type": "compaction", "compact_threshold": 10}],
            "conversation": "conv_1",
            "image": {"detail": "low"},
            "include": ["message.output_text.logprobs"],
            "input": "ho",
            "instructions": "Be brief.",
            "max_output_tokens": 5,
            "max_tool_calls": 5,
            "metadata": {"a": "b"},
            "model": "n",
            "moderation": {"model": "x"},
            "parallel_tool_calls": False,
            "previous_response_id": "resp_1",
            "prompt": {"id": "p"},
            "prompt_cache_key": "k",
            "prompt_cache_options": {"ttl": 5},
            "prompt_cache_retention": "24h",
            "reasoning": {"effort": "none"},
            "safety_identifier": "x",
            "service_tier": "flex",
            "store": False,
            "stream_options": {"include_obfuscation": True},
            "text": {"format": {"type": "json_object"}},
            "tool_choice": "required",
            "tools": [{"type": "function", "name": "add"}],
            "top_logprobs": 2,
            "truncation": "auto",
            "user": "u",
        },
        responses_wire.ResponsesFields.ignored,
        {"tool_choice": {"tools": [{"type": "function", "name": "add"}]}},
    ),
    "messages": RequestType(
        _fields(messages.MessageCreateParamsBase, beta_messages.MessageCreateParamsBase) | {"temperature", "top_p", "top_k"},
        anthropic_wire.read_request,
        {"model": "m", "messages": HI, "max_tokens": 9},
        {
            **SAMPLING,
            "top_k": 5,
            "betas": ["x"],
            "cache_control": {"type": "ephemeral"},
            "compaction": {"type": "summary"},
            "container": "c",
            "context_management": {"edits": []},
            "diagnostics": {"previous_message_id": "msg_1"},
            "fallback_credit_token": "t",
            "fallbacks": [{"model": "n"}],
            "inference_geo": "eu",
            "max_tokens": 5,
            "mcp_servers": [{"type": "url", "name": "files", "url": "mcp:files"}],
            "messages": [{"role": "user", "content": "ho"}],
            "metadata": {"user_id": "u"},
            "model": "n",
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
            "service_tier": "standard_only",
            "speed": "fast",
            "stop_sequences": ["x"],
            "system": "Be brief.",
            "thinking": {"type": "disabled"},
            "thread": {"type": "create"},
            "tool_choice": {"type": "any"},
            "tools": [{"name": "add", "input_schema": SCHEMA}],
            "user_profile_id": "u",
            "workspace_id": "w",
        },
        anthropic_wire.MessagesFields.ignored,
        {"tool_choice": {"tools": [{"name": "add", "input_schema": SCHEMA}]}},
    ),
    "ollama chat": RequestType(
        frozenset(ollama._types.ChatRequest.model_fields),
        ollama_wire.read_chat,
        {"model": "m", "messages": HI},
        {
            "format": "json",
            "keep_alive": "5m",
            "logprobs": True,
            "messages": [{"role": "user", "content": "ho"}],
            "model": "n",
            "options": {"seed": 5},
            "stream": False,
            "think": False,
            "tools": [ADD],
            "top_logprobs": 2,
        },
        {},
        {"top_logprobs": {"logprobs": True}},
    ),
    "ollama generate": RequestType(
        frozenset(ollama._types.GenerateRequest.model_fields),
        ollama_wire.read_generate,
        {"model": "m", "prompt": "hi"},
        {
            "context": [1],
            "format": "json",
            "height": 64,
            "images": ["aGk="],
            "keep_alive": "5m",
            "logprobs": True,
            "model": "n",
            "options": {"seed": 5},
            "prompt": "ho",
            "raw": True,
            "steps": 5,
            "stream": False,
            "suffix": "x",
            "system": "Be brief.",
            "template": "x",
            "think": False,
            "top_logprobs": 2,
            "width": 64,
        },
        {},
        {"top_logprobs": {"logprobs": True}},
    ),
    "ollama options": RequestType(
        frozenset(ollama._types.Options.model_fields),
        lambda options: ollama_wire.read_chat({"model": "m", "messages": HI, "options": options}),
        {},
        {
            **dict.fromkeys(("embedding_only", "f16_kv", "logits_all", "low_vram", "numa"), True),
            **dict.fromkeys(("use_mlock", "use_mmap", "vocab_only"), True),
            **dict.fromkeys(("main_gpu", "num_batch", "num_ctx", "num_gpu", "num_thread", "num_keep"), 5),
            **SAMPLING,
            "frequency_penalty": 0.5,
            "mirostat": 2,
            "mirostat_eta": 0.5,
            "mirostat_tau": 0.5,
            "num_predict": 5,
            "penalize_newline": False,
            "presence_penalty": 0.5,
            "repeat_last_n": 5,
            "repeat_penalty": 1.5,
            "seed": 5,
            "stop": ["x"],
            "tfs_z": 0.5,
            "top_k": 5,
            "typical_p": 0.5,
        },
        ollama_wire.OllamaOptionFields.ignored,
        {"repeat_last_n": {"repeat_penalty": 1.5}},
    ),
    "function": RequestType(
        _fields(FunctionDefinition),
        lambda tool: chat_wire.read_request({"messages": HI, "tools": [{"type": "function", "function": tool}]}),
        {"name": "add"},
        {"name": "sub", "description": "Adds.", "parameters": SCHEMA, "strict": True},
        {},
        {},
    ),
}
FIELDS = [(kind, field) for kind, request_type in TYPES.items() for field in sorted(request_type.fields)]


@pytest.mark.parametrize("kind", TYPES)
def test_every_field_has_a_sample_and_no_sample_is_of_yesterday(kind: str):
    assert TYPES[kind].samples.keys() == TYPES[kind].fields


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_field_is_honoured_refused_by_name_or_a_hint(kind: str, field: str):
    request_type = TYPES[kind]
    beside = {**request_type.body, **request_type.beside.get(field, {})}
    try:
        read = request_type.read({**beside, field: request_type.samples[field]})
    except UsageError as error:
        assert error.field is not None and field in error.field.split(".")
        assert field not in request_type.hints
    else:
        assert (read == request_type.read(beside)) == (field in request_type.hints), (
            "ignored" if field not in request_type.hints else "no hint"
        )


def test_every_hint_has_its_reason():
    for request_type in TYPES.values():
        assert all(request_type.hints.values())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt_logprobs", 1), ("echo", True), ("chat_template", "{{ x }}"), ("stop_token_ids", [1]), ("bad_words", ["x"]),
        ("use_beam_search", True), ("length_penalty", 2), ("documents", [{"title": "x"}]), ("truncate_prompt_tokens", 5),
        ("allowed_token_ids", [1]), ("skip_special_tokens", False), ("include_stop_str_in_output", True), ("min_tokens", 5),
    ],
)  # fmt: skip
def test_what_other_servers_added_to_chat_completions_is_refused_by_name(field: str, value: Any):
    with pytest.raises(UsageError) as caught:
        chat_wire.read_request({"messages": HI, field: value})
    assert caught.value.field == field


# Tools in the forms of other libraries

SPELLINGS = ("parameters", "input_schema", "inputSchema", "parameters_schema")
READERS: Mapping[str, Callable[[Any], Any]] = {
    "chat": lambda tool: chat_wire.read_request({"messages": HI, "tools": [tool]}),
    "responses": lambda tool: responses_wire.read_request({"input": "hi", "tools": [tool]}),
    "messages": lambda tool: anthropic_wire.read_request({"messages": HI, "max_tokens": 9, "tools": [tool]}),
    "ollama": lambda tool: ollama_wire.read_chat({"messages": HI, "tools": [tool]}),
}


@pytest.mark.req("R1")
@pytest.mark.req("R13")
@pytest.mark.parametrize("dialect", READERS)
@pytest.mark.parametrize("key", SPELLINGS)
def test_a_schema_is_read_under_every_name_and_required_is_merged_into_it(dialect: str, key: str):
    (tool,) = READERS[dialect]({"name": "weather", key: SCHEMA, "required": ["city"]}).request.tools
    assert tool.parameters == {**SCHEMA, "required": ["city"]}


@pytest.mark.parametrize("dialect", READERS)
@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ({"parameters": SCHEMA, "parameters_schema": {"type": "object"}}, "parameters_schema"),
        ({"inputSchema": {**SCHEMA, "required": []}, "required": ["city"]}, "required"),
        ({"parameters": SCHEMA, "required": ["town"]}, "required.0"),
        ({"required": ["city"]}, "required.0"),
        ({"parameters": SCHEMA, "required": "city"}, "required"),
    ],
)
def test_schemas_that_contradict_each_other_are_refused(dialect: str, tool: dict[str, Any], field: str):
    with pytest.raises(UsageError) as caught:
        READERS[dialect]({"name": "weather", **tool})
    assert (caught.value.field or "").endswith(field)


@pytest.mark.req("R5")
@pytest.mark.parametrize("dialect", READERS)
def test_one_tool_can_be_chosen_as_specific(dialect: str):
    bodies: Mapping[str, Any] = {
        "chat": (chat_wire.read_request, {"messages": HI}),
        "responses": (responses_wire.read_request, {"input": "hi"}),
        "messages": (anthropic_wire.read_request, {"messages": HI, "max_tokens": 9}),
        "ollama": (ollama_wire.read_chat, {"messages": HI}),
    }
    read, body = bodies[dialect]
    request = read({**body, "tools": [{"name": "add"}, {"name": "sub"}], "tool_choice": {"specific": "sub"}})
    assert (request.request.choice.mode, request.request.choice.names) == ("required", ("sub",))
