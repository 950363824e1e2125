"""The messages of `/v1/messages`, which are made of blocks, both ways.

    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "add", "input": {…}}]}
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "3"}]}

A call of an MCP server's tool comes back with its result inside the assistant's message: it is read as a call, by its `mcp_name`,
and a tool's message behind it. Calls of one round that ran one after the other are read as rounds of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from callsmith.core.choice import FIND_TOOLS
from callsmith.core.values import Call, Json, Message, Role
from callsmith.wire.anthropic.mcp import SEARCH_RESULT, SERVER_TOOL_USE, is_search, read_search_result
from callsmith.wire.fields import Fields, kind
from callsmith.wire.images import ContentBuilder, read_image_block, write_blocks
from callsmith.wire.kinds.toolsets import member_name, read_browser_state
from callsmith.wire.signed import Signed, signed_turn
from callsmith.wire.tools import mcp_name

SIGNATURE = "callsmith"  # of every thought we give: clients send a thought back only if it is signed
_RUN_HERE, _RESULTS = ("mcp_tool_use", SERVER_TOOL_USE), ("mcp_tool_result", SEARCH_RESULT)
_BILLING = "x-anthropic-billing-header:"  # Claude Code's first system block; another one each time, it would defeat every cache


def read_system(fields: Fields, key: str) -> tuple[Message, ...]:
    """The system's message."""
    texts = [_read_text(block) for block in _blocks(fields, key)]
    if isinstance(fields.get(key), list):
        texts = [text for text in texts if not text.startswith(_BILLING)]
    text = "\n".join(texts)
    return (Message.system(text),) if text else ()


def read_messages(fields: Fields, key: str) -> list[Message]:
    """The messages; there has to be one."""
    if not fields.array(key):
        raise fields.error(key, "at least one message is required")
    called: dict[str, str] = {}  # call id → tool name: a template may need the name, which results leave out
    messages: list[Message] = []
    for entry in fields.objects(key):
        match entry.required_text("role"):
            case "user":
                messages += _read_user(entry, called)
            case "assistant":
                answered = _read_assistant(entry)
                messages += answered
                called |= {call.id: call.name for message in answered for call in message.calls}
            case "system":
                messages.append(Message.system(_join(entry)))
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

    texts: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    calls: list[Call] = field(default_factory=list[Call])
    results: list[Message] = field(default_factory=list[Message])
    waiting: dict[str, str] = field(default_factory=dict[str, str])  # names of the server's calls without a result, by id

    def add(self, block: Fields) -> None:
        match block.text("type"):
            case "thinking":
                self.thoughts.append(block.text("thinking") or "")
            case "redacted_thinking" | "mcp_tool_listing":
                pass  # nobody but its author can read the one, and the other is known here
            case "tool_use":
                name, toolset = block.required_text("name"), block.text("toolset_name")
                self.calls.append(_read_call(block, member_name(toolset, name) if toolset else name))
            case "mcp_tool_use":
                self._add_server_call(block, mcp_name(block.required_text("server_name"), block.required_text("name")))
            case "server_tool_use" if is_search(block.text("name") or ""):
                self._add_server_call(block, FIND_TOOLS)
            case "mcp_tool_result" | "tool_search_tool_result" as kind:
                id = block.required_text("tool_use_id")
                if id not in self.waiting:
                    before = kind.replace("mcp_tool_result", "mcp_tool_use").replace(SEARCH_RESULT, SERVER_TOOL_USE)
                    raise block.error("tool_use_id", f"there is no {before} {id!r} before it that waits for a result")
                failed = "Error" if block.flag("is_error") else ""
                text = read_search_result(block) if kind == SEARCH_RESULT else _join(block) or failed
                self.results.append(Message("tool", text, call_id=id, name=self.waiting.pop(id)))
            case _:
                self.texts.append(_read_text(block))

    def _add_server_call(self, block: Fields, name: str) -> None:
        self.calls.append(_read_call(block, name))
        self.waiting[self.calls[-1].id] = name

    def messages(self) -> list[Message]:
        """The answer, and its results in the order of the calls, whichever came first."""
        places = {call.id: place for place, call in enumerate(self.calls)}
        answer = Message.assistant("".join(self.texts), reasoning="".join(self.thoughts), calls=self.calls)
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


def _join(fields: Fields) -> str:
    return "\n".join(_read_text(block) for block in _blocks(fields, "content"))


def _read_text(block: Fields) -> str:
    match block.required_text("type"):
        case "text":
            return block.text("text") or ""
        case "tool_reference":
            return block.required_text("tool_name")  # what a search for tools has found; here they are all known anyway
        case "browser_state":
            return read_browser_state(block)
        case other:
            raise block.error("type", f"blocks of type {other!r} are not supported here")


def write_messages(messages: Sequence[Message], signed: Signed) -> list[Json]:
    """The messages that `read_messages` reads back."""
    turns: list[Json] = []
    answering = False  # the results of one round go into one message
    for message in messages:
        if message.role == "tool":
            content = write_blocks(message) if message.images else message.content
            result = {"type": "tool_result", "tool_use_id": message.call_id, "content": content}
            if answering:
                turns[-1]["content"].append(result)
            else:
                turns.append({"role": "user", "content": [result]})
        else:
            turns.append({"role": message.role, "content": signed_turn(message, signed) or _write_content(message)})
        answering = message.role == "tool"
    return turns


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
