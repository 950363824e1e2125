"""`llm.chat`: bodies of requests and answers, both ways. Frames of answers: `chat_frames.py`.

    {"params": {"model": "qwen"},
     "input": {"messages": […], "tools": [{"name": "add", "parameters_schema": {…}}], "tool_choice": "auto"}}
    {"output": {"message": {"role": "assistant", "content": "42"}}, "meta": {"model": "qwen", "tokens_in": 5, …}}

Tools are flat; the wrapped form of version 1.0 is read too. A tool may name the capability that runs it, `"bound_capability":
"rag.query", "bound_version": "1.0"`: it then runs where the model is, on the caller's authority. "rag.query@1.0" is read too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.capability.binding import Binding
from callsmith.core.choice import MOST_CALL_BIAS
from callsmith.core.errors import UsageError
from callsmith.core.events import StopReason
from callsmith.core.failures import make_failure
from callsmith.core.values import Call, Json, Message, Request, Result, Tool, Usage
from callsmith.wire.capability.envelopes import Version, parse_target, write_reference, write_version
from callsmith.wire.fields import Fields, make_usage, without_none
from callsmith.wire.openai.chat import read_request, write_choice
from callsmith.wire.sampling import write_sampling
from callsmith.wire.tools import write_tool

NAME = "llm.chat"
TOOLS_CALL = "llm.tools.call"
VERSIONS = ((2, 0), (1, 0))  # the same handler answers both
MOST_TOOLS = 64

REASONS: Mapping[StopReason, str] = {
    "stop": "end",
    "length": "max_tokens",
    "filtered": "content_filter",
    "limit": "max_tokens",
    "calls": "tool_calls",
    "confirmation": "confirmation_required",
}
_READ_REASONS: Mapping[str, StopReason] = {spelling: reason for reason, spelling in REASONS.items() if reason != "limit"}


def read_reason(text: str) -> StopReason:
    return _READ_REASONS.get(text, "stop")


@dataclass(frozen=True, slots=True)
class ChatBody:
    """What is asked, of which model, and what a person has decided on calls that waited."""

    model: str
    request: Request
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])


def read_chat(body: Json) -> ChatBody:
    """The request in the body of a call of llm.chat; a UsageError names the field that is wrong."""
    fields = Fields.of(body, "")
    params, chat_input = fields.object("params") or Fields({}), fields.required_object("input")
    if len(chat_input.array("tools") or ()) > MOST_TOOLS:
        raise chat_input.error("tools", f"there may be {MOST_TOOLS} tools")
    try:
        chat = read_request({"max_tokens": 1024, **chat_input.data, "stream": None, "model": params.text("model") or ""})
    except UsageError as error:
        where = error.field if error.field == "model" else f"input.{error.field}" if error.field else None
        raise UsageError(str(error), field=where) from error
    if not any(message.role == "user" for message in chat.request.messages):
        raise chat_input.error("messages", "at least one message of a user is required")
    bindings = {entry.text("name"): entry for entry in chat_input.objects("tools") if entry.get("bound_capability") is not None}
    tools = tuple(_bound(tool, bindings[tool.name]) if tool.name in bindings else tool for tool in chat.request.tools)
    confirmations = chat_input.object("confirmations") or Fields({})
    decisions = {id: read_decision(confirmations.required_object(id)) for id in confirmations.data}
    return ChatBody(chat.model, replace(chat.request, tools=tools), decisions)


def _bound(tool: Tool, fields: Fields) -> Tool:
    name, version = parse_target(fields.required_text("bound_capability"), fields.get("bound_version"))
    binding = Binding(name, version, fields.texts("bound_params"))
    return replace(tool, binding=binding, side_effects=fields.flag("side_effects") is not False, source="bus")


def read_decision(fields: Fields) -> Decision:
    """A person's decision: `{"approve": true, "arguments": {…}}`, or `{"approve": false, "message": "…"}`."""
    approve, arguments = fields.flag("approve"), fields.object("arguments")
    if approve is None:
        raise fields.error("approve", "is required: true or false")
    return Approved(arguments.data if arguments else None) if approve else Denied(fields.text("message") or "")


def write_flat_tool(tool: Tool) -> dict[str, Json]:
    """A tool in the flat form: `{"name", "description", "parameters_schema"}`."""
    return write_tool(tool, "parameters_schema")


def write_bound_tool(tool: Tool) -> dict[str, Json]:
    """A tool in the flat form, with the capability that runs it where the model is, if it has one."""
    definition = write_flat_tool(tool)
    if (binding := tool.binding) is not None:
        if replace(binding, params=()) != Binding(binding.capability, binding.version):
            raise UsageError(f"the tool {tool.name} has constants, or collects a stream: it can be run only where it was made")
        definition |= {"bound_capability": binding.capability, "bound_version": write_version(binding.version)}
        definition |= {"bound_params": list(binding.params), "side_effects": tool.side_effects}
    return definition


