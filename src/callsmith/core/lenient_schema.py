"""Habits of schemas that are not JSON Schema but are meant as it: `nullable` of OpenAPI, the names Python gives to types,
references to names that no address may have (`#/definitions/List<string>`)."""

import re
from typing import Any, cast

# What tools made from Python signatures call their types. `any` is no type at all.
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


_UNSAFE = re.compile(r"[^A-Za-z0-9\-._~:/?#@!$&'()*+,;=%]")  # not in an address


def json_types(schema: Any) -> list[str] | None:
    """The types a schema names, as JSON Schema spells them; None where it names none. `nullable` counts beside a type only."""
    kind = schema.get("type")
    given = [kind] if isinstance(kind, str) else cast(list[Any], kind) if isinstance(kind, list) else None
    if given is None:
        return None
    meant = [PYTHON_TYPES.get(one, one) if isinstance(one, str) else str(one) for one in given]
    if None in meant:
        return None
    named = cast(list[str], meant)
    return [*named, "null"] if schema.get("nullable") is True and "null" not in named else named


def is_modern(schema: Any) -> bool:
    """Whether its type is said as JSON Schema says it."""
    kind = schema.get("type")
    kinds = cast(list[Any], kind) if isinstance(kind, list) else [] if kind is None else [kind]
    nullable = schema.get("nullable") is True and kinds and "null" not in kinds
    spelled = not any(isinstance(one, str) and one in PYTHON_TYPES for one in kinds)
    return not nullable and spelled and not _UNSAFE.search(str(schema.get("$ref", "")))


def normalize(schema: dict[str, Any]) -> None:
    """Say its type, and what it refers to, as JSON Schema does."""
    if "type" in schema:
        types = json_types(schema)
        schema["type"] = types
        if types is None:
            del schema["type"]
    if isinstance(reference := schema.get("$ref"), str):
        schema["$ref"] = _UNSAFE.sub(
            lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode(errors="replace")), reference
        )
