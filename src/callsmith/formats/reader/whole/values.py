"""Values that are in the buffer to their end, and in which nothing is to be repaired: read at once, at the speed of C."""

import json
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, Never, cast

from callsmith.core.values import Json, Schema
from callsmith.formats.algebra import Nested, Notation
from callsmith.formats.reader.markers import SPECIAL_MARK
from callsmith.formats.reader.typed import (
    BARE_WORDS,
    JSON_TYPES,
    MAX_DEPTH,
    STRING,
    STRUCTURES,
    ValueSchema,
    declared_keys,
    items_of,
    json_string,
    parse_json,
    property_of,
    typed_json,
    types_of,
)

SPACE = r"[ \t\r\n]{0,99}+"
_SPACE_OUTSIDE_STRINGS = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+')
_EMPTY = re.compile(rf"{SPACE}\}}")
_JSON_KEY = re.compile(rf'{SPACE}"([^"\\\x00-\x1f{SPECIAL_MARK}]*+)"{SPACE}:{SPACE}')
_NEXT_MEMBER = re.compile(rf"{SPACE}([,}}])")
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_BARE_WORD = re.compile(rf"({_NUMBER}|true|false|null|True|False|None)(?={SPACE}[,)}}])")
_BARE_KEY = re.compile(rf"{SPACE}([\w.\-]{{1,99}}+){SPACE}:{SPACE}")
# A string of Python's that ends where it seems to, for the next argument or the end of the call follows.
_PYTHON_STRING = re.compile(
    r"""(?:'(?!'')([^'\\\n]*+(?:\\[\\'"nrt][^'\\\n]*+)*+)'|"(?!"")([^"\\\n]*+(?:\\[\\'"nrt][^"\\\n]*+)*+)")"""
    rf"""(?={SPACE}(?:,{SPACE}\w{{1,99}}+{SPACE}=|\){SPACE}(?![)'"\s])))"""
)


class Whole(NamedTuple):
    """A value that was read: as JSON text, what it is, and where it ends."""

    text: str
    value: Any
    end: int


def _refuse(word: str) -> Never:
    raise ValueError(word)


_decoder = json.JSONDecoder(parse_constant=_refuse)
_encoder = json.JSONEncoder(ensure_ascii=False)
_compact_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def whole_json(text: str, pos: int, schema: ValueSchema | None) -> Whole | None:
    """The object, list or string that begins here; None where something in it would be changed.

    With a schema, its keys and the types of its values are those of the schema.
    """
    return whole_json_of(text, pos, schema.root, schema.schema) if schema else whole_json_of(text, pos, {}, {})


def whole_json_of(text: str, pos: int, root: Schema, schema: Schema) -> Whole | None:
    """The same; without a schema it is empty."""
    try:
        return _json_object(text, pos, root, schema) if text.startswith("{", pos) else _json_value(text, pos, root, schema, 0)
    except (ValueError, RecursionError):
        return None


def _json_object(text: str, pos: int, root: Schema, schema: Schema) -> Whole | None:
    """An object, a member at a time: a long string in it is what it was written as, and need not be written again."""

    def read(key: str, pos: int) -> Whole | None:
        return _json_value(text, pos, root, property_of(root, schema, key) if schema else schema, 1)

    return _object(text, pos, _JSON_KEY, declared_keys(root, schema) if schema else (), read)


def _object(
    text: str, pos: int, keys: re.Pattern[str], declared: Collection[str], read: Callable[[str, int], Whole | None]
) -> Whole | None:
    """An object whose keys are like this, and whose values are what `read` finds for a key and at a place."""
    value: dict[str, Json] = {}
    pieces: list[str] = []
    pos += 1
    while match := keys.match(text, pos):
        key = match[1]
        if key in value or (declared and key not in declared):
            return None
        whole = read(key, match.end())
        following = _NEXT_MEMBER.match(text, whole.end) if whole else None
        if whole is None or following is None:
            return None
        value[key] = whole.value
        pieces += (json_string(key), ": ", whole.text, ", ")
        pos = following.end()
        if following[1] == "}":
            return object_of(value, pieces, pos)
    empty = _EMPTY.match(text, pos) if not value else None
    return object_of(value, pieces, empty.end()) if empty else None


def object_of(value: dict[str, Json], pieces: list[str], end: int) -> Whole:
    """The object of these members, of each of which there are four pieces: the key, a colon, the value, and a comma."""
    return Whole("".join(("{", *pieces[:-1], "}")), value, end)


