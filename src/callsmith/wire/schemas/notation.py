"""How the tables of this package are written: JSON Schemas in few words, and operations.

    answer({"id": text("…"), "usage?": "Usage"})     an object that we write: all is there but what has a "?"
    request({"model": text("…"), "input!": any_of("Items", text())})     one that we read: null is absence but for "!"

A string in the place of a schema is the name of another one, among the `SCHEMAS` of any module of this package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from callsmith.core.values import Json

Schema: TypeAlias = dict[str, Json]
Term: TypeAlias = Schema | str  # a schema, or the name of one


def resolve(term: Term) -> Schema:
    """The schema of a term."""
    return {"$ref": f"#/components/schemas/{term}"} if isinstance(term, str) else term


def _described(schema: Schema, about: str) -> Schema:
    return {**schema, "description": about} if about else schema


def text(about: str = "", **more: Json) -> Schema:
    return _described({"type": "string", **more}, about)


def flag(about: str = "") -> Schema:
    return _described({"type": "boolean"}, about)


def integer(about: str = "", **more: Json) -> Schema:
    return _described({"type": "integer", **more}, about)


def number(about: str = "", **more: Json) -> Schema:
    return _described({"type": "number", **more}, about)


def words(*values: str, about: str = "") -> Schema:
    """One of these texts."""
    return _described({"type": "string", "enum": [*values]}, about)


def constant(value: Json) -> Schema:
    return {"const": value}


def array(items: Term, about: str = "", **more: Json) -> Schema:
    return _described({"type": "array", "items": resolve(items), **more}, about)


def mapping(values: Term, about: str = "") -> Schema:
    """An object with any names, whose values are of one kind."""
    return _described({"type": "object", "additionalProperties": resolve(values)}, about)


def anything(about: str = "") -> Schema:
    return _described({}, about)


def any_object(about: str = "") -> Schema:
    return _described({"type": "object", "additionalProperties": True}, about)


def any_of(*terms: Term, about: str = "") -> Schema:
    return _described({"anyOf": [resolve(term) for term in terms]}, about)


def nullable(term: Term) -> Schema:
    """What a term is, or null."""
    schema = resolve(term)
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    if "enum" in schema:
        return {**{key: value for key, value in schema.items() if key != "type"}, "enum": [*schema["enum"], None]}
    if not schema.keys() - {"description"}:
        return schema
    return _described({"anyOf": [schema, {"type": "null"}]}, "")


def answer(properties: Mapping[str, Term], about: str = "") -> Schema:
    """An object that is written here: what has no "?" is always there."""
    required = [name for name in properties if not name.endswith("?")]
    return _object({name.removesuffix("?"): resolve(term) for name, term in properties.items()}, required, about)


def request(properties: Mapping[str, Term], about: str = "") -> Schema:
    """An object that is read here: what has no "!" may be absent or null. Fields that are not listed are passed over."""
    required = [name.removesuffix("!") for name in properties if name.endswith("!")]
    terms = {name.removesuffix("!"): resolve(term) if name.endswith("!") else nullable(term) for name, term in properties.items()}
    return _object(terms, required, about)


def _object(properties: Mapping[str, Schema], required: Sequence[str], about: str) -> Schema:
    return _described({"type": "object", "properties": {**properties}, **({"required": [*required]} if required else {})}, about)


def refused(neutral: Mapping[str, tuple[Json, ...]]) -> dict[str, Term]:
    """Fields of a request that are not supported: only values that ask for nothing are taken."""
    return {
        name: {"enum": [*values], "description": "Not supported: refused unless it asks for nothing."}
        for name, values in neutral.items()
    }


def hints(known: Mapping[str, str]) -> dict[str, Term]:
    """Fields of a request of which nothing comes."""
    return {name: {"description": f"Nothing comes of it: {why}."} for name, why in known.items()}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the query."""

    name: str
    about: str
    schema: Schema = field(default_factory=text)


PAGE_PARAMETERS = (
    Parameter("limit", "How many, 1 to 100.", integer(minimum=1, maximum=100, default=20)),
    Parameter("order", "Newest first, or oldest.", words("desc", "asc")),
    Parameter("after", "The id behind which the page begins."),
)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a method of a path does. `frame` is what a stream is made of, where the answer may be one, `media` its type.

    `error` is what an error looks like, `example` a body that works as it stands.
    """

    summary: str
    body: Term | None = None
    answer: Term | None = None
    frame: Term | None = None
    parameters: tuple[Parameter, ...] = ()
    example: Json = None
    about: str = ""
    error: Term = "Error"
    media: str = "text/event-stream"
    answer_media: str = "application/json"
