"""Whether arguments are valid in all that a grammar says it enforces, by a validator that knows nothing of grammars."""

import copy
import json
from functools import lru_cache
from typing import Any

import jsonschema_rs

from callsmith.core.schema import to_standard
from callsmith.core.values import Schema


def enforced(schema: Schema, unenforced: tuple[tuple[str, str], ...]) -> Any:
    """The schema without exactly those keywords at exactly those places; what was to fit one alone may fit several."""
    kept = copy.deepcopy(to_standard(schema))
    for path, keyword in sorted(unenforced, key=lambda item: -item[0].count("/")):  # inner ones first: places move
        place: Any = kept
        for step in path.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place[int(name)] if isinstance(place, list) else place[name]
        value = place.pop(keyword)
        if keyword == "oneOf":
            place.setdefault("allOf", []).append({"anyOf": value})
        elif (
            keyword == "patternProperties"
        ):  # what they hold is free, but they are still there: `additionalProperties` counts them
            place[keyword] = dict.fromkeys(value, True)
    return kept


def complaint(schema: Schema, unenforced: tuple[tuple[str, str], ...], arguments: Any) -> str:
    """What is wrong with the arguments; nothing if nothing is."""
    validator = _validator(json.dumps(enforced(schema, unenforced)))
    error = next(iter(validator.iter_errors(arguments)), None)
    return f"{error.schema_path}: {error.message}" if error else ""


def is_explained(schema: Schema, unenforced: tuple[tuple[str, str], ...], value: Any) -> bool:
    """Whether the value is valid, in the schema's own draft, once exactly the listed keywords are left out."""
    return _validator_of_draft(json.dumps(enforced(schema, unenforced))).is_valid(value)


@lru_cache(maxsize=64)
def _validator_of_draft(text: str) -> Any:
    """A validator as `$schema` wants it; a schema that does not fit what is read as one of an older draft. Formats count."""
    schema = json.loads(text)
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True)
    except jsonschema_rs.ValidationError:
        schema.pop("$schema", None)
    try:
        return jsonschema_rs.Draft7Validator(schema, validate_formats=True)
    except jsonschema_rs.ValidationError:
        return jsonschema_rs.Draft4Validator(schema, validate_formats=True)


@lru_cache(maxsize=64)
def _validator(text: str) -> Any:
    """Formats count too. A list of items, or an exclusive bound of an older draft, as core reads them."""
    schema = json.loads(text)
    schema.pop("$schema", None)
    try:
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    except jsonschema_rs.ValidationError:
        return jsonschema_rs.Draft7Validator(schema, validate_formats=True)