def _json_value(text: str, pos: int, root: Schema, schema: Schema, depth: int) -> Whole | None:
    value, end = _decoder.raw_decode(text, pos)
    written = text[pos:end]
    kind = JSON_TYPES[type(value)]
    is_nested = kind in STRUCTURES
    fits = not is_nested and (not schema or kind == schema.get("type"))
    if SPECIAL_MARK in written or not (fits or _are_typed((value,), root, schema, depth)):
        return None
    if is_nested:
        encoded = _encoder.encode(value)
        # Numbers and escapes stay as they were written, and only white space is ours.
        if encoded != written and _compact_encoder.encode(value) != _SPACE_OUTSIDE_STRINGS.sub(r"\1", written):
            return None
        return Whole(encoded, value, end)
    return Whole(written, value, end)


def _are_typed(values: Iterable[Any], root: Schema, schema: Schema, depth: int = 0) -> bool:
    """Whether every key is declared where some are, no value is of a type that would be corrected, and none is too deep."""
    types: frozenset[str] | None = None
    for value in values:
        if isinstance(value, dict):
            fields = cast(dict[str, Any], value)
            declared = declared_keys(root, schema) if schema else ()
            if depth >= MAX_DEPTH or (declared and not fields.keys() <= set(declared)):
                return False
            for key, member in fields.items():
                if not _are_typed((member,), root, property_of(root, schema, key) if schema else schema, depth + 1):
                    return False
        elif isinstance(value, list):
            items = items_of(root, schema) if schema else schema
            if depth >= MAX_DEPTH or not _are_typed(cast(list[Any], value), root, items, depth + 1):
                return False
        elif schema and value is not None and JSON_TYPES[type(value)] != schema.get("type"):
            types = types_of(root, schema) if types is None else types
            if not types >= STRING if isinstance(value, str) else types <= STRING | {"null"}:
                return False
    return True


def plain_text(written: str, types: frozenset[str], end: int) -> Whole | None:
    """Plain text as a value of one of the types."""
    return Whole(json_string(written), written, end) if types == STRING else _parsed(typed_json(written, types), end)


def _parsed(text: str, end: int) -> Whole | None:
    """A value from its JSON text; None where Python refuses it, like an integer of thousands of digits."""
    value = parse_json(text)
    return None if value is None and text != "null" else Whole(text, value, end)


def leaf_element(text: str, pos: int, spelling: Nested, types: frozenset[str]) -> Whole | None:
    """The value of an element that contains no others."""
    end = text.find(f"{spelling.prefix}</", pos)
    written = text[pos:end]
    if end < 0 or SPECIAL_MARK in written:
        return None
    if types != STRING and (f"{spelling.prefix}<" in written or not written.strip()):
        return None
    return plain_text(written, types, end)


def python_value(text: str, pos: int, types: frozenset[str] | None) -> Whole | None:
    """A string, a number, True, None, … as an argument of a Python call."""
    if text[pos : pos + 1] not in ("'", '"'):
        return _bare_word(text, pos, types)
    match = _PYTHON_STRING.match(text, pos)
    if match is None or SPECIAL_MARK in match[0] or not (types is None or types >= STRING):
        return None
    value = (match[1] or match[2] or "").encode("latin-1", "backslashreplace").decode("unicode-escape")
    return Whole(json_string(value), value, match.end())


def _bare_word(text: str, pos: int, types: frozenset[str] | None) -> Whole | None:
    match = _BARE_WORD.match(text, pos)
    word = BARE_WORDS.get(match[1], match[1]) if match else ""
    if match is None or (types is not None and types <= STRING | {"null"} and word != "null"):
        return None
    return _parsed(word, match.end())


def bare_object(text: str, pos: int, spelling: Notation, schema: Schema, *, is_constrained: bool) -> Whole | None:
    """An object whose keys are bare and whose values are strings and words."""
    quote = spelling.quotes[0]

    def read(key: str, pos: int) -> Whole | None:
        types = types_of(schema, property_of(schema, schema, key)) if schema else None
        begin = pos + len(quote)
        end = text.find(quote, begin) if text.startswith(quote, pos) else -1
        if end < 0:
            return _bare_word(text, pos, types) if types != STRING else None
        if SPECIAL_MARK in text[begin:end] or not (types is None or is_constrained or types >= STRING):
            return None
        return plain_text(text[begin:end], STRING, end + len(quote))

    return _object(text, pos, _BARE_KEY, declared_keys(schema, schema) if not is_constrained else (), read)
