"""A JSON value that is in the buffer to its end, and in which nothing is to be repaired: read at once, at the speed of C.

What it gives is what `read_notation` would push; where that is not certain it gives nothing, and the value is read step by step.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Never, cast

from callsmith.formats.reader.markers import SPECIAL_MARK
from callsmith.formats.reader.source import TextSource
from callsmith.formats.reader.typed import JSON_TYPES, MAX_DEPTH, STRING, ValueSchema, declared_keys, types_of

_SPACE_OUTSIDE_STRINGS = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+')


def _refuse(word: str) -> Never:
    raise ValueError(word)


_decoder = json.JSONDecoder(parse_constant=_refuse)
_encoder = json.JSONEncoder(ensure_ascii=False)
_compact_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def whole_json(source: TextSource, schema: ValueSchema | None) -> str | None:
    """The JSON text of the object, list or string that begins here, which is read; None, and nothing is read, where it is not so.

    With a schema, its keys and the types of its values are those of the schema.
    """
    try:
        value, end = _decoder.raw_decode(source.text, source.pos)
    except (ValueError, RecursionError):
        return None
    text = source.text[source.pos : end]
    if SPECIAL_MARK in text or text.count("{") + text.count("[") > MAX_DEPTH:
        return None
    encoded = _encoder.encode(value)
    # Numbers and escapes stay as they were written, and only white space is ours.
    if encoded != text and _compact_encoder.encode(value) != _SPACE_OUTSIDE_STRINGS.sub(r"\1", text):
        return None
    if schema is not None and not _is_typed(value, schema):
        return None
    source.pos = end
    return encoded


def _is_typed(value: Any, schema: ValueSchema) -> bool:
    """Whether every key is declared where some are, and no value is of a type that would be corrected."""
    if not schema.schema:
        return True
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        declared = declared_keys(schema.root, schema.schema)
        return not (declared and fields.keys() - declared) and all(
            _is_typed(member, schema.property(key)) for key, member in fields.items()
        )
    if isinstance(value, list):
        return _are_typed(cast(list[Any], value), schema.items())
    return _are_typed((value,), schema)


def _are_typed(values: Iterable[Any], schema: ValueSchema) -> bool:
    if not schema.schema:
        return True
    declared: Any = schema.schema.get("type")
    types: frozenset[str] | None = None
    for value in values:
        if isinstance(value, dict | list):
            if not _is_typed(value, schema):
                return False
        elif value is not None and JSON_TYPES[type(value)] != declared:
            types = types_of(schema.root, schema.schema) if types is None else types
            if not types >= STRING if isinstance(value, str) else types <= STRING | {"null"}:
                return False
    return True
