"""The answer of `POST /v1/messages`: events to the events of a stream, to a whole message, and a stream back to events.

    {"type": "message_start", "message": {"content": [], "usage": {…}, …}}
    {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "call_1", "name": "add", "input": {}}}
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{\\"a\\": 1}"}}
    {"type": "content_block_stop", "index": 0}
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 9}}
    {"type": "message_stop"}

Blocks are numbered from 0 without gaps. What the prompt has cost stands in `message_start`, where the model says so when it
begins, and in `message_delta`. A call begins on the wire with its arguments and not before: one that is cut off at its name
would look like a call without any. How far an answer was held to its schemas (`report`) stands beside the reason it stopped.

What tools of MCP servers did stands between the blocks of text: `mcp_tool_use` when one begins to run, `mcp_tool_result` when
it has answered; calls that never ran are not shown. This API has nothing for a call that waits for approval: the answer says
so in its text and in `callsmith.approvals`, and ends with `end_turn`. `pause_turn` would mean a turn that is not over, but
clients send such a turn back at once (the SDK's tool runner does, without limit), and nobody will have answered by then.

Not covered: interleaved calls are passed on interleaved; the reasons of repairs do not travel; `EventReader` reads only the text
of an answer in which tools of MCP servers ran, and what the prompt has cost it tells at the end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from callsmith.core.choice import FIND_TOOLS
from callsmith.core.events import (
    CUT,
    ConfirmationNeeded,
    ModelEvent,
    Report,
    Started,
    Stopped,
    StopReason,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
)
from callsmith.core.values import Call, Json, Result, Usage
from callsmith.wire.answers import AnswerReader, AnswerWriter
from callsmith.wire.anthropic.blocks import SIGNATURE
from callsmith.wire.anthropic.common import read_usage, write_usage
from callsmith.wire.anthropic.mcp import (
    SEARCH_RESULT,
    SERVER_TOOL_USE,
    write_result,
    write_search,
    write_search_result,
    write_use,
)
from callsmith.wire.calls import CallWriter, arguments_text, read_arguments
from callsmith.wire.errors import sent_error
from callsmith.wire.extensions import AnswerExtensions, ToolEvent, read_report, write_report
from callsmith.wire.fields import Fields

_REASONS: dict[StopReason, str] = {"length": "max_tokens", "filtered": "refusal", "calls": "tool_use"}
_READ_REASONS: dict[str, StopReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
    "tool_use": "calls",
}


@dataclass(frozen=True, slots=True)
class MessagesHeading:
    """What is known of an answer beforehand: its id and model, whether it shows thoughts, and the strings that stop it.

    `mcp_tools` are the tools whose calls are shown where they run here: the MCP server each is of, and its name there.
    `search_tool` is the name by which searches for tools are shown, if they are. `members` are the client's tools that belong to
    a toolset: its name, and theirs in it.
    """

    id: str
    model: str
    shows_thoughts: bool = True
    stops: tuple[str, ...] = ()
    mcp_tools: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    search_tool: str = ""
    members: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


class EventWriter(CallWriter, AnswerWriter):
    """Events to those of the stream, opened by the empty message."""

    def __init__(self, heading: MessagesHeading) -> None:
        super().__init__()
        self._heading = heading
        self._blocks = 0
        self._open_kind = ""  # the kind of the text block that is open, always the latest of the blocks
        self._named: dict[int, tuple[str, str]] = {}  # names and ids of calls that have no block yet, by index
        self._call_blocks: dict[int, int] = {}  # the blocks of calls that have not ended, by index
        self._running: dict[str, str] = {}  # the ids on the wire of what runs here, by its own
        self._follows_result = False  # whether the latest block is the result of a call
        self._extensions = AnswerExtensions(wanted=False)

    def _write_opening(self, event: Any) -> list[dict[str, Json]]:
        # What the prompt has cost, if the first event says so.
        usage = event.usage if isinstance(event, Started | Stopped) else Usage()
        message: dict[str, Json] = {
            "id": self._heading.id,
            "type": "message",
            "role": "assistant",
            "model": self._heading.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(replace(usage, completion=0, reasoning=0)),
        }
        return [{"type": "message_start", "message": message}]

    def _write_thought(self, text: str) -> list[dict[str, Json]]:
        return self._write_piece("thinking", text) if self._heading.shows_thoughts else []

    def _write_tool_event(self, event: ToolEvent) -> list[dict[str, Json]]:
        match event:
            case ToolStarted(call):
                return self._write_mcp_use(call)
            case ToolFinished(result):
                return self._write_mcp_result(result)
            case ConfirmationNeeded():
                self._extensions.add(event)
            case _:
                pass
        return []

    def _write_piece(self, kind: str, text: str) -> list[dict[str, Json]]:
        if kind == "text" and self._follows_result:
            text = text.lstrip("\n")  # a block of its own is apart from what was said before
        if not text:
            return []
        self._follows_result = self._follows_result and kind != "text"
        started: list[dict[str, Json]] = []
        if self._open_kind != kind:
            empty = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
            started = [*self._end_text(), self._start(empty)]
            self._open_kind = kind
        return [*started, _delta(self._blocks - 1, f"{kind}_delta", kind, text)]

    def _end_text(self) -> list[dict[str, Json]]:
        """The end of the text block that is open."""
        if not self._open_kind:
            return []
        signed = [_delta(self._blocks - 1, "signature_delta", "signature", SIGNATURE)] if self._open_kind == "thinking" else []
        self._open_kind = ""
        return [*signed, _stop(self._blocks - 1)]

    def _start(self, block: dict[str, Json]) -> dict[str, Json]:
        self._blocks += 1
        return {"type": "content_block_start", "index": self._blocks - 1, "content_block": block}

    def _write_text(self, text: str, logprobs: Any = ()) -> list[dict[str, Json]]:
        return self._write_piece("text", text)

    def _start_call(self, index: int, name: str, id: str) -> list[dict[str, Json]]:
        self._named[index] = name, id
        return []

    def _write_arguments(self, index: int, text: str) -> list[dict[str, Json]]:
        started = [] if index in self._call_blocks else self._start_block(index)
        return [*started, _delta(self._call_blocks[index], "input_json_delta", "partial_json", text)]

    def _start_block(self, index: int) -> list[dict[str, Json]]:
        name, id = self._named.pop(index)
        id = self._unique_id(id, f"toolu_{self._heading.id}_{index}")
        toolset, own = self._heading.members.get(name, ("", name))
        block: dict[str, Json] = {"type": "tool_use", "id": id, "name": own, "input": {}}
        events = [*self._end_text(), self._start({**block, "toolset_name": toolset} if toolset else block)]
        self._call_blocks[index] = self._blocks - 1
        return events

    def _end_call(self, index: int, unreadable: str | None) -> list[dict[str, Json]]:
        block = self._call_blocks.pop(index, None)
        return [_stop(block)] if block is not None else self._write_text(unreadable or "")

    def _write_mcp_use(self, call: Call) -> list[dict[str, Json]]:
        """A call that begins to run here. Its arguments are there already."""
        origin, is_search = self._heading.mcp_tools.get(call.name), call.name == FIND_TOOLS and self._heading.search_tool
        if origin is None and not is_search:
            return []
        kind = "mcptoolu" if origin else "srvtoolu"
        id = self._running[call.id] = self._unique_id(call.id, f"{kind}_{self._heading.id}_{self._blocks}")
        block = write_use(id, *origin) if origin else write_search(id, self._heading.search_tool)
        started = [*self._end_text(), self._start(block)]
        return [*started, _delta(self._blocks - 1, "input_json_delta", "partial_json", call.text), _stop(self._blocks - 1)]

    def _write_mcp_result(self, result: Result) -> list[dict[str, Json]]:
        if result.call_id not in self._running:
            return []
        self._follows_result = True
        id = self._running.pop(result.call_id)
        is_search = result.name == FIND_TOOLS and FIND_TOOLS not in self._heading.mcp_tools
        block = write_search_result(id, result) if is_search else write_result(id, result)
        return [*self._end_text(), self._start(block), _stop(self._blocks - 1)]

    def _finish(self, event: Stopped) -> list[dict[str, Json]]:
        matched = event.matched if event.reason == "stop" and event.matched in self._heading.stops else None
        reason = "stop_sequence" if matched else _REASONS.get(event.reason, "end_turn")
        return [
            *self._end_text(),
            *(_stop(block) for _, block in sorted(self._call_blocks.items())),
            self._extensions.end(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": reason, "stop_sequence": matched},
                    "usage": write_usage(event.usage),
                    **write_report(event.report),
                },
                whole=False,
            ),
            {"type": "message_stop"},
        ]


def _delta(index: int, kind: str, key: str, text: str) -> dict[str, Json]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: text}}


def _stop(index: int) -> dict[str, Json]:
    return {"type": "content_block_stop", "index": index}


def write_response(events: Iterable[ModelEvent | ToolEvent], heading: MessagesHeading) -> dict[str, Json]:
    """The whole message: the same stream, put together. Only a call that was cut off is text here: nobody should run it."""
    sent = EventWriter(heading).write_all(events)
    message: dict[str, Json] = sent[0]["message"]
    blocks: list[dict[str, Json]] = []
    pieces: list[list[str]] = []
    for event in sent[1:]:
        match event["type"]:
            case "content_block_start":
                blocks.append(event["content_block"])
                pieces.append([])
            case "content_block_delta" if event["delta"]["type"] == "signature_delta":
                blocks[event["index"]]["signature"] = event["delta"]["signature"]
            case "content_block_delta":
                delta: dict[str, str] = event["delta"]
                pieces[event["index"]] += [text for key, text in delta.items() if key != "type"]
            case "message_delta":
                message |= {**event["delta"], **{key: value for key, value in event.items() if key not in ("type", "delta")}}
            case _:
                pass
    return {**message, "content": [_whole(block, "".join(texts)) for block, texts in zip(blocks, pieces, strict=True)]}


def _whole(block: dict[str, Json], text: str) -> dict[str, Json]:
    if block["type"] in ("mcp_tool_result", SEARCH_RESULT):
        return block
    if block["type"] not in ("tool_use", "mcp_tool_use", SERVER_TOOL_USE):
        return {**block, block["type"]: text}
    arguments = read_arguments(text)
    return {"type": "text", "text": text} if arguments is None else {**block, "input": arguments}


class EventReader(AnswerReader):
    """A stream's events to ours, or a whole message."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, Json] = {}
        self._blocks: dict[int, dict[str, Json]] = {}  # as they began
        self._pieces: dict[tuple[int, str], list[str]] = {}  # what was added to them, by number and key
        self._latest: list[str] = []  # those of the last delta
        self._bare: list[int] = []  # calls that have ended without arguments: whether they are cut off is not known yet

    @property
    def signed(self) -> Json:
        """All blocks of the answer, if the sender wants its reasoning back unchanged; else None."""
        blocks = [self._whole_block(number) for number in sorted(self._blocks)]
        is_signed = any(block.get("signature") or block.get("type") == "redacted_thinking" for block in blocks)
        return blocks if is_signed else None

    def _read(self, fields: Fields) -> list[ModelEvent]:
        match fields.text("type"):
            case "message_start":
                message = fields.object("message")
                self._count(message.object("usage") if message else None)
            case "content_block_start":
                return [*self._end_bare(), *self._start(fields.integer("index") or 0, fields.required_object("content_block"))]
            case "content_block_delta":
                return self._read_delta(fields.integer("index") or 0, fields.required_object("delta"))
            case "content_block_stop":
                return self._end_block(fields.integer("index") or 0)
            case "message_delta":
                self._count(fields.object("usage"))
                self._end(fields.object("delta"), read_report(fields))
            case "message_stop":
                self.has_ended = True
            case "message":
                return self._read_whole(fields)
            case "error":
                raise sent_error(None)
            case _:
                pass  # ping, and whatever is added
        return []

    def repeat_text(self, text: str) -> list[ModelEvent]:
        self._latest.append(text)
        return super().repeat_text(text)

    def close(self) -> list[ModelEvent]:
        usage = read_usage(Fields(self._counts, "usage"))
        ended = [] if self._reason in CUT else self._end_bare()
        return [*ended, *self._calls.cut_off(), Stopped(self._reason or "stop", usage, self._report, self._matched)]

    def _read_whole(self, message: Fields) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        for number, block in enumerate(message.objects("content")):
            events += [*self._end_bare(), *self._start(number, block), *self._end_block(number)]
        self._count(message.object("usage"))
        self._end(message, read_report(message))
        return events

    def _end_block(self, number: int) -> list[ModelEvent]:
        """The end of a block. A call whose arguments did not fit ends like one that has none: what comes next tells."""
        if self._calls.is_bare(number):
            self._bare.append(number)
            return []
        return self._calls.end(number)

    def _end_bare(self) -> list[ModelEvent]:
        bare, self._bare = self._bare, []
        return [event for number in bare for event in self._calls.end(number)]

    def _start(self, number: int, block: Fields) -> list[ModelEvent]:
        self._blocks[number] = dict(block.data)
        if block.text("type") != "tool_use":
            return _said(block.text("text"), block.text("thinking"))
        started = self._calls.start(number, block.required_text("name"), block.text("id") or "")
        whole, _ = arguments_text(block.get("input") or None)  # empty, as a rule; some send all of it here
        return [*started, *self._calls.add(number, whole)]

    def _read_delta(self, number: int, delta: Fields) -> list[ModelEvent]:
        for key in ("text", "thinking", "signature", "partial_json"):
            if piece := delta.text(key):
                self._latest = self._pieces.setdefault((number, key), [])
                self._latest.append(piece)
        events = self._calls.add(number, delta.text("partial_json") or "")
        return [*events, *_said(delta.text("text"), delta.text("thinking"))]

    def _whole_block(self, number: int) -> dict[str, Json]:
        """A block as the sender would have sent it in one."""
        block = dict(self._blocks[number])
        for key in ("text", "thinking", "signature"):
            block |= {key: (block.get(key) or "") + "".join(pieces)} if (pieces := self._pieces.get((number, key))) else {}
        sent = "".join(self._pieces.get((number, "partial_json"), ()))
        return block | {"input": read_arguments(sent) or {}} if sent else block

    def _count(self, usage: Fields | None) -> None:
        """Later counts take the place of earlier ones; those that are left out stay."""
        self._counts |= {key: value for key, value in usage.data.items() if value is not None} if usage else {}

    def _end(self, delta: Fields | None, report: Report | None) -> None:
        reason = (delta.text("stop_reason") if delta else None) or ""
        self._matched = (delta.text("stop_sequence") if delta else None) or ""
        self.has_ended = self.has_ended or bool(reason)
        self._reason, self._report = _READ_REASONS.get(reason, "stop"), report or Report()


def _said(text: str | None, thought: str | None) -> list[ModelEvent]:
    return [*([Thought(thought)] if thought else []), *([Text(text)] if text else [])]
