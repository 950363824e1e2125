"""JSON Schema: schemas are checked when a tool is made, compiled once, and values are validated against them.

    >>> validate({"properties": {"city": {"type": "string"}}}, {"city": 5})
    [Complaint(path='/city', message='5 is not of type "string"')]

Drafts 2020-12 and 7 are both understood, with or without a `$schema`, and common mistakes are corrected: `nullable` as in
OpenAPI, types with Python's names, and references with characters that a URI may not contain (`#/definitions/List<string>`).
A `$ref` is followed inside the document and never over the network.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.types.json_types import Json, Schema

# The keywords whose value is a schema, a list of schemas, or a mapping of names to schemas.
_SINGLE_SCHEMAS = frozenset(
    {"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_SCHEMA_MAPS = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})

# The names of types in tools made from Python signatures. `any` allows every type.
PYTHON_TYPES = {
    "dict": "object",
    "float": "number",
    "int": "integer",
    "bool": "boolean",
    "str": "string",
    "list": "array",
    "tuple": "array",
    "none": "null",
    "NoneType": "null",
    "any": None,
}

GRAMMAR = "x-grammar"  # a keyword of ours for strings: {"syntax": "lark" or "regex", "definition": "…"}

_UNSAFE = re.compile(r"[^A-Za-z0-9\-._~:/?#@!$&'()*+,;=%]")  # may not stand in a URI

_TYPES = "array, boolean, integer, null, number, object or string"
_MAX_COMPLAINTS = 5
_MAX_MESSAGE = 300


_keywords: dict[str, type] = {}  # beyond those of JSON Schema


def add_keyword(name: str, check: type) -> None:
    """Add a keyword of our own to all schemas: `check(schema, value, path)` raises where the value of the keyword is wrong, and
    its method `validate(instance)` raises a ValueError, for the model, where an instance is."""
    _keywords[name] = check
    _validators.clear()  # of schemas that were compiled without it
    _compile.cache_clear()


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
    """List what is wrong with a value, in sentences for the model that wrote it; an empty list means that it is valid."""
    known = _validators.get(id(schema))
    validator = known[1] if known else _make_validator(schema)
    if type(value) is not dict and isinstance(value, Mapping):
        value = dict(cast(Mapping[str, Json], value))
    try:
        if validator.is_valid(value):  # much quicker than asking for what is wrong
            return []
        errors = list(validator.iter_errors(value))
    except ValueError as error:  # not JSON at all, or nested deeper than the validator follows
        return [Complaint("", str(error))]
    complaints = [_complaint(error, schema) for error in errors[:_MAX_COMPLAINTS]]
    if len(errors) > _MAX_COMPLAINTS:
        complaints.append(Complaint("", f"and {len(errors) - _MAX_COMPLAINTS} more"))
    return complaints


# By the id of the schema object. The object is stored too: while it lives, no other object can have its id.
_validators: dict[int, tuple[Schema, jsonschema_rs.Validator]] = {}
_MAX_VALIDATORS = 1024


def _make_validator(schema: Schema) -> jsonschema_rs.Validator:
    """The validator of a schema, cached by the schema object: schemas are never changed."""
    if len(_validators) >= _MAX_VALIDATORS:
        _validators.clear()
    _validators[id(schema)] = schema, (validator := _compile(_canonical(schema)))
    return validator


def check_schema(schema: Schema, field: str | None = None) -> None:
    """Raise UnsupportedSchema, with path and keyword, if this is not a valid JSON Schema. `field` is the field it came from."""
    try:
        _compile(_canonical(schema))
    except UnsupportedSchema as error:
        raise UnsupportedSchema(error.path, error.keyword, error.why, field=field) from None


def schema_of(annotation: Any) -> dict[str, Json]:
    """The JSON Schema of a Python type: a pydantic model, a dataclass, an enum, `list[int]`, …"""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return drop_titles(TypeAdapter(annotation).json_schema())
    except PydanticUserError as error:
        raise UsageError(f"no JSON Schema for {annotation!r}: {str(error).splitlines()[0]}") from error


def parse_as(annotation: Any, text: str) -> Any:
    """A value of the Python type from JSON text; a ValueError lists what does not fit."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(annotation).validate_json(text)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        raise ValueError("; ".join(str(Complaint(pointer(item["loc"]), item["msg"])) for item in errors)) from error


def drop_titles(schema: Schema) -> dict[str, Json]:
    """A copy without the titles that pydantic adds everywhere: they cost tokens and repeat the names."""
    copy = dict(deepcopy(schema))
    for _, inner in subschemas(copy):
        if isinstance(inner.get("title"), str):
            cast(dict[str, Json], inner).pop("title")
    return copy