def write_chat(model: str, request: Request) -> dict[str, Json]:
    """The body that `read_chat` reads back as the same request; whoever sends it runs the tools."""
    chat_input: dict[str, Json] = {
        "messages": [write_message(message) for message in request.messages],
        "tools": [write_flat_tool(tool) for tool in request.tools] or None,
        "tool_choice": write_choice(request.choice),
        "parallel_tool_calls": request.parallel,
        **write_sampling(request.sampling, "max_tokens"),
        "chat_template_kwargs": None if request.thinking is None else {"enable_thinking": request.thinking},
        "reasoning_effort": request.effort,
        "thinking_token_budget": request.thinking_budget,
        "call_bias": request.call_bias,
    }
    return {"params": {"model": model} if model else {}, "input": without_none(chat_input)}


def write_message(message: Message) -> dict[str, Json]:
    """A message: calls are flat, `{"id", "name", "arguments"}`."""
    fields: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        fields |= {"tool_call_id": message.call_id, "name": message.name}
    if message.reasoning:
        fields["reasoning"] = message.reasoning
    if message.calls:
        fields["tool_calls"] = [write_flat_call(call) for call in message.calls]
    return fields


def write_flat_call(call: Call) -> dict[str, Json]:
    return {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}


def write_meta(model: str, usage: Usage, reason: str, milliseconds: int) -> dict[str, Json]:
    """What is said about an answer: `meta` of a whole one, and the data of the frame "done"."""
    tokens = {"tokens_in": usage.prompt, "tokens_out": usage.completion}
    return {"model": model, **tokens, "stop_reason": reason, "ms": milliseconds}


def list_delegated(capability: str, body: Mapping[str, Json]) -> tuple[str, ...]:
    """The capabilities that whoever answers this call is to call in turn on the caller's behalf: those that its tools name."""
    chat_input = Fields(body).object("input")
    if chat_input is None:
        return ()
    if capability == TOOLS_CALL:
        return (write_reference(*read_target(chat_input.data)),)
    if capability != NAME:
        return ()
    bound = [entry for entry in chat_input.objects("tools") if entry.text("bound_capability")]
    targets = (parse_target(entry.text("bound_capability"), entry.get("bound_version")) for entry in bound)
    return tuple(dict.fromkeys(write_reference(*target) for target in targets))


def read_target(call_input: Mapping[str, Json]) -> tuple[str, Version]:
    """What a call of llm.tools.call with this input is to call."""
    return parse_target(call_input.get("target_capability"), call_input.get("target_version"))


def read_usage(meta: Mapping[str, Json]) -> Usage:
    return make_usage(meta.get("tokens_in"), meta.get("tokens_out"))


REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "params": {"type": "object", "properties": {"model": {"type": "string"}}},
        "input": {
            "type": "object",
            "properties": {
                "messages": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["role"]}},
                "tools": {"type": "array", "items": {"type": "object"}, "maxItems": MOST_TOOLS},
                "tool_choice": {"type": ["string", "object"]},
                "max_tokens": {"type": "integer", "minimum": 1},
                "temperature": {"type": "number", "minimum": 0},
                "call_bias": {"type": "number", "minimum": -MOST_CALL_BIAS, "maximum": MOST_CALL_BIAS},
                "stream": {"type": "boolean"},
            },
            "required": ["messages"],
        },
    },
    "required": ["input"],
}
RESPONSE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "output": {
            "type": "object",
            "properties": {"message": {"type": "object"}, "tool_calls": {"type": "array"}},
            "required": ["message"],
        },
        "meta": {"type": "object"},
    },
    "required": ["output", "meta"],
}
EVENTS = (
    *("token", "reasoning", "tool_call_delta", "tool_call", "tool_progress", "tool_result", "confirmation_required"),
    *("notice", "progress"),
)
STREAM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"event": {"enum": [*EVENTS, "done", "error"]}, "data": {"type": "object"}},
    "required": ["event", "data"],
}

TOOLS_CALL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "params": {"type": "object"},
        "input": {
            "type": "object",
            "properties": {
                "tool_call_id": {"type": "string"},
                "target_capability": {"type": "string"},
                "target_version": {"type": ["string", "array"]},
                "target_body": {"type": "object"},
            },
            "required": ["target_capability", "target_body"],
        },
    },
    "required": ["input"],
}


def read_reply(
    message: Mapping[str, Json], run_by_caller: Mapping[str, Call], undecided: Mapping[str, Call]
) -> Result | Decision:
    """What a caller has sent while its chat runs: the result of a call that it runs, or a decision on one that waits for it.

    `{"type": "tool_result", "tool_call_id": "tc_1", "body": …, "is_error": false}`, or `{"type": "confirmation", "tool_call_id":
    "tc_2", "approve": true}`. A UsageError for anything that nobody waits for.
    """
    fields, id = Fields(message), reply_id(message)
    match message.get("type"):
        case "tool_result" if id in run_by_caller:
            call = run_by_caller[id]
            if fields.flag("is_error"):
                return make_failure(call, "tool_error", str(fields.get("body")))
            return Result(call.id, call.name, fields.get("body"))
        case "confirmation" if id in undecided:
            return read_decision(fields)
        case other:
            known = ", ".join([*run_by_caller, *undecided])
            raise UsageError(f"{str(other)[:40]} for {id[:100]!r}: what is waited for are {known}", field="tool_call_id")


def reply_id(message: Mapping[str, Json]) -> str:
    """The id of the call that a message of the caller is about."""
    return Fields(message).text("tool_call_id") or ""
