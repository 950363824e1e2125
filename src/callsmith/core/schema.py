"""JSON Schema: checked when a tool is made, compiled once, and used to tell a model what is wrong with its arguments.

    >>> validate({"properties": {"city": {"type": "string"}}}, {"city": 5})
    [Complaint(path='/city', message='5 is not of type "string"')]

Drafts 2020-12 and 7 are both understood, a `$schema` or none, and the habits of `dialect.py`; `$ref` is followed inside the
document and never over the network.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.lenient_schema import is_modern, normalize
from callsmith.core.values import Json, Schema

# Where schemas stand inside a schema: alone, in a list, or under names that are not keywords.
_ALONE = frozenset(
    {"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LISTED = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})

_TYPES = "array, boolean, integer, null, number, object or string"
_MOST_COMPLAINTS = 5
_LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing wrong with a value: where (a JSON pointer, empty for the whole) and what."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"at {self.path}: {self.message}" if self.path else self.message


def pointer(tokens: Sequence[str | int]) -> str:
    """`["a", 0]` as the JSON pointer `/a/0`."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def validate(schema: Schema, value: Json) -> list[Complaint]:
    """What is wrong with these arguments (or any value), worded for the model that wrote them; empty when nothing is."""
    validator = _validator(schema)
    try:
        errors = list(validator.iter_errors(dict(cast(Mapping[str, Json], value)) if isinstance(value, Mapping) else value))
    except ValueError as error:  # not JSON at all, or nested deeper than the validator follows
        return [Complaint("", str(error))]
    complaints = [_complaint(error, schema) for error in errors[:_MOST_COMPLAINTS]]
    if len(errors) > _MOST_COMPLAINTS:
        complaints.append(Complaint("", f"and {len(errors) - _MOST_COMPLAINTS} more"))
    return complaints


_seen: dict[int, tuple[Schema, jsonschema_rs.Validator]] = {}  # by the object, which is kept so that nothing else gets its id
_MOST_SEEN = 1024


def _validator(schema: Schema) -> jsonschema_rs.Validator:
    """The validator of a schema. Schemas are values: one that was seen before is not looked into again."""
    known = _seen.get(id(schema))
    if known is None:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        known = _seen[id(schema)] = (schema, _compiled(_canonical(schema)))
    return known[1]


def check_schema(schema: Schema, field: str | None = None) -> None:
    """Raise UnsupportedSchema, naming place and keyword, if this is no valid JSON Schema. `field` says where it came from."""
    try:
        _compiled(_canonical(schema))
    except UnsupportedSchema as error:
        raise UnsupportedSchema(error.path, error.keyword, error.why, field=field) from None


def schema_of(annotation: Any) -> dict[str, Json]:
    """The JSON Schema of a Python type: a pydantic model, a dataclass, an enum, `list[int]`, …"""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

    try:
        return untitled(TypeAdapter(annotation).json_schema())
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError) as error:
        raise UsageError(f"no JSON Schema for {annotation!r}: {str(error).splitlines()[0]}") from error


def untitled(schema: Schema) -> dict[str, Json]:
    """The schema without the titles pydantic gives to everything: they cost tokens and say nothing new."""
    copy = dict(deepcopy(schema))
    for _, inner in subschemas(copy):
        if isinstance(inner.get("title"), str):
            cast(dict[str, Json], inner).pop("title")
    return copy


def modern(schema: Schema) -> Schema:
    """The schema with the habits of `dialect.py` put right; itself where it has none. Every keyword stays where it stands."""
    if all(is_modern(inner) for _, inner in subschemas(schema)):
        return schema
    copy = deepcopy(schema)
    for _, inner in subschemas(copy):
        if not is_modern(inner):
            normalize(cast(dict[str, Json], inner))
    return copy


