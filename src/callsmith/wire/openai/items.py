"""The items of a conversation in `/v1/responses`, and the messages they make.

    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
    {"type": "function_call_output", "call_id": "call_1", "output": "3"}
    {"type": "tool_search_call", "id": "tsc_1", "call_id": null, "execution": "server", "arguments": {"query": "add numbers"}}
    {"type": "tool_search_output", "id": "tso_1", "call_id": null, "execution": "server", "tools": [{"type": "function", …}]}
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "callsmith:VGhleSBhZ3JlZWQg…"}

One answer of a model is several items: reasoning, what was said and the calls behind each other make one message.

A compaction stands for a conversation of which only what its user said and a summary of all of it are left. A client sends the
item back as it came. The summary in it is encoded and not encrypted: it is the client's own conversation, and is read as
something that the assistant said.

A search for tools runs here where a request declares `{"type": "tool_search"}`. One that the client wants to run itself
(`"execution": "client"`) is a tool like any other, and nothing is deferred; what its outputs have found is offered from then on.
"""

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Literal, cast

from callsmith.core.choice import FIND_TOOLS, found_text
from callsmith.core.values import Call, Json, Message, Role
from callsmith.wire.calls import arguments_text, read_arguments
from callsmith.wire.fields import Fields
from callsmith.wire.images import write_input
from callsmith.wire.kinds import NO_KINDS
from callsmith.wire.kinds.custom import CUSTOM
from callsmith.wire.kinds.table import CALL_ITEMS
from callsmith.wire.openai.chat import read_message
from callsmith.wire.openai.kind_items import OUTPUT_ITEMS, output_call_id, read_kind_call, read_kind_output, write_call
from callsmith.wire.openai.mcp import WITHOUT_STATUS
from callsmith.wire.signed import NOTHING_SIGNED, Signed, signed_turn

COMPACTION = "compaction"
SUMMARISE = (
    "Summarise our conversation so far, so that it can be continued from the summary alone. Keep all facts, names, numbers, "
    "decisions and results of tools, and say what is still to be done. Write only the summary."
)
_OURS = "callsmith:"

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# What other servers' own tools leave behind: nothing a model here could make use of.
_FROM_VENDOR_TOOLS = frozenset({"file_search_call", "web_search_call"})

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_list_tools": "mcpl",
    "mcp_call": "mcp",
    "mcp_approval_response": "mcpr",
    "compaction": "cmp",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "custom_tool_call": "ctc",
    "local_shell_call": "lsh",
    "shell_call": "sh",
    "apply_patch_call": "apc",
    "computer_call": "cu",
}


def item_id(kind: str, key: str, number: int | str) -> str:
    """The id of an item: its kind shows, and the key of the response it belongs to makes it unique."""
    return f"{_PREFIXES.get(kind, 'item')}_{key}_{number}"


def item_kind(item: Fields) -> str:
    """What kind of item it is; messages and references may leave it out."""
    return item.text("type") or ("item_reference" if item.get("role") is None and item.get("id") is not None else "message")


def flat_name(namespace: str | None, name: str) -> str:
    """One name for a tool that stands in a namespace."""
    return f"{namespace.rstrip('_')}__{name}" if namespace else name


def read_items(items: Iterable[Fields]) -> tuple[Message, ...]:
    """The messages these items make. For items of MCP servers, see `plain_items`."""
    builder = _MessageBuilder()
    for item in items:
        builder.add(item)
    return builder.messages()


