"""Anthropic's requests and answers, short to write: blocks, bodies, events."""

from collections.abc import Sequence
from typing import Any

from callsmith.core.events import ModelEvent
from callsmith.core.values import Message
from callsmith.wire.anthropic.events import EventReader, EventWriter, MessagesHeading
from callsmith.wire.anthropic.messages import MessagesRequest, read_request
from callsmith.wire.extensions import ToolEvent

HI = [{"role": "user", "content": "hi"}]
ADD = {"name": "add", "description": "Add.", "input_schema": {"type": "object"}}
SUB = {"type": "custom", "name": "sub"}
FILES = {"type": "url", "name": "files", "url": "mcp:files"}
TOOLSET: Any = {"type": "mcp_toolset", "mcp_server_name": "files"}
HEADING = MessagesHeading("msg_1", "m")


def read(**body: Any) -> MessagesRequest:
    return read_request({"model": "m", "max_tokens": 9, "messages": HI, **body})


def heard(*messages: Any, **body: Any) -> tuple[Message, ...]:
    return read(messages=[*messages, *HI], **body).request.messages[:-1]


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call_id: str, name: str = "add", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def far_use(call_id: str, name: str = "read", **more: Any) -> dict[str, Any]:
    return {"type": "mcp_tool_use", "id": call_id, "name": name, "server_name": "files", "input": {}, **more}


def far_result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "mcp_tool_result", "tool_use_id": call_id, "content": content, **more}


def sent_of(events: Sequence[ModelEvent | ToolEvent], heading: MessagesHeading = HEADING) -> list[dict[str, Any]]:
    writer = EventWriter(heading)
    return [sent_event for event in events for sent_event in writer.write(event)] + writer.close()


def events_of(sent: list[Any]) -> list[ModelEvent]:
    reader = EventReader()
    return [event for item in sent for event in reader.feed(item)] + reader.close()
