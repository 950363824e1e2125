"""Common mistakes in JSON Schemas, corrected: `nullable` as in OpenAPI, types with Python's names, and references with characters
that a URI may not contain (`#/definitions/List<string>`)."""

import re
from typing import Any, cast

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

_UNSAFE = re.compile(r"[^A-Za-z0-9\-._~:/?#@!$&'()*+,;=%]")  # may not stand in a URI


def json_types(schema: Any) -> list[str] | None:
    """The types a schema names, as JSON Schema spells them; None where it names none. `nullable` counts only beside a type."""
    kind = schema.get("type")
    given = [kind] if isinstance(kind, str) else cast(list[Any], kind) if isinstance(kind, list) else None
    if given is None:
        return None
    meant = [PYTHON_TYPES.get(one, one) if isinstance(one, str) else str(one) for one in given]
    if None in meant:
        return None
    named = cast(list[str], meant)
    return [*named, "null"] if schema.get("nullable") is True and "null" not in named else named


def is_standard(schema: Any) -> bool:
    """Whether its `type` and `$ref` are spelled as JSON Schema has them."""
    kind = schema.get("type")
    kinds = cast(list[Any], kind) if isinstance(kind, list) else [] if kind is None else [kind]
    nullable = schema.get("nullable") is True and kinds and "null" not in kinds
    spelled = not any(isinstance(one, str) and one in PYTHON_TYPES for one in kinds)
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
            lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode(errors="replace")), reference
        )
