"""The request of `POST /v1/messages`, both ways. Messages: `blocks.py`, answers: `events.py`.

    {"model": "qwen", "max_tokens": 1024, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}],
     "tools": [{"name": "add", "input_schema": {…}}], "tool_choice": {"type": "auto"}}

Lenient: unknown fields are skipped, null is absence. Not lenient: what would change the answer and is not supported is refused by
name, never ignored, and so are kinds of tools that only their vendor runs; but for context management, which clients always send.
Fields of our own: `min_p`, `seed`, `tool_choice_policy` and `call_bias`, as in chat completions, and those of `extensions`.

What this API has no field for is not written: the name of a user, whether an output is strict (it always is), a choice among
some of the tools (only those are offered then). `DEFAULT_MAX_TOKENS` is written where a request sets no limit: it has to.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

from callsmith.core.errors import UsageError
from callsmith.core.schema import check_schema
from callsmith.core.types.thinking import MOST_BUDGET, Effort
from callsmith.core.values import Choice, Json, Message, Mode, Output, Request, Tool
from callsmith.wire import declare
from callsmith.wire.anthropic.blocks import read_messages, read_system, write_messages
from callsmith.wire.anthropic.common import ThreadsUnsupported
from callsmith.wire.anthropic.mcp import McpServer, read_search_tool, read_servers, write_servers
from callsmith.wire.declare.thinking import NO_EFFORT, BudgetFields, read_effort, settle_thinking
from callsmith.wire.extensions import ChoiceFields, ExtensionFields
from callsmith.wire.fields import Fields, without_none
from callsmith.wire.sampling import SamplingFields, stop_texts, write_sampling
from callsmith.wire.signed import NOTHING_SIGNED, Signed
from callsmith.wire.tools import ToolFields, read_tools, write_tool

DEFAULT_MAX_TOKENS = 8192

_SCHEMA = "input_schema"
_MODES: dict[str, Mode] = {"auto": "auto", "any": "required", "none": "none"}
_THINKING = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """What was asked, of which model, and how the answer is wanted. `thoughts`: whether reasoning is to be shown.

    `servers` are the MCP servers whose tools are to be run for it, `search_tool` is the name of the tool by which it wants those
    that are deferred to be found.
    """

    model: str
    request: Request
    stream: bool = False
    shows_thoughts: bool = True
    servers: tuple[McpServer, ...] = ()
    search_tool: str = ""


@declare.reuse
def _read_tools(fields: Fields, key: str) -> tuple[Tool, ...]:
    return read_tools(fields.objects(key), _SCHEMA, api="messages", searches=bool(read_search_tool(fields)))


class CustomToolFields(ToolFields, component="CustomTool"):
    """A tool that the model may call."""

    type = declare.text(type='"custom"')
    cache_control = declare.value("object", "Ignored: every prompt is cached.")


def _read_choice(fields: Fields, key: str) -> tuple[Choice, bool | None]:
    """The choice, and whether calls may be parallel. A tool that is named is called once, unless the request says that it may be
    called more often: a small model repeats its call until its tokens are used up."""
    choice = fields.required_object(key)
    single = choice.flag("disable_parallel_tool_use")
    parallel = None if single is None else not single
    if choice.get("specific") is not None:
        return Choice.only(choice.required_text("specific")), bool(parallel)
    kind = choice.required_text("type")
    if kind == "tool":
        return Choice.only(choice.required_text("name")), bool(parallel)
    if kind not in _MODES:
        raise choice.error("type", f"{kind!r} is none of {', '.join(_MODES)}, tool")
    return Choice(_MODES[kind]), parallel


def _read_thinking(fields: Fields, key: str) -> tuple[bool, bool, int | None]:
    """Whether the model is to reason, whether that is shown, and in how many tokens: fewer than the whole answer has."""
    thinking = fields.required_object(key)
    kind, budget = thinking.required_text("type"), None
    if kind not in _THINKING:
        raise thinking.error("type", f"{kind!r} is none of {', '.join(_THINKING)}")
    if thinking.get("budget_tokens") is not None:
        budget = thinking.integer("budget_tokens", 0, MOST_BUDGET)
        if budget and (most := fields.integer("max_tokens", 1)) is not None and budget >= most:
            raise thinking.error("budget_tokens", f"must be less than max_tokens, which is {most}: the answer needs some of them")
    return _THINKING[kind], thinking.text("display") != "omitted", budget


def _read_format(fields: Fields, key: str) -> Output:
    format = fields.required_object(key)
    if format.required_text("type") != "json_schema":
        raise format.error("type", f"{format.get('type')!r} is not supported, only json_schema")
    schema = format.required_object("schema")
    check_schema(schema.data, schema.path)
    return Output(schema.data, strict=True, as_written=format.flag("as_written") or False)


def _read_config(fields: Fields, key: str) -> Output | None:
    config = fields.required_object(key)
    read_effort(config, "effort")
    return None if config.get("format") is None else _read_format(config, "format")


class CountTokensFields(
    declare.ModelFields, ChoiceFields, SamplingFields, BudgetFields, ExtensionFields, component="CountTokensRequest"
):
    """Messages whose tokens are to be counted."""

    messages = declare.RequiredField(
        'partial {role!: "user" | "assistant" | "system", content: string | ContentBlock[]}[]', read_messages, minItems=1
    )
    max_tokens = declare.integer(least=1)
    system = declare.Field('string | partial {type!: "text", text: string, cache_control: object}[]', read_system)
    tools = declare.Field("AnthropicTool[]", _read_tools)
    tool_choice = declare.Field(
        'partial {type: "auto" | "any" | "none" | "tool", name: string, specific: string, disable_parallel_tool_use: boolean}',
        _read_choice,
    )
    stop_sequences = stop_texts()
    top_k = declare.integer("0: all tokens.", least=0)
    repeat_last_n = declare.integer("How many tokens the penalties look back on.", least=0)
    thinking = declare.Field("AnthropicThinking", _read_thinking)
    output_config = declare.OutputField("partial {format: OutputFormat, effort: string}", _read_config)
    output_format = declare.OutputField("OutputFormat", _read_format, "As output_config.format.")
    mcp_servers = declare.value("McpServer[]")
    refused: ClassVar = {"thread": (), "compaction": (), "container": (), "diagnostics": (), "fallbacks": ([],)}
    ignored: ClassVar = {
        "betas": "a header: every beta is welcome",
        "cache_control": "every prompt is cached",
        "context_management": "clients always send it; a history that does not fit is an error, and nothing is dropped",
        "fallback_credit_token": "nothing is billed",
        "inference_geo": "the model runs where the server does",
        "metadata": "for the caller's own lists",
        "service_tier": "there is one",
        "speed": "there is one",
        "user_profile_id": "callers are told apart by their keys",
        "workspace_id": "callers are told apart by their keys",
    }


class MessagesFields(CountTokensFields, component="MessagesRequest"):
    """Messages to be answered. Fields that are not listed are passed over."""

    max_tokens = declare.RequiredField("integer", lambda fields, key: fields.integer(key, 1), minimum=1)


def read_request(body: Json, *, counting: bool = False) -> MessagesRequest:
    """The request in a decoded JSON body; a UsageError names the field that is wrong. `counting`: nothing is to be generated."""
    fields = CountTokensFields.of(body, "")
    if fields.get("thread") is not None:
        raise ThreadsUnsupported
    fields.refuse_unsupported()
    tools, servers = fields.tools or (), read_servers(fields)
    choice, parallel = fields.tool_choice or (Choice(), None)
    if tools and not servers:
        choice.among(tools)
    enabled, thoughts, budget = fields.thinking or (None, True, None)
    config = fields.object("output_config")
    effort = read_effort(config, "effort") if config else None
    thinking = settle_thinking(enabled, None, fields.read_budget() if budget is None else budget)
    if effort not in (None, NO_EFFORT) and thinking["thinking"] is not False:  # here it does not say whether to reason
        thinking["effort"] = cast(Effort, effort)
    messages = (*(fields.system or ()), *fields.messages)
    request = Request(
        messages=messages,
        tools=tools,
        choice=choice,
        parallel=parallel,
        sampling=fields.read_sampling(fields.max_tokens, fields.stop_sequences),
        **thinking,
        output=declare.read_output(fields),
        policy=fields.tool_choice_policy,
        call_bias=fields.call_bias,
        prefill=messages[-1].role == "assistant",
    )
    if not counting and request.sampling.max_tokens is None:
        raise fields.error("max_tokens", "is required")
    if not counting and request.messages[-1].calls:
        raise fields.error("messages", "the last one has calls without results")
    return MessagesRequest(fields.model or "", request, fields.stream or False, thoughts, servers, read_search_tool(fields))


def write_request(messages_request: MessagesRequest, signed: Signed = NOTHING_SIGNED) -> dict[str, Json]:
    """The body that `read_request` reads back as the same request. How a tool is run does not travel."""
    request = messages_request.request
    first, *others = request.messages or (Message.user(""),)
    apart = first.role == "system" and bool(first.content) and bool(others)
    choice = request.choice
    allows_some = choice.mode != "none" and len(choice.names) > (choice.mode == "required")
    tools = choice.among(request.tools) if allows_some else request.tools
    servers, toolsets = write_servers(messages_request.servers)
    body: dict[str, Json] = {
        "model": messages_request.model,
        "max_tokens": DEFAULT_MAX_TOKENS,
        **without_none(write_sampling(request.sampling, "max_tokens", "stop_sequences")),
        "system": first.content if apart else None,
        "messages": write_messages(others if apart else request.messages, signed),
        "mcp_servers": servers or None,
        "tools": [*(write_tool(tool, _SCHEMA) for tool in tools), *toolsets] or None,
        "tool_choice": _write_choice(request) if tools or servers else None,
        "thinking": _write_thinking(request, messages_request.shows_thoughts),
        "thinking_token_budget": None if request.thinking else request.thinking_budget,
        "output_config": _write_config(request),
        "tool_choice_policy": request.policy,
        "call_bias": request.call_bias,
        "stream": messages_request.stream or None,
    }
    return without_none(body)


def _write_choice(request: Request) -> Json:
    choice = request.choice
    fields: dict[str, Json] = {}
    if choice.mode == "required" and len(choice.names) == 1:
        fields = {"type": "tool", "name": choice.names[0]}
    elif choice.mode != "auto" or request.parallel is not None:
        fields = {"type": next(spelled for spelled, mode in _MODES.items() if mode == choice.mode)}
    if request.parallel is not None and choice.mode != "none":
        fields["disable_parallel_tool_use"] = not request.parallel
    return fields or None


def _write_thinking(request: Request, thoughts: bool) -> Json:
    if request.thinking is None:
        return None
    if not request.thinking:
        return {"type": "disabled"}
    budget, display = request.thinking_budget, {} if thoughts else {"display": "omitted"}
    most = request.sampling.max_tokens or DEFAULT_MAX_TOKENS  # a budget that is not below it means nothing, and is refused
    return (
        {"type": "adaptive", **display}
        if budget is None or budget >= most
        else {"type": "enabled", "budget_tokens": budget, **display}
    )


def _write_config(request: Request) -> Json:
    format = _write_output(request.output)
    config = {**({"format": format} if format else {}), **({"effort": request.effort} if request.effort else {})}
    return config or None


def _write_output(output: Output | None) -> Json:
    if output is None:
        return None
    if output.schema is None:
        raise UsageError("this API can hold an answer to a schema only", field="output")
    as_written = {"as_written": True} if output.as_written else {}
    return {"type": "json_schema", "schema": dict(output.schema), **as_written}
