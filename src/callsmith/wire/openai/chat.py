"""The request of `POST /v1/chat/completions`, both ways. Answers: `openai/chat_events.py`.

    {"model": "qwen", "messages": [{"role": "user", "content": "Hi"}],
     "tools": [{"type": "function", "function": {"name": "add", "parameters": {…}}}], "tool_choice": "auto"}

Lenient: unknown fields are skipped, older and flat spellings understood, null is absence. Not lenient: what would change the
answer and is not supported is refused by name, never ignored, kinds of tools too. A field of our own: `tool_choice_policy`
("auto", "required_first_hop", "required_always") says how a `tool_choice` of "auto" is treated. Another, `call_bias`: how
much likelier calls are then, as log odds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

from callsmith.core.values import (
    Call,
    Choice,
    Json,
    Message,
    Mode,
    Request,
    Role,
    Tool,
)
from callsmith.wire import declare
from callsmith.wire.calls import read_arguments
from callsmith.wire.declare.thinking import ChatThinkingFields
from callsmith.wire.extensions import ChoiceFields, ExtensionFields
from callsmith.wire.fields import Fields, kind, without_none
from callsmith.wire.images import ContentBuilder, check_role, read_image_part, write_chat_content
from callsmith.wire.kinds import NO_KINDS, find_named, kinds_of
from callsmith.wire.kinds.custom import CUSTOM, INPUT, custom_call, read_input, write_definition
from callsmith.wire.openai.output import OutputFields, write_output
from callsmith.wire.sampling import (
    LogprobFields,
    SamplingFields,
    UnsupportedSampling,
    stop_texts,
    token_limit,
    write_sampling,
    write_wanted,
)
from callsmith.wire.signed import NOTHING_SIGNED, Signed, add_details, signed_turn
from callsmith.wire.tools import MCP, ToolFields, mcp_name, read_tools, write_function

MAX_CHOICES = 16  # answers to one request

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}

_MODES: dict[str, Mode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What was asked, of which model, and how the answer is wanted.

    `legacy`: through the deprecated `functions`. `shows_thoughts`: whether reasoning is to be shown.
    """

    model: str
    request: Request
    stream: bool = False
    include_usage: bool = False
    legacy: bool = False
    n: int = 1
    shows_thoughts: bool = True


@declare.reuse
def _read_tools(fields: Fields, key: str) -> tuple[Tool, ...]:
    return read_tools(fields.objects(key), "parameters", api="chat")


@declare.reuse
def _read_functions(fields: Fields, key: str) -> tuple[Tool, ...]:
    return read_tools((entry.object("function") or entry for entry in fields.objects(key)), "parameters")


def read_choice(fields: Fields, key: str) -> Choice:
    """Which tools may or must be called, in any of the spellings there are."""
    value = fields.get(key)
    if isinstance(value, str):
        if value not in _MODES:
            raise fields.error(key, f"{value!r} is none of {', '.join(_MODES)} or an object that names a function")
        return Choice(_MODES[value])
    choice = Fields.of(value, fields.at(key))
    if choice.get("specific") is not None:
        return Choice.only(choice.required_text("specific"))
    choice_type = choice.text("type") or "function"
    if choice_type in _MODES:
        return Choice(_MODES[choice_type])
    if choice_type == "allowed_tools":
        return _read_allowed(choice.object("allowed_tools") or choice)
    return Choice.only(_read_chosen(choice))


def read_parallel(fields: Fields) -> bool | None:
    """Whether several calls may be made, where something says so. A tool that is named, and not only allowed, is called once."""
    stated, choice = fields.flag("parallel_tool_calls"), fields.get("tool_choice")
    if stated is not None or not isinstance(choice, Mapping):
        return stated
    is_named = Fields.of(choice, fields.at("tool_choice")).text("type") not in (*_MODES, "allowed_tools", MCP)
    return False if is_named else None


