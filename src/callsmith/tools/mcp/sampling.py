"""Sampling: an MCP server has our model write something, with tools of the server's own if it brings some.

The server runs those tools itself: calls of our model go back to it, and it asks again with their results.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, UsageError
from callsmith.core.events import CallReady, Stopped, Text
from callsmith.core.ports import Model
from callsmith.core.schema import check_schema
from callsmith.core.types.call_ids import CallIds
from callsmith.core.values import Call, Choice, Message, Request, Result, Sampling, Tool
from callsmith.tools.mcp.content import block_text

if TYPE_CHECKING:
    import mcp_types as types

    Answer: TypeAlias = types.CreateMessageResult | types.CreateMessageResultWithTools

MOST_TOKENS = 2_000  # that a server may ask our model for at a time
MOST_TOOLS = 128  # that it may bring
MOST_MESSAGES = 1_000
MOST_STOPS = 64  # each is looked for at every character of the answer

_log = logging.getLogger(__name__)


async def sample(model: Model, params: "types.CreateMessageRequestParams") -> "Answer | types.ErrorData":
    """Have our model write something for a server."""
    import mcp_types as types

    try:
        request = read_request(params)
    except UsageError as error:
        return types.ErrorData(code=types.INVALID_PARAMS, message=str(error))
    text, calls, reason = "", list[Call](), "stop"
    try:
        async with closing(model.stream(request)) as events:
            async for event in events:
                match event:
                    case Text():
                        text += event.text
                    case CallReady():
                        calls.append(event.call)
                    case Stopped():
                        reason = event.reason
                    case _:
                        pass
    except CallsmithError as error:
        return types.ErrorData(code=types.INTERNAL_ERROR, message=str(error))
    except Exception as error:  # it must not break the connection
        _log.warning("sampling for an MCP server failed: %r", error)
        return types.ErrorData(code=types.INTERNAL_ERROR, message="the model failed")
    return _write_answer(text, calls, reason)


def _write_answer(text: str, calls: Sequence[Call], reason: str) -> "Answer":
    import mcp_types as types

    written = types.TextContent(text=text)
    if not calls:
        stop = "maxTokens" if reason == "length" else "endTurn"
        return types.CreateMessageResult(role="assistant", content=written, model="callsmith", stop_reason=stop)
    ids = CallIds()
    uses = [types.ToolUseContent(name=call.name, id=ids.claim(call.id), input=dict(call.arguments)) for call in calls]
    content: list[types.SamplingMessageContentBlock] = [*([written] if text else []), *uses]
    return types.CreateMessageResultWithTools(role="assistant", content=content, model="callsmith", stop_reason="toolUse")


def read_request(params: "types.CreateMessageRequestParams") -> Request:
    """What our model is asked. A UsageError if that makes no sense."""
    if len(params.messages) > MOST_MESSAGES:
        raise UsageError(f"no more than {MOST_MESSAGES:,} messages can be sampled from")
    messages = [Message.system(params.system_prompt)] if params.system_prompt else []
    waiting: dict[str, str] = {}  # calls without a result: ids and names
    for message in params.messages:
        messages += _read_message(message, waiting)
    if waiting:
        raise UsageError(f"there is no tool_result for {', '.join(waiting)}")
    stop = tuple(params.stop_sequences or ())
    if len(stop) > MOST_STOPS:
        raise UsageError(f"no more than {MOST_STOPS} stop sequences can be looked for")
    wanted = Sampling(temperature=params.temperature, max_tokens=min(params.max_tokens, MOST_TOKENS), stop=stop)
    mode = (params.tool_choice.mode if params.tool_choice else None) or "auto"
    tools = _read_tools(params.tools or ())
    if mode == "required" and not tools:
        raise UsageError("toolChoice requires a tool, and there are none")
    return Request(tuple(messages), tools, Choice(mode), sampling=wanted)


def _read_tools(listed: "Sequence[types.Tool]") -> tuple[Tool, ...]:
    if len(listed) > MOST_TOOLS:
        raise UsageError(f"no more than {MOST_TOOLS} tools can be sampled with")
    tools = dict[str, Tool]()
    for tool in listed:
        if tool.name in tools:
            raise UsageError(f"two tools are called {tool.name}")
        check_schema(tool.input_schema)
        tools[tool.name] = Tool(tool.name, tool.description or tool.title or "", tool.input_schema)
    return tuple(tools.values())


def _read_message(message: "types.SamplingMessage", waiting: dict[str, str]) -> list[Message]:
    """A message of a server's, which may be several of ours: each result of a tool is one. `waiting` is kept up to date."""
    import mcp_types as types

    blocks = message.content_as_list
    texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
    uses = [block for block in blocks if isinstance(block, types.ToolUseContent)]
    results = [block for block in blocks if isinstance(block, types.ToolResultContent)]
    if len(texts) + len(uses) + len(results) < len(blocks):
        raise UsageError("only text can be sampled from")
    if (uses and message.role != "assistant") or (results and message.role != "user"):
        raise UsageError("tool_use is the assistant's, and tool_result the user's")
    if results and (texts or {block.tool_use_id for block in results} != set(waiting) or len(results) > len(waiting)):
        raise UsageError("a message with a tool_result has one for each tool_use before it, and nothing else")
    if waiting and not results:
        raise UsageError(f"there is no tool_result for {', '.join(waiting)}")
    if results:
        read = [Message.tool(_read_result(block, waiting[block.tool_use_id])) for block in results]
        waiting.clear()
        return read
    for block in uses:
        if block.id in waiting:
            raise UsageError(f"two calls have the id {block.id}")
        waiting[block.id] = block.name
    calls = tuple(Call(block.name, block.input, block.id) for block in uses)
    return [Message(message.role, "\n".join(texts), calls=calls)]


def _read_result(block: "types.ToolResultContent", name: str) -> Result:
    texts = [block_text(content) for content in block.content]
    content = block.structured_content if block.structured_content is not None and not any(texts) else "\n".join(texts)
    return Result(block.tool_use_id, name, content, ok=not block.is_error)
