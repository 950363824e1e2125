"""Elicitation: an MCP server asks a person for input during a call.

That, and sampling, is refused unless `ClientFeatures` has something to answer it with.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.ports import Model
from callsmith.core.schema import validate
from callsmith.core.values import Call, Json, Schema

if TYPE_CHECKING:
    import mcp_types as types

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