class _MessageBuilder:
    """Puts messages together from items. `_answer` are the parts of an answer to which further items may belong."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._answer: list[Message] = []
        self._said, self._called_any = False, False  # whether the answer has text, and calls
        self._called: dict[str, str] = {}  # call id → tool name: outputs leave it out
        self._same: dict[str, str] = {}  # id of the item of a call → call id: some outputs have that

    def add(self, item: Fields) -> None:
        match item_kind(item):
            case "message":
                self._message(item)
            case "reasoning":
                thoughts = item.objects("content" if item.get("content") else "summary")
                self._add_to_answer(Message.assistant(reasoning="\n".join(part.text("text") or "" for part in thoughts)))
            case "function_call":
                call_id, text = item.text("call_id") or item.required_text("id"), item.text("arguments") or ""
                name = self._called[call_id] = flat_name(item.text("namespace"), item.required_text("name"))
                self._add_to_answer(Message.assistant(calls=[Call(name, read_arguments(text) or {}, call_id, text)]))
            case "function_call_output":
                call_id = item.required_text("call_id")
                message = read_message(item, "tool", "output", self._called.get(call_id, ""))
                self._append(replace(message, call_id=call_id))
            case kind if kind in CALL_ITEMS:
                self._kind_call(item)
            case kind if kind in OUTPUT_ITEMS:
                called = self._same.get(output_call_id(item.data), output_call_id(item.data))
                self._append(replace(read_kind_output(item), call_id=called, name=self._called.get(called, "")))
            case kind if kind == COMPACTION:
                if summary := read_compaction(item):
                    self._append(Message.assistant(f"Summary of the conversation so far:\n{summary}"))
            case "item_reference":
                raise item.error("id", f"no item {item.text('id')!r} is stored here")
            case kind if kind in _FROM_VENDOR_TOOLS:
                pass
            case kind:
                raise item.error("type", f"items of type {kind!r} are not supported")

    def _kind_call(self, item: Fields) -> None:
        """A call of a tool that is no function."""
        call_id = item.text("call_id") or item.required_text("id")
        call = read_kind_call(item, call_id)
        call = replace(call, name=flat_name(item.text("namespace"), call.name))
        self._called[call_id], self._same[item.text("id") or ""] = call.name, call_id
        self._add_to_answer(Message.assistant(calls=[call]))

    def _message(self, item: Fields) -> None:
        spelled = item.required_text("role")
        if spelled not in _ROLES:
            raise item.error("role", f"{spelled!r} is none of {', '.join(_ROLES)}")
        message = read_message(item, _ROLES[spelled])
        if message.role == "assistant":
            self._add_to_answer(message)
        else:
            self._append(message)

    def messages(self) -> tuple[Message, ...]:
        """The messages of all items so far."""
        self._end_answer()
        return tuple(self._messages)

    def _append(self, message: Message) -> None:
        self._end_answer()
        self._messages.append(message)

    def _add_to_answer(self, part: Message) -> None:
        """A part of an answer. It belongs to the one before it, unless that has been completed by what was said."""
        if self._said and not self._called_any and not part.calls:
            self._end_answer()
        self._answer.append(part)
        self._said, self._called_any = self._said or bool(part.content), self._called_any or bool(part.calls)

    def _end_answer(self) -> None:
        if self._answer:
            content, reasoning = ("".join(map(attrgetter(name), self._answer)) for name in ("content", "reasoning"))
            calls = [call for part in self._answer for call in part.calls]
            self._messages.append(Message.assistant(content, reasoning=reasoning, calls=calls))
        self._answer, self._said, self._called_any = [], False, False


def write_items(messages: Iterable[Message], signed: Signed = NOTHING_SIGNED, kinds: Mapping[str, str] = NO_KINDS) -> list[Json]:
    """The items that `read_items` reads back as these messages, as long as no two answers follow each other. `kinds` are those of
    tools that are no functions: calls of custom tools are written as such, those of others as functions'."""
    items: list[Json] = []
    custom: set[str] = set()  # ids of calls
    for message in messages:
        custom |= {call.id for call in message.calls if kinds.get(call.name) == CUSTOM}
        if whole := signed_turn(message, signed):
            items += whole
            continue
        if message.role == "tool":
            output = "custom_tool_call_output" if message.call_id in custom else "function_call_output"
            items.append({"type": output, "call_id": message.call_id, "output": write_input(message)})
            continue
        if message.reasoning:
            items.append({"type": "reasoning", "summary": [], "content": [REASONING_TEXT.write_part(message.reasoning)]})
        if message.content or message.images or not (message.reasoning or message.calls):
            items.append({"type": "message", "role": message.role, "content": write_input(message)})
        items += [write_call(call, kinds.get(call.name, "")) for call in message.calls]
    return items


@dataclass(frozen=True, slots=True)
class TextKind:
    """A kind of text in an answer: the item it makes, the key of its only part there, that part, and the names of its events."""

    item: Mapping[str, Json]
    key: Literal["content", "summary"]
    part: Mapping[str, Json]
    part_event: str
    text_event: str
    more: Mapping[str, Json] = field(default_factory=dict[str, Json])

    @property
    def part_index(self) -> dict[str, Json]:
        return {f"{self.key}_index": 0}

    def write_part(self, text: str) -> dict[str, Json]:
        return {**self.part, "text": text}


MESSAGE_TEXT = TextKind(
    item={"type": "message", "role": "assistant", "content": [], "status": "in_progress"},
    key="content",
    part={"type": "output_text", "annotations": [], "logprobs": []},
    part_event="response.content_part",
    text_event="response.output_text",
    more={"logprobs": []},
)
REASONING_TEXT = TextKind(
    item={"type": "reasoning", "summary": [], "content": [], "status": "in_progress"},
    key="content",
    part={"type": "reasoning_text"},
    part_event="response.content_part",
    text_event="response.reasoning_text",
)
REASONING_SUMMARY = TextKind(
    item={"type": "reasoning", "summary": [], "status": "in_progress"},
    key="summary",
    part={"type": "summary_text"},
    part_event="response.reasoning_summary_part",
    text_event="response.reasoning_summary_text",
)


