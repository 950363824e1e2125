"""What a server asks back while it runs a call: a person for an answer (elicitation), our model for a text (sampling).

Both are refused unless somebody is there to answer them.
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

MOST_TOKENS = 2_000  # that a server may have written for it at a time
MOST_TRIES = 3  # that a person has to give an answer which fits

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """What a server wants to know from a person: something that fits a schema, or that a page is visited.

    `call` is the call it is about, and `subject` for whom it runs, where that is known.
    """

    server: str
    message: str
    schema: Schema | None = None
    url: str = ""
    call: Call | None = None
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A person's answer. What it leaves out is what the schema suggests."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Json] = field(default_factory=dict[str, Json])


Ask: TypeAlias = Callable[[Question], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Answering:
    """Who answers: `ask` puts a question to a person, `model` writes texts."""

    ask: Ask | None = None
    model: Model | None = None


async def elicited(ask: Ask, question: Question) -> "types.ElicitResult | types.ErrorData":
    """A person's answer, as a server wants it. One that does not fit is asked for again, and never sent."""
    import mcp_types as types

    schema, asked = question.schema or {}, question
    try:
        for _ in range(MOST_TRIES):
            reply = await ask(asked)
            if reply.action != "accept" or question.url:
                return types.ElicitResult(action=reply.action)
            content: Any = {**_suggested(schema), **reply.content}
            if not (complaints := _complaints(schema, content)):
                return types.ElicitResult(action="accept", content=content)
            asked = replace(question, message=f"{question.message} (The answer did not fit: {'; '.join(complaints)})")
    except Exception as error:  # it fails the call, and must not take the connection with it
        _log.warning("MCP server %s wanted to know something, and nobody could be asked: %r", question.server, error)
        return types.ErrorData(code=types.INTERNAL_ERROR, message="nobody could be asked")
    return types.ElicitResult(action="cancel")


def _suggested(schema: Schema) -> dict[str, Json]:
    properties = cast("Mapping[str, Mapping[str, Json]]", schema.get("properties") or {})
    return {name: one["default"] for name, one in properties.items() if "default" in one}


def _complaints(schema: Schema, content: Mapping[str, Json]) -> list[str]:
    try:
        return [str(one) for one in validate(schema, content)]
    except UnsupportedSchema:
        return []  # nobody but the server can say


async def sampled(model: Model, params: "types.CreateMessageRequestParams") -> "types.CreateMessageResult | types.ErrorData":
    """What our model writes for a server. Its tools are not offered: who runs them would be unclear."""
    import mcp_types as types

    if params.tools:
        return types.ErrorData(code=types.INVALID_PARAMS, message="sampling with tools is not supported")
    said = [Message.system(params.system_prompt)] if params.system_prompt else []
    for message in params.messages:
        words = [block.text for block in message.content_as_list if isinstance(block, types.TextContent)]
        if len(words) < len(message.content_as_list):
            return types.ErrorData(code=types.INVALID_PARAMS, message="only text can be sampled from")
        said.append(Message(message.role, "\n".join(words)))
    wanted = Sampling(
        temperature=params.temperature,
        max_tokens=min(params.max_tokens, MOST_TOKENS),
        stop=tuple(params.stop_sequences or ()),
    )
    text, reason = "", "stop"
    try:
        async with closing(model.stream(Request(tuple(said), sampling=wanted))) as events:
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
    except Exception as error:  # as with a person
        _log.warning("a server had our model write something, which failed: %r", error)
        return types.ErrorData(code=types.INTERNAL_ERROR, message="the model failed")
    return types.CreateMessageResult(
        role="assistant",
        content=types.TextContent(text=text),
        model="callsmith",
        stop_reason="maxTokens" if reason == "length" else "endTurn",
    )