def _read_chosen(choice: Fields) -> str:
    """The name of the tool that is chosen. Tools of MCP servers are chosen by their `mcp_name`, for their names here are not
    known; tools of some kinds have no other name than that of the kind."""
    chosen = choice.text("type") or "function"
    if chosen == MCP:
        return mcp_name(choice.required_text("server_label"), choice.text("name") or "*")
    if chosen in ("function", "tool", CUSTOM):
        return (choice.object(chosen) or choice).required_text("name")
    kind = find_named(chosen)
    if kind is None or not kind.name:
        raise choice.error("type", f"{chosen!r} is not supported")
    return kind.name


def _read_allowed(fields: Fields) -> Choice:
    mode = fields.text("mode") or "auto"
    if mode not in _MODES:
        raise fields.error("mode", f"{mode!r} is neither auto nor required")
    names = [_read_chosen(entry) for entry in fields.objects("tools")]
    if not names:
        raise fields.error("tools", "no tool is allowed; ask for tool_choice none instead")
    return Choice(_MODES[mode], tuple(names))


def _read_messages(fields: Fields, key: str) -> tuple[Message, ...]:
    if not fields.array(key):
        raise fields.error(key, "at least one message is required")
    called = _Called()
    messages: list[Message] = []
    for index, entry in enumerate(fields.objects(key)):
        messages.append(_read_message(entry, called, f"call_{index}"))
        for call in messages[-1].calls:
            called.names[call.id] = call.name
            called.latest[call.name] = call.id
    return tuple(messages)


@dataclass(slots=True)
class _Called:
    """The calls so far. A template may need the name of a tool, which tool messages leave out."""

    names: dict[str, str] = field(default_factory=dict[str, str])  # by the ids of calls
    latest: dict[str, str] = field(default_factory=dict[str, str])  # the id of the latest call, by the names of tools


def _read_message(fields: Fields, called: _Called, spare_id: str) -> Message:
    spelled = fields.required_text("role")
    if spelled not in _ROLES:
        raise fields.error("role", f"{spelled!r} is none of {', '.join(_ROLES)}")
    name = fields.text("name") or ""
    message = read_message(fields, _ROLES[spelled], name=name)
    if spelled == "function":
        # The deprecated form has no ids: the answer belongs to the latest call of that name.
        return replace(message, call_id=called.latest.get(name, ""), name=fields.required_text("name"))
    if message.role == "tool":
        call_id = fields.required_text("tool_call_id")
        return replace(message, call_id=call_id, name=name or called.names.get(call_id, ""))
    if message.role == "assistant":
        calls = [_read_call(entry, entry.text("id") or "") for entry in fields.objects("tool_calls")]
        deprecated = fields.object("function_call")
        if deprecated is not None:
            calls.append(_read_call(deprecated, spare_id))
        said = message.content or fields.text("refusal") or ""
        thought = fields.text("reasoning_content") or fields.text("reasoning") or ""
        return replace(message, content=said, calls=tuple(calls), reasoning=thought)
    return message


def read_message(fields: Fields, role: Role, key: str = "content", name: str = "") -> Message:
    """A message of a content that is a text, or parts: texts and images."""
    content = fields.get(key)
    if content is None or isinstance(content, str):
        return Message(role, content or "", name=name)
    if not isinstance(content, list):
        raise fields.error(key, f"expected a string or an array of parts, got {kind(content)}")
    built = ContentBuilder()
    for index, part in enumerate(cast(list[Json], content)):
        if isinstance(part, str):
            built.add_text(part)
            continue
        inner = Fields.of(part, fields.at(f"{key}.{index}"))
        match inner.text("type") or "text":
            case "text" | "input_text" | "output_text":
                built.add_text(inner.text("text") or "")
            case "refusal":
                built.add_text(inner.text("refusal") or "")
            case "image_url" | "input_image":
                built.add_image(*read_image_part(inner))
            case other:
                raise inner.error("type", f"parts of type {other!r} are not supported, only text and images")
    return check_role(fields, key, built.message(role, name))


