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
from callsmith.wire.openai.responses_events import EventWriter, Heading, Status, StreamEvent


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

    def __init__(self, heading: Heading, *, shows_events: bool = False) -> None:
        super().__init__(heading)
        self._shows_events = shows_events
        self._shows_searches = any(is_server_search(tool) for tool in heading.repeated.get("tools") or ())
        self._began = heading.clock() if heading.clock else 0.0
        self._tools: Mapping[str, tuple[str, str]] = {}
        self._approvals: dict[str, str] = {}  # by call id
        self._asked: dict[str, Call] = {}  # those of earlier responses, too
        self._running: dict[str, tuple[int, dict[str, Json]]] = {}  # by call id: the place and the item

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
                place, item, sent = self._place(write_search(call))
                self._running[call.id] = place, item
                return sent
            case ToolFinished(result) if result.name == FIND_TOOLS and result.call_id in self._running:
                return self._end_search(result)
            case ConfirmationNeeded(id, call) if call.name in self._tools:
                self._approvals[call.id] = id
                place, item, sent = self._place({"id": id, "type": "mcp_approval_request", **self._named(call)})
                return [*sent, self._whole(place, item)]
            case _:
                return []

    def _own_event(self, event: ToolEvent, running: Mapping[str, tuple[int, dict[str, Json]]]) -> list[StreamEvent]:
        """The event in our own words, with the item that it is about."""
        if not self._shows_events:
            return []
        written = write_tool_event(event)
        match event:
            case ToolStarted(call):
                item = running.get(call.id)
            case ToolFinished(result):
                item = running.get(result.call_id)
            case _:
                item = None
        about = {"item_id": item[1]["id"]} if item else {}
        at = self._heading.clock() - self._began if self._heading.clock else 0.0
        return [self._event("callsmith.event", **about, at=round(at, 3), callsmith=written)]

    def _list(self, listed: ListedTools) -> list[StreamEvent]:
        empty: dict[str, Json] = {"type": "mcp_list_tools", "server_label": listed.label, "tools": [], "error": None}
        place, item, sent = self._place(empty)
        at = {"item_id": item["id"], "output_index": place}
        end = "failed" if listed.error else "completed"
        steps = [self._event(f"response.mcp_list_tools.{step}", **at) for step in ("in_progress", end)]
        result = {"tools": [write_listed(tool) for tool in listed.tools], "error": listed.error or None}
        return [*sent, *steps, self._whole(place, {**item, **result})]

    def _begin(self, call: Call) -> list[StreamEvent]:
        approval = self._approvals.get(call.id)
        about = {**self._named(call), "arguments": ""}
        made: dict[str, Json] = {"type": "mcp_call", "status": "in_progress", "approval_request_id": approval, **about}
        place, item, sent = self._place({**made, "output": None, "error": None})
        at = {"item_id": item["id"], "output_index": place}
        self._running[call.id] = place, {**item, "arguments": call.text}
        return [
            *sent,
            self._event("response.mcp_call.in_progress", **at),
            self._event("response.mcp_call_arguments.delta", **at, delta=call.text),
            self._event("response.mcp_call_arguments.done", **at, arguments=call.text),
        ]

    def _end_mcp(self, result: Result) -> list[StreamEvent]:
        if result.code == "denied" and result.call_id in self._approvals:
            return []
        # It may have come to nothing before it ran.
        call = self._asked.get(result.call_id) or Call(result.name, id=result.call_id)
        begun = [] if result.call_id in self._running else self._begin(call)
        place, item = self._running.pop(result.call_id)
        done = {**item, **write_mcp_call(result)}
        step = self._event(f"response.mcp_call.{done['status']}", item_id=item["id"], output_index=place)
        return [*begun, step, self._whole(place, done)]

    def _end_search(self, result: Result) -> list[StreamEvent]:
        place, item = self._running.pop(result.call_id)
        done = self._whole(place, {**item, "status": "completed"})
        found = write_found(found_names(result.text), self._heading.repeated["tools"])
        place, item, sent = self._place({**found, "tools": []})
        return [done, *sent, self._whole(place, {**item, **found})]

    def _end_response(self, status: Status, said: Status) -> list[StreamEvent]:
        left = [self._whole(place, {**item, "status": "incomplete"}) for place, item in self._running.values()]
        self._running.clear()
        return [*left, *super()._end_response(status, said)]

    def _named(self, call: Call) -> dict[str, Json]:
        label, name = self._tools[call.name]
        return {"server_label": label, "name": name, "arguments": call.text}

    def _place(self, item: Mapping[str, Json]) -> tuple[int, dict[str, Json], list[StreamEvent]]:
        """Add an item: its place, the item with its id, and what is sent."""
        sent = self._end_text("completed")
        one = self._add(item)
        if "status" not in item:
            del one.item["status"]
        return one.place, dict(one.item), [*sent, self._added(one)]

    def _whole(self, place: int, item: dict[str, Json]) -> StreamEvent:
        self._output[place] = item
        return self._event("response.output_item.done", output_index=place, item=item)
