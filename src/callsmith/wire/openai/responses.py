"""The request of `POST /v1/responses`, both ways. Answers: `openai/responses_events.py`.

    {"model": "qwen", "instructions": "Be brief.", "input": "Hi", "previous_response_id": "resp_1",
     "tools": [{"type": "function", "name": "add", "parameters": {…}}], "tool_choice": "auto"}

A request may refer to what is stored: `read_references` finds the references, `read_request` is given what they mean. As
lenient and as strict as for chat completions: unknown fields are skipped, what would change the answer and is not supported is
refused by name, kinds of tools too. `top_k`, `min_p`, `seed`, `stop`, `structured_outputs`, `tool_choice_policy` and `call_bias`
are understood as they are there. Of MCP servers those can be used that are configured where this is served (`openai/mcp.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from callsmith.core.types.thinking import EFFORTS
from callsmith.core.values import Choice, Json, Message, Request, Tool
from callsmith.wire import declare
from callsmith.wire.declare.thinking import NO_EFFORT, Thinking, ThinkingFields, read_effort
from callsmith.wire.extensions import ChoiceFields, ExtensionFields
from callsmith.wire.fields import Fields, without_none
from callsmith.wire.kinds import is_left_out, kinds_of, note_left_out, type_of
from callsmith.wire.kinds.custom import CUSTOM, write_definition
from callsmith.wire.kinds.table import CALL_ITEMS
from callsmith.wire.openai.chat import read_choice, read_parallel
from callsmith.wire.openai.items import (
    client_found,
    flat_name,
    is_server_search,
    item_kind,
    plain_searches,
    read_items,
    write_items,
)
from callsmith.wire.openai.kind_items import OUTPUT_ITEMS, output_call_id
from callsmith.wire.openai.mcp import (
    Decisions,
    McpServer,
    find_listed_servers,
    plain_items,
    read_server,
    write_server,
)
from callsmith.wire.openai.output import StructuredFields, read_text_format, write_text_output
from callsmith.wire.sampling import SamplingFields, stop_texts, token_limit, top_logprobs, write_sampling
from callsmith.wire.signed import NOTHING_SIGNED, Signed
from callsmith.wire.tools import MCP, ToolFields, read_tools, split_mcp_name

_LOGPROBS = "message.output_text.logprobs"
_EFFORTS = " | ".join(f'"{effort}"' for effort in (NO_EFFORT, *EFFORTS))

# What of a request is repeated in its response as it came, and what stands there if it did not come.
_REPEATED: Mapping[str, Json] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "store": True,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "user": None,
}

Namespaces = Mapping[str, tuple[str, str]]  # a tool's flat name → the namespace it stands in, and its name there


@dataclass(frozen=True, slots=True)
class StoredReferences:
    """What a request refers to: an earlier response or a conversation, and items given only by their ids."""

    previous: str = ""
    items: tuple[str, ...] = ()
    conversation: str = ""


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """What was asked, of which model, and how the answer is wanted.

    `input` are the items the request itself brought, `repeated` the fields that its response repeats. `servers` are the MCP
    servers it wants, `listed` those whose tools the conversation knows, `decisions` its answers on calls that wait. `notices` say
    what was left out.
    """

    model: str
    request: Request
    stream: bool = False
    store: bool = True
    previous: str = ""
    max_tool_calls: int | None = None
    namespaces: Namespaces = field(default_factory=dict[str, tuple[str, str]])
    servers: tuple[McpServer, ...] = ()
    background: bool = False
    decisions: Decisions = field(default_factory=Decisions, compare=False)
    listed: frozenset[str] = field(default=frozenset(), compare=False)
    notices: tuple[str, ...] = field(default=(), compare=False)
    input: tuple[Mapping[str, Json], ...] = field(default=(), compare=False)
    repeated: Mapping[str, Json] = field(default_factory=dict[str, Json], compare=False)


def _read_conversation(fields: Fields, key: str) -> str:
    """The id of the conversation a request belongs to: a string, or an object that has it."""
    value = fields.get(key)
    return value if isinstance(value, str) else fields.required_object(key).required_text("id")


def _read_input(fields: Fields, key: str) -> list[Fields]:
    value = fields.get(key)
    if isinstance(value, str):
        return [Fields({"role": "user", "content": value}, fields.at(key))]
    return list(fields.objects(key))


def _all_items(own: Sequence[Fields], earlier: Sequence[Json], known: Mapping[str, Json]) -> list[Fields]:
    before = [Fields.of(item, f"previous_response_id.{index}") for index, item in enumerate(earlier)]
    resolved = [Fields(known.get(item.text("id") or "", item.data), item.path) if _refers(item) else item for item in own]
    return [*before, *resolved]


def _check_outputs(own: Sequence[Fields], items: Sequence[Fields]) -> None:
    """Refuse an output of a call that the conversation does not have."""
    made = [item for item in items if item_kind(item) == "function_call" or item_kind(item) in CALL_ITEMS]
    calls = {item.text("call_id") or item.text("id") for item in made} | {item.text("id") for item in made}
    for item in own:
        if item_kind(item) == "function_call_output" and item.required_text("call_id") not in calls:
            raise item.error("call_id", f"there is no call {item.text('call_id')!r} of which this is the output")
        if item_kind(item) in OUTPUT_ITEMS and (id := output_call_id(item.data)) not in calls:
            raise item.error("call_id", f"there is no call {id!r} of which this is the output")


def _refers(item: Fields) -> bool:
    return item_kind(item) == "item_reference"


@declare.reuse
def _read_tools(fields: Fields, key: str) -> tuple[tuple[Tool, ...], Namespaces]:
    declared = list(fields.objects(key))
    return _read_entries(declared, searches=any(is_server_search(entry.data) for entry in declared))


def _read_entries(declared: Iterable[Fields], *, searches: bool = False) -> tuple[tuple[Tool, ...], Namespaces]:
    entries: list[Fields] = []
    spaces: dict[str, tuple[str, str]] = {}
    for entry in declared:
        if type_of(entry, "responses") != "namespace":
            entries.append(entry)
            continue
        space = entry.required_text("name")
        for inner in entry.objects("tools"):
            name = inner.required_text("name")
            spaces[flat_name(space, name)] = (space, name)
            entries.append(Fields({**inner.data, "name": flat_name(space, name)}, inner.path))
    return read_tools(entries, "parameters", api="responses", searches=searches), spaces


def _add_found(tools: tuple[Tool, ...], spaces: Namespaces, items: Iterable[Fields]) -> tuple[tuple[Tool, ...], Namespaces]:
    """The tools, and those that searches of the client have found: the latest definition of each, unless the request has one."""
    found: dict[str, Tool] = {}
    for entry in client_found(items):
        more, inner = _read_entries([entry])
        found |= {tool.name: tool for tool in more}
        spaces = {**inner, **spaces}
    if found:  # else the same tuple again: what was made for it is cached by it
        known = {tool.name for tool in tools}
        tools = (*tools, *(tool for tool in found.values() if tool.name not in known))
    return tools, spaces


class ResponsesToolFields(ToolFields, component="ResponsesFunction"):
    """A function that the model may call, flat or as chat completions wrap it."""

    type = declare.text(type='"function"')
    function = declare.nested(ToolFields)
    name = declare.text()


class ResponsesFields(
    declare.ModelFields,
    ChoiceFields,
    SamplingFields,
    ThinkingFields,
    StructuredFields,
    declare.CacheFields,
    ExtensionFields,
    component="ResponsesRequest",
):
    """What the model is to answer. Fields that are not listed are passed over."""

    input = declare.Field("string | InputItem[]", _read_input, "A text, or items.")
    instructions = declare.text("The system's message.")
    previous_response_id = declare.text("The response that this one goes on from.")
    conversation = declare.Field("string | {id: string}", _read_conversation, "The conversation that the response is added to.")
    tools = declare.Field("ResponsesTool[]", _read_tools)
    tool_choice = declare.Field("ToolChoice", read_choice)
    parallel_tool_calls = declare.flag()
    max_tool_calls = declare.integer("How many of the server's tools may be called.", least=0)
    max_output_tokens = token_limit()
    stop = stop_texts()
    top_logprobs = top_logprobs()
    include = declare.texts("message.output_text.logprobs; others are passed over.")
    text_format = declare.OutputField("partial {format: TextFormat, verbosity: any}", read_text_format, name="text")
    reasoning = declare.Field(
        f"partial {{effort: {_EFFORTS}, summary: string}}", Fields.object, "The effort none switches thinking off."
    )
    store = declare.flag("Whether the response is stored; it is, unless false.")
    background = declare.flag("Whether the answer goes on when the client is gone.")

    refused: ClassVar = {
        "access_programs": ({},),
        "context_management": ([],),
        "image": ({},),
        "moderation": (),
        "prompt": (),
        "truncation": ("disabled",),
    }
    ignored: ClassVar = {
        "metadata": "for the caller's own lists",
        "prompt_cache_options": "every prompt is cached",
        "prompt_cache_retention": "every prompt is cached, as long as there is room",
        "safety_identifier": "nobody is watched here",
        "service_tier": "there is one",
        "stream_options": "all it could ask for is padding against eavesdroppers",
        "user": "callers are told apart by their keys",
    }

    def read_thinking(self, effort: str | None = None) -> Thinking:
        return super().read_thinking(read_effort(self.reasoning, "effort") if self.reasoning else effort)

    def read_wanted(self) -> int | None:
        """How many of the likeliest tokens are to be listed for each. None: none, and no others."""
        return self.top_logprobs or (0 if _LOGPROBS in (self.include or ()) else None)


class CompactFields(declare.RequestFields):
    """A conversation to be summarised."""

    model = declare.required_text()
    input = declare.Field("string | InputItem[]", _read_input)
    previous_response_id = declare.text()
    instructions = declare.text()
    prompt_cache_key = declare.text()


def read_references(body: Json) -> StoredReferences:
    """What has to be looked up before this body can be read."""
    fields = ResponsesFields.of(body, "")
    ids = (item.required_text("id") for item in fields.input or () if _refers(item))
    previous, conversation = fields.previous_response_id or "", fields.conversation or ""
    if previous and conversation:
        raise fields.error("conversation", "cannot be used together with previous_response_id")
    return StoredReferences(previous, tuple(ids), conversation)


def read_request(body: Json, earlier: Sequence[Json] = (), known: Mapping[str, Json] | None = None) -> ResponsesRequest:
    """The request in a decoded JSON body; a UsageError names the field that is wrong.

    `earlier` are the items of the conversation it continues, `known` those it refers to, by id.
    """
    fields = ResponsesFields.of(body, "")
    fields.refuse_unsupported()
    own = fields.input or []
    items = _all_items(own, earlier, known or {})
    tools, spaces = _add_found(*(fields.tools or ((), {})), items)
    servers = tuple(read_server(entry) for entry in fields.objects("tools") if entry.get("type") == MCP)
    choice = fields.tool_choice or Choice()
    if tools and not servers:
        choice.among(tools)
    _check_outputs(own, items)
    plain, decisions = plain_items(plain_searches(items))
    messages = read_items(plain)
    if not messages:
        raise fields.error("input", "at least one item is required")
    system = (Message.system(fields.instructions),) if fields.instructions else ()
    return ResponsesRequest(
        model=fields.model or "",
        request=Request(
            origin=fields.read_origin(),
            messages=(*system, *messages),
            tools=tools,
            choice=choice,
            parallel=read_parallel(fields),
            sampling=fields.read_sampling(fields.max_output_tokens, fields.stop, fields.read_wanted()),
            **fields.read_thinking(),
            output=declare.read_output(fields),
            policy=fields.tool_choice_policy,
            call_bias=fields.call_bias,
        ),
        stream=fields.stream or False,
        store=fields.store is not False,
        background=fields.background or False,
        previous=fields.previous_response_id or "",
        max_tool_calls=fields.max_tool_calls,
        namespaces=spaces,
        servers=servers,
        decisions=decisions,
        listed=find_listed_servers(items),
        notices=note_left_out(fields.objects("tools"), "responses"),
        input=tuple(item.data for item in own),
        repeated=_repeat(fields),
    )


def _repeat(fields: ResponsesFields) -> dict[str, Json]:
    sent = {name: fields.get(name) for name in _REPEATED}
    reasoning = fields.reasoning
    return {
        **{name: _REPEATED[name] if value is None else value for name, value in sent.items()},
        "background": fields.background or False,
        "conversation": {"id": fields.conversation} if fields.conversation else None,
        "reasoning": {key: reasoning.get(key) if reasoning else None for key in ("effort", "summary")},
        "service_tier": "default",
        "tools": [_repeat_tool(entry) for entry in fields.objects("tools") if not is_left_out(entry, "responses")],
        "top_logprobs": fields.top_logprobs or 0,
        "truncation": "disabled",
    }


def _repeat_tool(entry: Fields) -> dict[str, Json]:
    """A tool as a response repeats it: a function has all of its fields."""
    if (type := type_of(entry, "responses")) == CUSTOM:
        return {"format": {"type": "text"}, **(entry.object(CUSTOM) or entry).data, "type": CUSTOM}
    if type != "function":
        return dict(entry.data)
    function = entry.object("function") or entry
    sent = {key: value for key, value in function.data.items() if value is not None}
    return {"description": None, "parameters": None, "strict": False, **sent, "type": "function"}


def _write_thinking(request: Request) -> dict[str, Json]:
    """The effort that is asked for; where it is only said that there is to be reasoning, that."""
    effort = NO_EFFORT if request.thinking is False else request.effort
    return {
        "reasoning": {"effort": effort} if effort else None,
        "chat_template_kwargs": {"enable_thinking": True} if request.thinking and not effort else None,
        "thinking_token_budget": request.thinking_budget,
    }


def write_request(response_request: ResponsesRequest, signed: Signed = NOTHING_SIGNED) -> dict[str, Json]:
    """The body that `read_request` reads back as the same request. How a tool is run does not travel."""
    request = response_request.request
    kinds = kinds_of(request.tools)
    body: dict[str, Json] = {
        "model": response_request.model,
        "input": write_items(request.messages, signed, kinds),
        "tools": [
            *(_write_tool(tool, response_request.namespaces) for tool in request.tools),
            *map(write_server, response_request.servers),
        ]
        or None,
        "tool_choice": _write_choice(request.choice, kinds),
        "parallel_tool_calls": request.parallel,
        **write_sampling(request.sampling, "max_output_tokens"),
        "include": None if request.sampling.logprobs is None else [_LOGPROBS],
        "top_logprobs": request.sampling.logprobs,
        **_write_thinking(request),
        **write_text_output(request.output),
        "tool_choice_policy": request.policy,
        "call_bias": request.call_bias,
        "max_tool_calls": response_request.max_tool_calls,
        "previous_response_id": response_request.previous or None,
        "store": None if response_request.store else False,
        "stream": response_request.stream or None,
        "background": response_request.background or None,
    }
    return without_none(body)


def _write_tool(tool: Tool, spaces: Namespaces) -> dict[str, Json]:
    space, name = spaces.get(tool.name, ("", tool.name))
    definition: dict[str, Json] = {"type": "function", "name": name, "parameters": dict(tool.parameters), "strict": tool.strict}
    if tool.kind == CUSTOM:
        definition = {"type": CUSTOM, **write_definition(tool, name, nested=False)}
    elif tool.description:
        definition["description"] = tool.description
    return {"type": "namespace", "name": space, "description": "", "tools": [definition]} if space else definition


def _write_choice(choice: Choice, kinds: Mapping[str, str]) -> Json:
    if choice.mode == "none" or not choice.names:
        return None if choice == Choice() else choice.mode
    tools = [_write_named(name, CUSTOM if kinds.get(name) == CUSTOM else "function") for name in choice.names]
    if choice.mode == "required" and len(tools) == 1:
        return tools[0]
    return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}


def _write_named(name: str, type: str) -> dict[str, Any]:
    label, own = split_mcp_name(name)
    if not label:
        return {"type": type, "name": name}
    return {"type": MCP, "server_label": label, **({} if own == "*" else {"name": own})}