def to_standard(schema: Schema) -> Schema:
    """Correct common mistakes in a copy, or return the schema itself if it is standard. No keyword moves."""
    if all(is_standard(inner) for _, inner in subschemas(schema)):
        return schema
    copy = deepcopy(schema)
    for _, inner in subschemas(copy):
        if not is_standard(inner):
            standardize(cast(dict[str, Json], inner))
    return copy


def subschemas(schema: Schema, tokens: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    """Yield the schema and every schema inside it, each with its path."""
    yield tokens, schema
    for keyword, value in list(schema.items()):
        inner_schemas: list[tuple[tuple[str | int, ...], Json]] = []
        if keyword in _SCHEMA_MAPS and isinstance(value, Mapping):
            inner_schemas = [((keyword, name), inner) for name, inner in cast(Mapping[str, Json], value).items()]
        elif keyword in _SCHEMA_LISTS and isinstance(value, list):
            inner_schemas = [((keyword, index), inner) for index, inner in enumerate(cast(list[Json], value))]
        elif keyword in _SINGLE_SCHEMAS:
            inner_schemas = [((keyword,), value)]
        for place, inner in inner_schemas:
            if isinstance(inner, Mapping):
                yield from subschemas(cast(Schema, inner), (*tokens, *place))


def locate(root: Schema, reference: str) -> tuple[Any, str] | None:
    """The schema a reference points to, and its pointer: by pointer, `$anchor` or `$id`; None: not within this schema."""
    base, _, fragment = reference.partition("#")
    target: Any = root
    steps: list[str] = []
    anchor = "" if fragment.startswith("/") else fragment
    for sought in ((base, ""), ("", anchor)):
        if any(sought):
            identified = _find_identified(target, *sought)
            if identified is None:
                return None
            steps, target = [*steps, *identified[0]], identified[1]
    for step in _unescape(fragment.removeprefix(anchor)).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping) and name in target:
            target = cast(Schema, target)[name]
        elif isinstance(target, list) and name.isdigit() and int(name) < len(cast(list[Any], target)):
            target = cast(list[Any], target)[int(name)]
        else:
            return None
        steps.append(name)
    return target, "#" + pointer(steps)


def _find_identified(root: Schema, base: str, anchor: str) -> tuple[list[str], Schema] | None:
    """The path and the schema with this `$id`, or with this anchor: one that belongs to no inner `$id`, if there is one."""
    match, within = None, list[tuple[str | int, ...]]()  # schemas with an `$id` of their own, and so with anchors of their own
    for tokens, inner in subschemas(root):
        identity = str(inner.get("$id", ""))
        is_match = identity.rstrip("#") == base or identity.rpartition("/")[2] == base if base else identity == f"#{anchor}"
        if tokens and identity and not identity.startswith("#"):
            within.append(tokens)
        if is_match or (not base and anchor in (inner.get("$anchor"), inner.get("$dynamicAnchor"))):
            match = match or ([str(token) for token in tokens], inner)
            if base or not any(tokens[: len(item)] == item for item in within):
                return [str(token) for token in tokens], inner
    return match


def _unescape(fragment: str) -> str:
    """The fragment with percent escapes decoded."""
    coded = re.sub(rb"%([0-9a-fA-F]{2})", lambda match: bytes([int(match[1], 16)]), fragment.encode())
    return coded.decode("utf-8", "replace")


