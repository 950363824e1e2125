"""The request of `POST /v1/messages`, both ways. Answers: `anthropic/events.py`.

    {"model": "qwen", "max_tokens": 1024, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}],
     "tools": [{"name": "add", "input_schema": {…}}], "tool_choice": {"type": "auto"}}

Lenient: unknown fields and the vendor's own kinds of tools are skipped, null is absence. Not lenient: what would change the
answer and is not supported is refused by name, never ignored. Three things are tolerated though nothing comes of them, because
clients always send them: a budget for thinking, an effort, and context management. Fields of our own: `min_p`, `seed`,
`tool_choice_policy` and `call_bias`, as in chat completions, and those that `extensions` reads.

What this API has no field for is not written: the name of a user, whether an output is strict (it always is), a choice among
some of the tools (only those are offered then). `DEFAULT_MAX_TOKENS` is written where a request sets no limit: it has to.

A call of an MCP server's tool comes back with its result inside the assistant's message: it is read as a call, by its `mcp_name`,
and a tool's message behind it. Calls of one round that ran one after the other are read as rounds of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from callsmith.core.choice import FIND_TOOLS
from callsmith.core.errors import UsageError
from callsmith.core.schema import check_schema
from callsmith.core.values import Call, Choice, Json, Message, Mode, Output, Request, Role, Tool
from callsmith.wire.anthropic.common import ThreadsUnsupported
from callsmith.wire.anthropic.mcp import McpServer, read_servers, write_servers
from callsmith.wire.anthropic.tool_search import (
    SEARCH_RESULT,
    SERVER_TOOL_USE,
    is_search,
    read_search_result,
    read_search_tool,
)
from callsmith.wire.extensions import read_call_bias, read_policy
from callsmith.wire.fields import Fields, kind, without_none
from callsmith.wire.images import ContentBuilder, read_image_block, write_blocks
from callsmith.wire.mcp_names import mcp_name
from callsmith.wire.sampling import read_sampling, write_sampling
from callsmith.wire.signed import NOTHING_SIGNED, Signed, signed_turn
from callsmith.wire.tools import read_tools, write_tool

SIGNATURE = "callsmith"  # of every thought we give: clients send a thought back only if it is signed
DEFAULT_MAX_TOKENS = 8192

# Fields that are not supported, each with the values that ask for nothing.
NEUTRAL: dict[str, tuple[Json, ...]] = {"compaction": (), "container": (), "diagnostics": (), "fallbacks": ([],)}
# Fields of which nothing comes, and why that does no harm.
HINTS: dict[str, str] = {
    "betas": "a header: every beta is welcome",
    "cache_control": "every prompt is cached",
    "context_management": "clients always send it; a history that does not fit is an error, and nothing is dropped from it",
    "fallback_credit_token": "nothing is billed",
    "inference_geo": "the model runs where the server does",
    "metadata": "for the caller's own lists",
    "service_tier": "there is one",
    "speed": "there is one",
    "user_profile_id": "callers are told apart by their keys",
    "workspace_id": "callers are told apart by their keys",
}
_SCHEMA = "input_schema"
_MODES: dict[str, Mode] = {"auto": "auto", "any": "required", "none": "none"}
_THINKING = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}
_RUN_HERE, _RESULTS = ("mcp_tool_use", SERVER_TOOL_USE), ("mcp_tool_result", SEARCH_RESULT)
_BILLING = "x-anthropic-billing-header:"  # Claude Code's first system block; another one each time, it would defeat every cache


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


def read_request(body: Json, *, counting: bool = False) -> MessagesRequest:
    """The request in a decoded JSON body; a UsageError names the field that is wrong. `counting`: nothing is to be generated."""
    fields = Fields.of(body, "")
    if fields.get("thread") is not None:
        raise ThreadsUnsupported
    fields.refuse_unsupported(NEUTRAL)
    tools, servers = fields.cached("tools", _read_tools), read_servers(fields)
    choice, parallel = _read_choice(fields)
    if tools and not servers:
        choice.among(tools)
    thinking, thoughts = _read_thinking(fields)
    messages = (*_read_system(fields), *_read_messages(fields))
    request = Request(
        messages=messages,
        tools=tools,
        choice=choice,
        parallel=parallel,
        sampling=read_sampling(fields, "max_tokens", "stop_sequences", allows_minus_one=False),
        thinking=thinking,
        output=_read_output(fields),
        policy=read_policy(fields),
        call_bias=read_call_bias(fields),
        prefill=messages[-1].role == "assistant",
    )
    if not counting and request.sampling.max_tokens is None:
        raise fields.error("max_tokens", "is required")
    if not counting and request.messages[-1].calls:
        raise fields.error("messages", "the last one has calls without results")
    stream, search_tool = fields.flag("stream") or False, read_search_tool(fields)
    return MessagesRequest(fields.text("model") or "", request, stream, thoughts, servers, search_tool)


def _read_tools(fields: Fields, key: str) -> tuple[Tool, ...]:
    custom = (entry for entry in fields.objects(key) if (entry.text("type") or "custom") == "custom")
    return read_tools(custom, _SCHEMA, searches=bool(read_search_tool(fields)))


def _read_choice(fields: Fields) -> tuple[Choice, bool | None]:
    choice = fields.object("tool_choice")
    if choice is None:
        return Choice(), None
    single = choice.flag("disable_parallel_tool_use")
    parallel = None if single is None else not single
    if choice.get("specific") is not None:
        return Choice.only(choice.required_text("specific")), parallel
    named = choice.required_text("type")
    if named == "tool":
        return Choice.only(choice.required_text("name")), parallel
    if named not in _MODES:
        raise choice.error("type", f"{named!r} is none of {', '.join(_MODES)}, tool")
    return Choice(_MODES[named]), parallel


def _read_thinking(fields: Fields) -> tuple[bool | None, bool]:
    thinking = fields.object("thinking")
    if thinking is None:
        return None, True
    named = thinking.required_text("type")
    if named not in _THINKING:
        raise thinking.error("type", f"{named!r} is none of {', '.join(_THINKING)}")
    return _THINKING[named], thinking.text("display") != "omitted"


def _read_output(fields: Fields) -> Output | None:
    config = fields.object("output_config")
    format, older = config.object("format") if config else None, fields.object("output_format")
    if format is not None and older is not None:
        raise fields.error("output_format", "an answer can be constrained once, and output_config.format does so already")
    format = format or older
    if format is None:
        return None
    if format.required_text("type") != "json_schema":
        raise format.error("type", f"{format.get('type')!r} is not supported, only json_schema")
    schema = format.required_object("schema")
    check_schema(schema.data, schema.path)
    return Output(schema.data, strict=True, as_written=format.flag("as_written") or False)


def _read_system(fields: Fields) -> tuple[Message, ...]:
    texts = [_read_text(block) for block in _blocks(fields, "system")]
    if isinstance(fields.get("system"), list):
        texts = [text for text in texts if not text.startswith(_BILLING)]
    text = "\n".join(texts)
    return (Message.system(text),) if text else ()


def _read_messages(fields: Fields) -> list[Message]:
    if not fields.array("messages"):
        raise fields.error("messages", "at least one message is required")
    called: dict[str, str] = {}  # call id → tool name: a template may need the name, which results leave out
    messages: list[Message] = []
    for entry in fields.objects("messages"):
        match entry.required_text("role"):
            case "user":
                messages += _read_user(entry, called)
            case "assistant":
                answered = _read_assistant(entry)
                messages += answered
                called |= {call.id: call.name for message in answered for call in message.calls}
            case "system":
                messages.append(Message.system(_joined(entry)))
            case other:
                raise entry.error("role", f"{other!r} is none of user, assistant, system")
    return messages


def _read_user(fields: Fields, called: dict[str, str]) -> list[Message]:
    """Results first, whatever stands before them: they belong right behind the calls."""
    results: list[Message] = []
    others: list[Fields] = []
    for block in _blocks(fields, "content"):
        if block.text("type") == "tool_result":
            call_id = block.required_text("tool_use_id")
            results.append(replace(_read_result(block), call_id=call_id, name=called.get(call_id, "")))
        else:
            others.append(block)
    return [*results, _read_blocks(others, "user")] if others or not results else results


def _read_result(fields: Fields) -> Message:
    message = _read_blocks(_blocks(fields, "content"), "tool")
    text = message.content
    if not fields.flag("is_error") or text.lower().startswith("error"):
        return message
    head = "Error: " if text else "Error"
    images = tuple(replace(image, at=image.at + len(head)) for image in message.images)
    return replace(message, content=head + text, images=images)


def _read_blocks(blocks: Iterable[Fields], role: Role) -> Message:
    """A message of texts and images."""
    built = ContentBuilder()
    for block in blocks:
        if block.text("type") == "image":
            built.add_image(read_image_block(block))
        else:
            built.add_text(_read_text(block))
    return built.message(role)


def _read_assistant(fields: Fields) -> list[Message]:
    """An answer; with what ran on the server in between it is several, each with its results."""
    messages: list[Message] = []
    part = _Round()
    for block in _blocks(fields, "content"):
        kind = block.text("type")
        if part.results and kind not in _RESULTS and (kind not in _RUN_HERE or not part.waiting):
            messages += part.messages()
            part = _Round()
        part.add(block)
    return messages + part.messages()


@dataclass(slots=True)
class _Round:
    """One round of the model: text, calls, and the results of those calls that ran on the server."""

    said: list[str] = field(default_factory=list[str])
    thought: list[str] = field(default_factory=list[str])
    calls: list[Call] = field(default_factory=list[Call])
    results: list[Message] = field(default_factory=list[Message])
    waiting: dict[str, str] = field(default_factory=dict[str, str])  # names of the server's calls without a result, by id

    def add(self, block: Fields) -> None:
        match block.text("type"):
            case "thinking":
                self.thought.append(block.text("thinking") or "")
            case "redacted_thinking" | "mcp_tool_listing":
                pass  # nobody but its author can read the one, and the other is known here
            case "tool_use":
                self.calls.append(_read_call(block, block.required_text("name")))
            case "mcp_tool_use":
                call = _read_call(block, mcp_name(block.required_text("server_name"), block.required_text("name")))
                self.calls.append(call)
                self.waiting[call.id] = call.name
            case "server_tool_use" if is_search(block.text("name") or ""):
                call = _read_call(block, FIND_TOOLS)
                self.calls.append(call)
                self.waiting[call.id] = FIND_TOOLS
            case "mcp_tool_result" | "tool_search_tool_result" as kind:
                id = block.required_text("tool_use_id")
                if id not in self.waiting:
                    before = kind.replace("mcp_tool_result", "mcp_tool_use").replace(SEARCH_RESULT, SERVER_TOOL_USE)
                    raise block.error("tool_use_id", f"there is no {before} {id!r} before it that waits for a result")
                failed = "Error" if block.flag("is_error") else ""
                text = read_search_result(block) if kind == SEARCH_RESULT else _joined(block) or failed
                self.results.append(Message("tool", text, call_id=id, name=self.waiting.pop(id)))
            case _:
                self.said.append(_read_text(block))

    def messages(self) -> list[Message]:
        """The answer, and its results in the order of the calls, whichever came first."""
        places = {call.id: place for place, call in enumerate(self.calls)}
        answer = Message.assistant("".join(self.said), reasoning="".join(self.thought), calls=self.calls)
        return [answer, *sorted(self.results, key=lambda result: places[result.call_id])]


def _read_call(block: Fields, name: str) -> Call:
    arguments = block.object("input")
    return Call(name, arguments.data if arguments else {}, block.text("id") or "")


def _blocks(fields: Fields, key: str) -> Iterator[Fields]:
    """The blocks of a content; a string is short for one block of text."""
    value = fields.get(key)
    if isinstance(value, str):
        return iter([Fields({"type": "text", "text": value}, fields.at(key))])
    if value is not None and not isinstance(value, list):
        raise fields.error(key, f"expected a string or an array of blocks, got {kind(value)}")
    return fields.objects(key)


def _joined(fields: Fields) -> str:
    return "\n".join(_read_text(block) for block in _blocks(fields, "content"))


def _read_text(block: Fields) -> str:
    match block.required_text("type"):
        case "text":
            return block.text("text") or ""
        case "tool_reference":
            return block.required_text("tool_name")  # what a search for tools has found; here they are all known anyway
        case other:
            raise block.error("type", f"blocks of type {other!r} are not supported here")


def write_request(asked: MessagesRequest, signed: Signed = NOTHING_SIGNED) -> dict[str, Json]:
    """The body that `read_request` reads back as the same request. How a tool is run does not travel."""
    request = asked.request
    first, *others = request.messages or (Message.user(""),)
    apart = first.role == "system" and bool(first.content) and bool(others)
    tools = request.choice.among(request.tools) if _is_subset(request.choice) else request.tools
    servers, toolsets = write_servers(asked.servers)
    body: dict[str, Json] = {
        "model": asked.model,
        "max_tokens": DEFAULT_MAX_TOKENS,
        **without_none(write_sampling(request.sampling, "max_tokens", "stop_sequences")),
        "system": first.content if apart else None,
        "messages": _write_messages(others if apart else request.messages, signed),
        "mcp_servers": servers or None,
        "tools": [*(write_tool(tool, _SCHEMA) for tool in tools), *toolsets] or None,
        "tool_choice": _write_choice(request) if tools or servers else None,
        "thinking": _write_thinking(request.thinking, asked.shows_thoughts),
        "output_config": _write_output(request.output),
        "tool_choice_policy": request.policy,
        "call_bias": request.call_bias,
        "stream": asked.stream or None,
    }
    return without_none(body)


def _is_subset(choice: Choice) -> bool:
    """Whether a choice allows only some of the tools."""
    return choice.mode != "none" and len(choice.names) > (choice.mode == "required")


def _write_choice(request: Request) -> Json:
    choice = request.choice
    written: dict[str, Json] = {}
    if choice.mode == "required" and len(choice.names) == 1:
        written = {"type": "tool", "name": choice.names[0]}
    elif choice.mode != "auto" or request.parallel is not None:
        written = {"type": next(spelled for spelled, mode in _MODES.items() if mode == choice.mode)}
    if request.parallel is not None and choice.mode != "none":
        written["disable_parallel_tool_use"] = not request.parallel
    return written or None


def _write_thinking(thinking: bool | None, thoughts: bool) -> Json:
    if thinking is None:
        return None
    if not thinking:
        return {"type": "disabled"}
    return {"type": "adaptive"} if thoughts else {"type": "adaptive", "display": "omitted"}


def _write_output(output: Output | None) -> Json:
    if output is None:
        return None
    if output.schema is None:
        raise UsageError("this API can hold an answer to a schema only", field="output")
    as_written = {"as_written": True} if output.as_written else {}
    return {"format": {"type": "json_schema", "schema": dict(output.schema), **as_written}}


def _write_messages(messages: Sequence[Message], signed: Signed) -> list[Json]:
    written: list[Json] = []
    answering = False  # the results of one round go into one message
    for message in messages:
        if message.role == "tool":
            content = write_blocks(message) if message.images else message.content
            result = {"type": "tool_result", "tool_use_id": message.call_id, "content": content}
            if answering:
                written[-1]["content"].append(result)
            else:
                written.append({"role": "user", "content": [result]})
        else:
            written.append({"role": message.role, "content": signed_turn(message, signed) or _write_content(message)})
        answering = message.role == "tool"
    return written


def _write_content(message: Message) -> Json:
    if not message.reasoning and not message.calls:
        return write_blocks(message) if message.images else message.content
    blocks: list[Json] = []
    if message.reasoning:
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": SIGNATURE})
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    calls = ({"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)} for call in message.calls)
    return [*blocks, *calls]