def _read_call(fields: Fields, call_id: str) -> Call:
    called = fields.text("type") or "function"
    if called not in ("function", CUSTOM):
        raise fields.error("type", f"calls of type {called!r} are not supported")
    inner = fields.object(called) or fields
    name, value = inner.required_text("name"), inner.get("arguments")
    if called == CUSTOM:
        return custom_call(name, inner.text(INPUT) or "", call_id)
    if isinstance(value, dict):
        return Call(name, cast(dict[str, Json], value), call_id)
    text = inner.text("arguments") or ""
    return Call(name, read_arguments(text) or {}, call_id, text)


class FlatToolFields(ToolFields, component="FlatFunction"):
    """A function that is not wrapped."""

    type = declare.text()


class ChatFields(
    declare.ModelFields,
    ChoiceFields,
    SamplingFields,
    LogprobFields,
    OutputFields,
    declare.StreamFields,
    ChatThinkingFields,
    declare.CacheFields,
    ExtensionFields,
    UnsupportedSampling,
    component="ChatRequest",
):
    """A chat to be continued. Fields that are not listed are passed over."""

    messages = declare.RequiredField("ChatMessage[]", _read_messages, minItems=1)
    tools = declare.Field("ChatTool[]", _read_tools)
    tool_choice = declare.Field("ToolChoice", read_choice)
    parallel_tool_calls = declare.flag()
    functions = declare.Field("ChatTool[]", _read_functions, "Deprecated: tools.")
    function_call = declare.Field("ToolChoice", read_choice, "Deprecated: tool_choice.")
    max_completion_tokens = token_limit("As max_tokens.")
    max_tokens = token_limit()
    stop = stop_texts()
    n = declare.integer(least=1, most=MAX_CHOICES)
    include_reasoning = declare.flag("Whether the answer shows the reasoning.")
    continue_final_message = declare.flag("Whether the model goes on from the last message.")
    add_generation_prompt = declare.flag("false with continue_final_message, else true.")

    refused: ClassVar = {
        "audio": (),
        "chat_template": ("",),
        "documents": ([],),
        "echo": (False,),
        "modalities": (["text"], []),
        "moderation": (),
        "web_search_options": (),
    }
    ignored: ClassVar = {
        "metadata": "for the caller's own lists",
        "prediction": "answers come no faster, and are the same",
        "prompt_cache_options": "every prompt is cached",
        "prompt_cache_retention": "every prompt is cached, as long as there is room",
        "safety_identifier": "nobody is watched here",
        "service_tier": "there is one",
        "store": "the answer is the same; completions cannot be fetched again",
        "user": "callers are told apart by their keys",
        "verbosity": "no model here was trained for it; clients send it unasked",
    }


def read_request(body: Json) -> ChatRequest:
    """The request in a decoded JSON body; a UsageError names the field that is wrong."""
    fields = ChatFields.of(body, "")
    fields.refuse_unsupported()
    legacy = fields.get("functions") is not None and fields.get("tools") is None
    tools = (fields.functions if legacy else fields.tools) or ()
    choice = fields.tool_choice or fields.function_call or Choice()
    if tools:
        choice.among(tools)
    messages = fields.messages
    limit = fields.max_tokens if fields.get("max_completion_tokens") is None else fields.max_completion_tokens
    return ChatRequest(
        model=fields.model or "",
        request=Request(
            origin=fields.read_origin(),
            messages=messages,
            tools=tools,
            choice=choice,
            parallel=False if legacy else read_parallel(fields),  # the deprecated answer holds one `function_call`
            sampling=fields.read_sampling(limit, fields.stop, fields.read_wanted()),
            **fields.read_thinking(),
            output=declare.read_output(fields),
            policy=fields.tool_choice_policy,
            call_bias=fields.call_bias,
            prefill=_read_prefill(fields, messages[-1]),
        ),
        stream=fields.stream or False,
        include_usage=fields.stream_options or False,
        legacy=legacy,
        n=fields.n or 1,
        shows_thoughts=fields.include_reasoning is not False and not fields.hides_thoughts,
    )