def _canonical(schema: Schema) -> str:
    try:
        return json.dumps(schema, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UnsupportedSchema("", "", f"not a JSON document: {error}") from None
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> UnsupportedSchema:
    return UnsupportedSchema("", "", "nested too deeply")


@lru_cache(maxsize=1024)
def _compile(text: str) -> jsonschema_rs.Validator:
    schema = json.loads(text)
    if not isinstance(schema, dict):
        raise UnsupportedSchema("", "", "a schema is a JSON object")
    try:
        document = cast(dict[str, Json], to_standard(cast(Schema, schema)))
    except RecursionError:  # Python from 3.12 on writes and reads JSON that is nested deeper than its own functions may be
        raise _too_deep() from None
    own = {name: check for name, check in _keywords.items() if f'"{name}":' in text} or None
    try:
        return jsonschema_rs.validator_for(document, retriever=_refuse_fetch, keywords=own)
    except jsonschema_rs.ValidationError as error:
        first = error
    except ValueError as error:
        raise UnsupportedSchema("", "", str(error)) from None
    # A list under `items`, a bound that is `true`: as in older drafts, common where `$schema` is missing or names another draft.
    for draft in (jsonschema_rs.Draft7Validator, jsonschema_rs.Draft4Validator):
        with suppress(jsonschema_rs.ValidationError):
            older = {key: value for key, value in document.items() if key != "$schema"}
            return draft(older, retriever=_refuse_fetch, keywords=own)
    raise _make_unsupported(document, first)


def _refuse_fetch(uri: str) -> Json:
    raise ValueError(f"{uri} is outside the schema, and is not fetched")


def _make_unsupported(schema: Schema, error: jsonschema_rs.ValidationError) -> UnsupportedSchema:
    if error.kind.name == "$ref":
        for tokens, inner in subschemas(schema):
            reference = inner.get("$ref")
            if isinstance(reference, str) and locate(schema, reference) is None:
                return UnsupportedSchema(pointer(tokens), "$ref", f"{reference!r} leads nowhere in this schema")
        return UnsupportedSchema("", "$ref", error.message)
    tokens = list(error.instance_path)
    if tokens and (own := str(tokens[-1])) in _keywords:
        why = _shorten(error.message.partition(": ")[2].partition(": ")[2] or error.message)
        return UnsupportedSchema(pointer(tokens[:-1]), own, why)
    place, keyword = _locate(tokens)
    if keyword == "type":
        return UnsupportedSchema(place, keyword, f"{json.dumps(error.instance)} is not a type; a type is {_TYPES}")
    return UnsupportedSchema(place, keyword or error.kind.name, _shorten(error.message))


def _locate(tokens: Sequence[str | int]) -> tuple[str, str]:
    """The path of the innermost schema on the way to this place, and the keyword in it that the way goes on through."""
    place, keyword, at = "", "", 0
    while at < len(tokens):
        place, keyword = pointer(tokens[:at]), str(tokens[at])
        if keyword in _SCHEMA_MAPS or (keyword in _SCHEMA_LISTS and _is_index(tokens, at + 1)):
            at += 2
        elif keyword in _SINGLE_SCHEMAS:
            at += 1
        else:
            break
    return place, keyword


def _is_index(tokens: Sequence[str | int], at: int) -> bool:
    return at < len(tokens) and isinstance(tokens[at], int)


def _complaint(error: jsonschema_rs.ValidationError, schema: Schema) -> Complaint:
    message = _shorten(error.message)
    match error.kind:
        case jsonschema_rs.ValidationErrorKind.AnyOf(context) | jsonschema_rs.ValidationErrorKind.OneOfNotValid(context):
            branches = [str(_complaint(branch[0], schema)) for branch in context if branch][:3]
            message = "fits none of the alternatives: " + "; or ".join(branches)
        case jsonschema_rs.ValidationErrorKind.AdditionalProperties() if not error.instance_path and "properties" in schema:
            message += "; known: " + (", ".join(schema["properties"]) or "none")
        case _:
            pass
    return Complaint(pointer(error.instance_path), message)


def _shorten(message: str) -> str:
    """Cut the middle out of a long message: it quotes the value first, and the reason is at its end."""
    if len(message) <= _MAX_MESSAGE:
        return message
    return f"{message[: _MAX_MESSAGE // 2]} … {message[-_MAX_MESSAGE // 2 :]}"


# --- common mistakes ----------------------------------------------------------------------------------------------------------


def json_types(schema: Any) -> list[str] | None:
    """The types a schema names, as JSON Schema spells them; None where it names none. `nullable` counts only beside a type."""
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else cast(list[Any], kind) if isinstance(kind, list) else None
    if kinds is None:
        return None
    meant = [PYTHON_TYPES.get(item, item) if isinstance(item, str) else str(item) for item in kinds]
    if None in meant:
        return None
    types = cast(list[str], meant)
    return [*types, "null"] if schema.get("nullable") is True and "null" not in types else types


def is_standard(schema: Any) -> bool:
    """Whether its `type` and `$ref` are spelled as JSON Schema has them."""
    kind = schema.get("type")
    kinds = cast(list[Any], kind) if isinstance(kind, list) else [] if kind is None else [kind]
    nullable = schema.get("nullable") is True and kinds and "null" not in kinds
    spelled = not any(isinstance(kind, str) and kind in PYTHON_TYPES for kind in kinds)
    return not nullable and spelled and not _UNSAFE.search(str(schema.get("$ref", "")))


def standardize(schema: dict[str, Any]) -> None:
    """Rewrite its `type` and `$ref` in place as JSON Schema spells them."""
    if "type" in schema:
        types = json_types(schema)
        schema["type"] = types
        if types is None:
            del schema["type"]
    if isinstance(reference := schema.get("$ref"), str):
        schema["$ref"] = _UNSAFE.sub(
            lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode(errors="replace")), reference
        )