def subschemas(schema: Schema, tokens: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    """The schema and every schema inside it, each with its place."""
    yield tokens, schema
    for keyword, value in list(schema.items()):
        found: list[tuple[tuple[str | int, ...], Json]] = []
        if keyword in _NAMED and isinstance(value, Mapping):
            found = [((keyword, name), inner) for name, inner in cast(Mapping[str, Json], value).items()]
        elif keyword in _LISTED and isinstance(value, list):
            found = [((keyword, index), inner) for index, inner in enumerate(cast(list[Json], value))]
        elif keyword in _ALONE:
            found = [((keyword,), value)]
        for place, inner in found:
            if isinstance(inner, Mapping):
                yield from subschemas(cast(Schema, inner), (*tokens, *place))


def _canonical(schema: Schema) -> str:
    try:
        return json.dumps(schema, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UnsupportedSchema("", "", f"not a JSON document: {error}") from None
    except RecursionError:
        raise UnsupportedSchema("", "", "nested too deeply") from None


@lru_cache(maxsize=1024)
def _compiled(text: str) -> jsonschema_rs.Validator:
    schema = json.loads(text)
    if not isinstance(schema, dict):
        raise UnsupportedSchema("", "", "a schema is a JSON object")
    document = cast(dict[str, Json], modern(cast(Schema, schema)))
    try:
        return jsonschema_rs.validator_for(document, retriever=_stay_here)
    except jsonschema_rs.ValidationError as error:
        first = error
    except ValueError as error:
        raise UnsupportedSchema("", "", str(error)) from None
    # A list under `items`, a bound that is `true`: habits of older drafts, common where `$schema` is missing or not theirs.
    for draft in (jsonschema_rs.Draft7Validator, jsonschema_rs.Draft4Validator):
        with suppress(jsonschema_rs.ValidationError):
            return draft({key: value for key, value in document.items() if key != "$schema"}, retriever=_stay_here)
    raise _unsupported(document, first)


def _stay_here(uri: str) -> Json:
    raise ValueError(f"{uri} is outside the schema, and is not fetched")


def _unsupported(schema: Schema, error: jsonschema_rs.ValidationError) -> UnsupportedSchema:
    if error.kind.name == "$ref":
        for tokens, inner in subschemas(schema):
            reference = inner.get("$ref")
            if isinstance(reference, str) and not _resolves(schema, reference):
                return UnsupportedSchema(pointer(tokens), "$ref", f"{reference!r} leads nowhere in this schema")
        return UnsupportedSchema("", "$ref", error.message)
    tokens = list(error.instance_path)
    place, keyword = _locate(tokens)
    if keyword == "type":
        return UnsupportedSchema(place, keyword, f"{json.dumps(error.instance)} is not a type; a type is {_TYPES}")
    return UnsupportedSchema(place, keyword or error.kind.name, _shortened(error.message))


def _resolves(schema: Schema, reference: str) -> bool:
    if reference == "#":
        return True
    here: Any = schema
    for token in reference.removeprefix("#/").split("/"):
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping) and name in here:
            here = cast(Mapping[str, Any], here)[name]
        elif isinstance(here, list) and name.isdigit() and int(name) < len(cast(list[Any], here)):
            here = cast(list[Any], here)[int(name)]
        else:
            return False
    return reference.startswith("#/")


def _locate(tokens: Sequence[str | int]) -> tuple[str, str]:
    """The place of the innermost schema on this path, and the keyword in it that the path goes on through."""
    place, keyword, at = "", "", 0
    while at < len(tokens):
        place, keyword = pointer(tokens[:at]), str(tokens[at])
        if keyword in _NAMED or (keyword in _LISTED and _indexed(tokens, at + 1)):
            at += 2
        elif keyword in _ALONE:
            at += 1
        else:
            break
    return place, keyword


def _indexed(tokens: Sequence[str | int], at: int) -> bool:
    return at < len(tokens) and isinstance(tokens[at], int)


def _complaint(error: jsonschema_rs.ValidationError, schema: Schema) -> Complaint:
    message = _shortened(error.message)
    match error.kind:
        case jsonschema_rs.ValidationErrorKind.AnyOf(context) | jsonschema_rs.ValidationErrorKind.OneOfNotValid(context):
            branches = [str(_complaint(branch[0], schema)) for branch in context if branch][:3]
            message = "fits none of the alternatives: " + "; or ".join(branches)
        case jsonschema_rs.ValidationErrorKind.AdditionalProperties() if not error.instance_path and "properties" in schema:
            message += "; known: " + (", ".join(schema["properties"]) or "none")
        case _:
            pass
    return Complaint(pointer(error.instance_path), message)


def _shortened(message: str) -> str:
    """Messages quote the value they are about; the reason stands at the end."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    return f"{message[: _LONGEST_MESSAGE // 2]} … {message[-_LONGEST_MESSAGE // 2 :]}"
