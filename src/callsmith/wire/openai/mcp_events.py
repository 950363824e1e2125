"""What MCP servers do in an answer of `/v1/responses`: tool events to items and their events.

response.output_item.added · response.mcp_list_tools.in_progress · .completed · response.output_item.done
response.output_item.added · response.mcp_call.in_progress · response.mcp_call_arguments.delta · .done
    · response.mcp_call.completed or .failed · response.output_item.done
response.output_item.added · response.output_item.done                      for a call that has to be approved
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from callsmith.core.choice import FIND_TOOLS, found_names
from callsmith.core.events import ConfirmationNeeded, ModelEvent, ToolFinished, ToolStarted
from callsmith.core.values import Call, Json, Result, Tool
from callsmith.wire.extensions import ToolEvent, write_tool_event
from callsmith.wire.openai.items import is_server_search, write_found, write_search
from callsmith.wire.openai.mcp import write_listed, write_mcp_call
from callsmith.wire.openai.responses_events import EventWriter, OpenItem, ResponsesHeading, Status, StreamEvent


@dataclass(frozen=True, slots=True)
class ListedTools:
    """The tools of a server that a request wants to use, or the reason why there are none."""

    label: str
    tools: tuple[Tool, ...]
    error: str = ""


McpEvent: TypeAlias = ModelEvent | ToolEvent | ListedTools


class McpWriter(EventWriter):
    """Events to the stream's, those of MCP servers' tools too. Other tools of the server are not shown.

    A call that a person has denied makes no item: the decision is an item already, and the call has not run. With
    `shows_events` the stream has what tools do also as events of our own.
    """

    def __init__(self, heading: ResponsesHeading, *, shows_events: bool = False) -> None:
        super().__init__(heading)
        self._shows_events = shows_events
        self._shows_searches = any(is_server_search(tool) for tool in heading.repeated.get("tools") or ())
        self._began = heading.clock() if heading.clock else 0.0
        self._tools: Mapping[str, tuple[str, str]] = {}
        self._approvals: dict[str, str] = {}  # by call id
        self._asked: dict[str, Call] = {}  # those of earlier responses, too
        self._running: dict[str, OpenItem] = {}  # by call id

    @property
    def id(self) -> str:
        return self._heading.id

    def set_tools(self, tools: Mapping[str, tuple[str, str]]) -> None:
        """Sets the servers' tools, by the name they have here: the label of their server, and their name there."""
        self._tools = tools

    def set_approvals(self, approvals: Mapping[str, Call]) -> None:
        """Sets the calls that waited for approval in an earlier response, by the ids of their approvals."""
        self._approvals |= {call.id: id for id, call in approvals.items()}
        self._asked |= {call.id: call for call in approvals.values()}

    def write(self, event: McpEvent) -> list[StreamEvent]:
        if isinstance(event, ListedTools):
            return [] if self.ended else [*self._open(), *self._list(event)]
        return super().write(event)

    def _write_tool_event(self, event: ToolEvent) -> list[StreamEvent]:
        running = dict(self._running)
        sent = self._write_items(event)
        return [*sent, *self._own_event(event, running | self._running)]

    def _write_items(self, event: ToolEvent) -> list[StreamEvent]:
        match event:
            case ToolStarted(call) if call.name in self._tools:
                return self._begin(call)
            case ToolFinished(result) if result.name in self._tools:
                return self._end_mcp(result)
            case ToolStarted(call) if call.name == FIND_TOOLS and self._shows_searches:
                self._running[call.id], sent = self._place(write_search(call))
                return sent
            case ToolFinished(result) if result.name == FIND_TOOLS and result.call_id in self._running:
                return self._end_search(result)
            case ConfirmationNeeded(id, call) if call.name in self._tools:
                self._approvals[call.id] = id
                question, sent = self._place({"id": id, "type": "mcp_approval_request", **self._describe_call(call)})
                return [*sent, self._done(question)]
            case _:
                return []

    def _own_event(self, event: ToolEvent, running: Mapping[str, OpenItem]) -> list[StreamEvent]:
        """The event in our own words, with the item that it is about."""
        if not self._shows_events:
            return []
        body = write_tool_event(event)
        match event:
            case ToolStarted(call):
                item = running.get(call.id)
            case ToolFinished(result):
                item = running.get(result.call_id)
            case _:
                item = None
        about = {"item_id": item.item["id"]} if item else {}
        at = self._heading.clock() - self._began if self._heading.clock else 0.0
        return [self._event("callsmith.event", **about, at=round(at, 3), callsmith=body)]

    def _list(self, listed: ListedTools) -> list[StreamEvent]:
        empty: dict[str, Json] = {"type": "mcp_list_tools", "server_label": listed.label, "tools": [], "error": None}
        item, sent = self._place(empty)
        end = "failed" if listed.error else "completed"
        steps = [self._event(f"response.mcp_list_tools.{step}", **item.at) for step in ("in_progress", end)]
        tools = [write_listed(tool) for tool in listed.tools]
        return [*sent, *steps, self._done(item, tools=tools, error=listed.error or None)]

    def _begin(self, call: Call) -> list[StreamEvent]:
        approval = self._approvals.get(call.id)
        about = {**self._describe_call(call), "arguments": ""}
        mcp_call: dict[str, Json] = {"type": "mcp_call", "status": "in_progress", "approval_request_id": approval, **about}
        item, sent = self._place({**mcp_call, "output": None, "error": None})
        item.item = {**item.item, "arguments": call.text}
        self._running[call.id] = item
        return [
            *sent,
            self._event("response.mcp_call.in_progress", **item.at),
            self._event("response.mcp_call_arguments.delta", **item.at, delta=call.text),
            self._event("response.mcp_call_arguments.done", **item.at, arguments=call.text),
        ]

    def _end_mcp(self, result: Result) -> list[StreamEvent]:
        if result.code == "denied" and result.call_id in self._approvals:
            return []
        # It may have come to nothing before it ran.
        call = self._asked.get(result.call_id) or Call(result.name, id=result.call_id)
        begun = [] if result.call_id in self._running else self._begin(call)
        item, outcome = self._running.pop(result.call_id), write_mcp_call(result)
        step = self._event(f"response.mcp_call.{outcome['status']}", **item.at)
        return [*begun, step, self._done(item, **outcome)]

    def _end_search(self, result: Result) -> list[StreamEvent]:
        done = self._done(self._running.pop(result.call_id), status="completed")
        output = write_found(found_names(result.text), self._heading.repeated["tools"])
        item, sent = self._place({**output, "tools": [], "status": "in_progress"})
        return [done, *sent, self._done(item, **output)]

    def _end_response(self, status: Status, text_status: Status) -> list[StreamEvent]:
        unfinished = [self._done(item, status="incomplete") for item in self._running.values()]
        self._running.clear()
        return [*unfinished, *super()._end_response(status, text_status)]

    def _describe_call(self, call: Call) -> dict[str, Json]:
        label, name = self._tools[call.name]
        return {"server_label": label, "name": name, "arguments": call.text}

    def _place(self, item: Mapping[str, Json]) -> tuple[OpenItem, list[StreamEvent]]:
        """Add an item: the item in its place, and what is sent."""
        sent = self._end_text("completed")
        placed = self._add(item)
        return placed, [*sent, self._on_added(placed)]
