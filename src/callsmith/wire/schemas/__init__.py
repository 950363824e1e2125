"""The schemas of requests and answers, and the operations they belong to, a module a dialect: what `/openapi.json` is made of."""

from dataclasses import dataclass
from typing import TypeAlias

from callsmith.core.values import Json
from callsmith.wire.declare import RequestFields
from callsmith.wire.declare.notation import Schema, parse_type

Term: TypeAlias = str | type[RequestFields]  # a type as in `notation.py`, or declared fields


def term_schema(term: Term) -> Schema:
    return parse_type(term) if isinstance(term, str) else term.reference()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the query. `bounds` are added to the schema of its type."""

    name: str
    about: str
    type: str = "string"
    least: int | None = None
    most: int | None = None
    default: Json = None

    def schema(self) -> Schema:
        bounds = {"minimum": self.least, "maximum": self.most, "default": self.default}
        return parse_type(self.type) | {name: bound for name, bound in bounds.items() if bound is not None}


PAGE_PARAMETERS = (
    Parameter("limit", "How many, 1 to 100.", "integer", 1, 100, 20),
    Parameter("order", "Newest first, or oldest.", '"desc" | "asc"'),
    Parameter("after", "The id behind which the page begins."),
)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a method of a path does. `frame` is what a stream is made of, where the answer may be one, `media` its type.

    `error` is what an error looks like, `example` a body that works as it stands.
    """

    summary: str
    body: Term | None = None
    answer: str | None = None
    frame: str | None = None
    parameters: tuple[Parameter, ...] = ()
    example: Json = None
    about: str = ""
    error: str = "Error"
    media: str = "text/event-stream"
    answer_media: str = "application/json"
