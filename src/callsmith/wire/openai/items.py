"""The items of `/v1/responses`, in which a conversation is told, and the messages they make.

    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
    {"type": "function_call_output", "call_id": "call_1", "output": "3"}

One answer of a model is several items: reasoning, what was said and the calls behind each other make one message.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from callsmith.core.values import Call, Json, Message, Role
from callsmith.wire.calls import read_arguments
from callsmith.wire.fields import Fields
from callsmith.wire.openai.chat import read_content
from callsmith.wire.openai.mcp import WITHOUT_STATUS

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# What other servers' own tools leave behind: nothing a model here could make use of.
_OF_OTHERS = frozenset({"compaction", "file_search_call", "tool_search_call", "web_search_call"})

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_list_tools": "mcpl",
    "mcp_call": "mcp",
    "mcp_approval_response": "mcpr",
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
    """The messages these items make. Items of MCP servers have to be functions' calls and outputs before: see `plain_items`."""
    gathered = _Gathered()
    for item in items:
        gathered.add(item)
    return tuple(gathered.messages)


class _Gathered:
    """Messages put together. `_open`: the last one is an answer to which further items may belong."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open = False
        self._called: dict[str, str] = {}  # call id → tool name: outputs leave it out

    def add(self, item: Fields) -> None:
        match item_kind(item):
            case "message":
                self._message(item)
            case "reasoning":
                self._answered(Message.assistant(reasoning=_read_reasoning(item)))
            case "function_call":
                call = _read_call(item)
                self._called[call.id] = call.name
                self._answered(Message.assistant(calls=[call]))
            case "function_call_output":
                call_id = item.needed_text("call_id")
                message = Message("tool", read_content(item, "output"), call_id=call_id, name=self._called.get(call_id, ""))
                self._tell(message)
            case "item_reference":
                raise item.wrong("id", f"no item {item.text('id')!r} is stored here")
            case kind if kind in _OF_OTHERS:
                pass
            case kind:
                raise item.wrong("type", f"items of type {kind!r} are not supported")

    def _message(self, item: Fields) -> None:
        spelled = item.needed_text("role")
        if spelled not in _ROLES:
            raise item.wrong("role", f"{spelled!r} is none of {', '.join(_ROLES)}")
        message = Message(_ROLES[spelled], read_content(item))
        if message.role == "assistant":
            self._answered(message)
        else:
            self._tell(message)

    def _tell(self, message: Message) -> None:
        self.messages.append(message)
        self._open = False

    def _answered(self, part: Message) -> None:
        """A part of an answer. It belongs to the one before it, unless that has been completed by what was said."""
        last = self.messages[-1] if self._open else None
        if last is None or (last.content and not last.calls and not part.calls):
            self.messages.append(part)
        else:
            self.messages[-1] = replace(
                last,
                content=last.content + part.content,
                reasoning=last.reasoning + part.reasoning,
                calls=last.calls + part.calls,
            )
        self._open = True


def _read_reasoning(item: Fields) -> str:
    key = "content" if item.get("content") else "summary"
    return "\n".join(part.text("text") or "" for part in item.objects(key))


def _read_call(item: Fields) -> Call:
    call_id = item.text("call_id") or item.needed_text("id")
    text = item.text("arguments") or ""
    return Call(flat_name(item.text("namespace"), item.needed_text("name")), read_arguments(text) or {}, call_id, text)


def write_items(messages: Iterable[Message]) -> list[Json]:
    """The items that `read_items` reads back as these messages, as long as no two answers follow each other."""
    items: list[Json] = []
    for message in messages:
        if message.role == "tool":
            items.append({"type": "function_call_output", "call_id": message.call_id, "output": message.content})
            continue
        if message.reasoning:
            items.append({"type": "reasoning", "summary": [], "content": [write_reasoning_part(message.reasoning)]})
        if message.content or not (message.reasoning or message.calls):
            items.append({"type": "message", "role": message.role, "content": message.content})
        items += [write_call_item(call.name, call.id, call.text) for call in message.calls]
    return items


def write_text_part(text: str) -> dict[str, Json]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def write_reasoning_part(text: str) -> dict[str, Json]:
    return {"type": "reasoning_text", "text": text}


def write_summary_part(text: str) -> dict[str, Json]:
    return {"type": "summary_text", "text": text}


@dataclass(frozen=True, slots=True)
class Manner:
    """How something said is told: the item it makes, where its only part stands there, the events of the part and of its text."""

    item: Mapping[str, Json]
    place: Literal["content", "summary"]
    part: Callable[[str], dict[str, Json]]
    parts: str
    texts: str
    also: Mapping[str, Json] = field(default_factory=dict[str, Json])

    @property
    def first(self) -> dict[str, Json]:
        """Which part it is."""
        return {f"{self.place}_index": 0}


SAID = Manner(
    item={"type": "message", "role": "assistant", "content": []},
    place="content",
    part=write_text_part,
    parts="response.content_part",
    texts="response.output_text",
    also={"logprobs": []},
)
THOUGHT = Manner(
    item={"type": "reasoning", "summary": [], "content": []},
    place="content",
    part=write_reasoning_part,
    parts="response.content_part",
    texts="response.reasoning_text",
)
SUMMARY = Manner(
    item={"type": "reasoning", "summary": []},
    place="summary",
    part=write_summary_part,
    parts="response.reasoning_summary_part",
    texts="response.reasoning_summary_text",
)


def write_call_item(name: str, call_id: str, arguments: str) -> dict[str, Json]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def stored_item(item: Mapping[str, Json], id: str) -> dict[str, Json]:
    """An item of a request as it is kept and listed: with an id, a type and a status, and what is said in parts."""
    kind = item_kind(Fields(item))
    stored: dict[str, Json] = {**item, "id": id, "type": kind}
    if kind not in WITHOUT_STATUS:
        stored["status"] = item.get("status") or "completed"
    content = item.get("content")
    if kind == "message" and isinstance(content, str):
        said = write_text_part(content) if item.get("role") == "assistant" else {"type": "input_text", "text": content}
        stored["content"] = [said]
    elif kind == "message" and content is None:
        stored["content"] = cast(list[Json], [])
    return stored
