"""Requests of MCP servers during a call: elicitation asks a person for input, sampling asks our model for a text.

Both are refused unless `ClientFeatures` has something to answer them with.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, UnsupportedSchema
from callsmith.core.events import Stopped, Text
from callsmith.core.ports import Model
from callsmith.core.schema import validate
from callsmith.core.values import Call, Json, Message, Request, Sampling, Schema

if TYPE_CHECKING:
    import mcp_types as types

MOST_TOKENS = 2_000  # that a server may ask our model for at a time
MOST_TRIES = 3  # of a person to give an answer that fits the schema

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ElicitationRequest:
    """A server's request for input from a person: an answer that fits a schema, or a visit to a page.

    `call` is the call it belongs to and `subject` the caller, where they are known.
    """

    server: str
    message: str
    schema: Schema | None = None
    url: str = ""
    call: Call | None = None
    subject: str = ""


@dataclass(frozen=True, slots=True)
class ElicitationReply:
    """A person's answer. For fields it leaves out the schema's defaults are sent."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Json] = field(default_factory=dict[str, Json])


Ask: TypeAlias = Callable[[ElicitationRequest], Awaitable[ElicitationReply]]


@dataclass(frozen=True, slots=True)
class ClientFeatures:
    """What servers may request of us: `ask` asks a person (elicitation), `model` writes texts (sampling)."""

    ask: Ask | None = None
    model: Model | None = None


async def elicit(ask: Ask, question: ElicitationRequest) -> "types.ElicitResult | types.ErrorData":
    """Ask a person and return the answer in MCP's form. An answer that does not fit the schema is asked for again, never sent."""
    import mcp_types as types

    schema, current = question.schema or {}, question
    try:
        for _ in range(MOST_TRIES):
            reply = await ask(current)
            if reply.action != "accept" or question.url:
                return types.ElicitResult(action=reply.action)
            properties = cast("Mapping[str, Mapping[str, Json]]", schema.get("properties") or {})
            defaults = {name: declared["default"] for name, declared in properties.items() if "default" in declared}
            content: Any = {**defaults, **reply.content}
            if not (complaints := _complaints(schema, content)):
                return types.ElicitResult(action="accept", content=content)
            current = replace(question, message=f"{question.message} (The answer did not fit: {'; '.join(complaints)})")
    except Exception as error:  # it must not break the connection
        _log.warning("MCP server %s asked for input, and no person could be asked: %r", question.server, error)
        return types.ErrorData(code=types.INTERNAL_ERROR, message="nobody could be asked")
    return types.ElicitResult(action="cancel")


def _complaints(schema: Schema, content: Mapping[str, Json]) -> list[str]:
    try:
        return [str(complaint) for complaint in validate(schema, content)]
    except UnsupportedSchema:
        return []  # only the server can check it


async def sample(model: Model, params: "types.CreateMessageRequestParams") -> "types.CreateMessageResult | types.ErrorData":
    """Have our model write a text for a server. Requests with tools are refused: it would be unclear who runs them."""
    import mcp_types as types

    if params.tools:
        return types.ErrorData(code=types.INVALID_PARAMS, message="sampling with tools is not supported")
    messages = [Message.system(params.system_prompt)] if params.system_prompt else []
    for message in params.messages:
        texts = [block.text for block in message.content_as_list if isinstance(block, types.TextContent)]
        if len(texts) < len(message.content_as_list):
            return types.ErrorData(code=types.INVALID_PARAMS, message="only text can be sampled from")
        messages.append(Message(message.role, "\n".join(texts)))
    wanted = Sampling(
        temperature=params.temperature,
        max_tokens=min(params.max_tokens, MOST_TOKENS),
        stop=tuple(params.stop_sequences or ()),
    )
    text, reason = "", "stop"
    try:
        async with closing(model.stream(Request(tuple(messages), sampling=wanted))) as events:
            async for event in events:
                match event:
                    case Text():
                        text += event.text
                    case Stopped():
                        reason = event.reason
                    case _:
                        pass
    except CallsmithError as error:
        return types.ErrorData(code=types.INTERNAL_ERROR, message=str(error))
    except Exception as error:  # it must not break the connection
        _log.warning("sampling for an MCP server failed: %r", error)
        return types.ErrorData(code=types.INTERNAL_ERROR, message="the model failed")
    return types.CreateMessageResult(
        role="assistant",
        content=types.TextContent(text=text),
        model="callsmith",
        stop_reason="maxTokens" if reason == "length" else "endTurn",
    )