def _read_prefill(fields: ChatFields, last: Message) -> bool:
    """Whether the last message is to be continued. The template's opening of a new answer belongs to it or to nothing."""
    continues, opens = fields.continue_final_message or False, fields.add_generation_prompt
    if opens is not None and opens == continues:
        why = "must be false where the last message is continued" if continues else "false needs continue_final_message"
        raise fields.error("add_generation_prompt", why)
    if continues and (last.role != "assistant" or last.calls):
        raise fields.error("continue_final_message", "the last message is none of the assistant's, or has calls")
    return continues


def write_request(chat: ChatRequest, signed: Signed = NOTHING_SIGNED) -> dict[str, Json]:
    """The body that `read_request` reads back as the same request. How a tool is run does not travel."""
    request, kinds = chat.request, kinds_of(chat.request.tools)
    wrapped = [_write_tool(tool) for tool in request.tools]
    body: dict[str, Json] = {
        "model": chat.model,
        "messages": [_write_message(message, signed, kinds) for message in request.messages],
        "functions": [item["function"] for item in wrapped] if chat.legacy else None,
        "tools": None if chat.legacy else wrapped or None,
        "tool_choice": write_choice(request.choice, kinds),
        "parallel_tool_calls": None if chat.legacy else request.parallel,
        **write_sampling(request.sampling, "max_completion_tokens"),
        **write_wanted(request.sampling.logprobs),
        "chat_template_kwargs": None if request.thinking is None else {"enable_thinking": request.thinking},
        "reasoning_effort": request.effort,
        "thinking_token_budget": request.thinking_budget,
        **write_output(request.output),
        "tool_choice_policy": request.policy,
        "call_bias": request.call_bias,
        "n": chat.n if chat.n > 1 else None,
        "continue_final_message": request.prefill or None,
        "add_generation_prompt": False if request.prefill else None,
        "include_reasoning": None if chat.shows_thoughts else False,
        "stream": chat.stream or None,
        "stream_options": {"include_usage": True} if chat.include_usage else None,
    }
    return without_none(body)


def _write_tool(tool: Tool) -> dict[str, Json]:
    """A custom tool as such, and any other one as a function."""
    if tool.kind != CUSTOM:
        return write_function(tool)
    return {"type": CUSTOM, CUSTOM: write_definition(tool, tool.name, nested=True)}


def write_choice(choice: Choice, kinds: Mapping[str, str] = NO_KINDS) -> Json:
    """What `read_choice` reads back as this choice. `kinds` are those of tools that are no functions."""
    if choice.mode == "none" or not choice.names:
        return None if choice == Choice() else choice.mode
    types = [(name, CUSTOM if kinds.get(name) == CUSTOM else "function") for name in choice.names]
    tools = [{"type": type, type: {"name": name}} for name, type in types]
    if choice.mode == "required" and len(tools) == 1:
        return tools[0]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}}


def _write_message(message: Message, signed: Signed, kinds: Mapping[str, str]) -> dict[str, Json]:
    fields: dict[str, Json] = {"role": message.role, "content": write_chat_content(message)}
    if message.name:
        fields["name"] = message.name
    if message.role == "tool":
        fields["tool_call_id"] = message.call_id
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    if message.calls:
        fields["content"] = message.content or None
        fields["tool_calls"] = [write_call(call, kinds.get(call.name, "")) for call in message.calls]
        if details := signed_turn(message, signed):
            return add_details(fields, details)
    return fields


def write_call(call: Call, kind: str = "") -> dict[str, Json]:
    if kind == CUSTOM:
        return {"id": call.id, "type": CUSTOM, CUSTOM: {"name": call.name, INPUT: read_input(call.text)}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