def write_call_item(name: str, call_id: str, arguments: str) -> dict[str, Json]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def stored_item(item: Mapping[str, Json], id: str) -> dict[str, Json]:
    """An item of a request as it is stored and listed: with an id, a type, a status, and its text in parts."""
    kind = item_kind(Fields(item))
    stored: dict[str, Json] = {**item, "id": id, "type": kind}
    if kind in OUTPUT_ITEMS:
        stored["call_id"] = output_call_id(item)
    if kind not in WITHOUT_STATUS and kind != COMPACTION:
        stored["status"] = item.get("status") or "completed"
    content = item.get("content")
    if kind == "message" and isinstance(content, str):
        part = MESSAGE_TEXT.write_part(content) if item.get("role") == "assistant" else {"type": "input_text", "text": content}
        stored["content"] = [part]
    elif kind == "message" and content is None:
        stored["content"] = cast(list[Json], [])
    return stored


def write_compaction(id: str, summary: str) -> dict[str, Json]:
    """The item that holds a summary."""
    encoded = summary.encode("utf-8", "surrogatepass")  # a model may write half a surrogate pair
    return {"type": COMPACTION, "id": id, "encrypted_content": _OURS + base64.b64encode(encoded).decode()}


def read_compaction(item: Fields) -> str | None:
    """The summary in an item; None if another server made it, whose items only that server can read."""
    content = item.required_text("encrypted_content")
    if not content.startswith(_OURS):
        return None
    try:
        return base64.b64decode(content.removeprefix(_OURS), validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError):
        raise item.error("encrypted_content", "is not as it was when it was given out") from None


TOOL_SEARCH = "tool_search"
_CALL, _OUTPUT = "tool_search_call", "tool_search_output"


def is_server_search(tool: Json) -> bool:
    """Whether this is the declaration of a search that runs here."""
    return tool.get("type") == TOOL_SEARCH and tool.get("execution") in (None, "server")


def plain_searches(items: Sequence[Fields]) -> list[Fields]:
    """The items with a function's call and output in place of a search, whoever ran it. One without an output is left out."""
    plain: list[Fields] = []
    calls: list[Fields] = []
    for item in items:
        kind = item.text("type")
        if kind == _CALL:
            calls.append(item)
        elif kind != _OUTPUT:
            plain.append(item)
        elif calls:
            call = calls.pop()
            id = call.text("call_id") or call.text("id") or f"search_{len(plain)}"
            names = [(name, "") for tool in item.objects("tools") for name in _names(tool)]
            name = FIND_TOOLS if item.text("execution") == "server" else TOOL_SEARCH
            search = {"type": "function_call", "call_id": id, "name": name}
            search["arguments"] = arguments_text(call.get("arguments") or {})[0]
            answer = {"type": "function_call_output", "call_id": id, "output": found_text(names) if names else "No tool fits."}
            plain += [Fields(search, call.path), Fields(answer, item.path)]
    return plain


def client_found(items: Iterable[Fields]) -> list[Fields]:
    """The definitions of tools that searches of the client have found."""
    outputs = (item for item in items if item.text("type") == _OUTPUT and item.text("execution") != "server")
    return [tool for item in outputs for tool in item.objects("tools")]


def _names(tool: Fields) -> list[str]:
    """The names of a tool, or of those in a namespace, as the model knows them."""
    name = tool.text("name") or ""
    if tool.text("type") != "namespace":
        return [name] if name else []
    return [flat_name(name, inner.required_text("name")) for inner in tool.objects("tools")]


def write_search(call: Call) -> dict[str, Json]:
    """The item of a search that begins."""
    return {"type": _CALL, "call_id": None, "execution": "server", "arguments": dict(call.arguments), "status": "in_progress"}


def write_found(names: Collection[str], tools: Iterable[Json]) -> dict[str, Json]:
    """The item of what a search has found, with the definitions out of a request's `tools`."""
    definitions: list[Json] = []
    for tool in tools:
        if tool["type"] == "function" and tool["name"] in names:
            definitions.append(tool)
        elif tool["type"] == "namespace":
            inner = [item for item in tool["tools"] if flat_name(tool["name"], item.get("name", "")) in names]
            definitions += [{"description": "", **tool, "tools": inner}] if inner else []
    return {"type": _OUTPUT, "call_id": None, "execution": "server", "tools": definitions, "status": "completed"}
