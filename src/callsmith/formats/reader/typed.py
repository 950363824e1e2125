"""Reading values in plain text: which JSON types the schema allows for them, and their conversion to JSON text.

`push` is given the JSON text as soon as it is certain. A string streams; a value whose type is not yet known is buffered to its
end, so that nothing pushed has to be taken back.
"""

import ast
import json
import re
from collections.abc import Collection, Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any, NamedTuple, cast

from callsmith.core.schema import json_types, locate
from callsmith.core.values import Schema
from callsmith.formats.algebra import Nested, Raw
from callsmith.formats.reader.source import Emit, Incremental, Mismatch, Stops, TextSource, Truncated, stops

NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)  # JSON has no digits of other scripts
LOOSE_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)  # as programming languages write it
MAX_DEPTH = 100
ARGS_KEYS = ("arguments", "parameters", "args", "input")
STRING = frozenset({"string"})
STRING_END = stops(('"', "\\"))
TAG_END = stops((">",))
TAG_NAME = re.compile(r"[^<>\n]+")
CDATA = "<![CDATA["
CDATA_END = stops(("]]>",))
BARE_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
STRUCTURES = frozenset({"array", "object"})
ALL_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})


def json_string(text: str) -> str:
    """The text as a JSON string."""
    return encode_basestring(text)


lenient = json.JSONDecoder(strict=False)


def parse_json(text: str) -> Any:
    """The value of a JSON text; None if it is not JSON, or Python refuses it, like an integer of thousands of digits."""
    try:
        return lenient.decode(text)
    except (ValueError, RecursionError):
        return None


def resolve(root: Schema, schema: Any) -> Schema:
    """The schema behind local `$ref`s; an empty schema if there is none."""
    if type(schema) is dict and "$ref" not in schema:
        return cast(Schema, schema)
    for _ in range(16):
        target: Schema = cast(Schema, schema) if isinstance(schema, Mapping) else {}
        if "$ref" not in target:
            return target
        schema, _ = locate(root, str(target["$ref"])) or ({}, "")
    return {}


def types_of(root: Schema, schema: Any, depth: int = 0) -> frozenset[str]:
    """The JSON types a schema allows; all of them if it does not restrict them."""
    resolved = resolve(root, schema)
    types = json_types(resolved)
    allowed: set[str] = set(ALL_TYPES)
    if types is not None:
        allowed = set(types) & ALL_TYPES
    elif "enum" not in resolved and "const" not in resolved:
        if "properties" in resolved or "additionalProperties" in resolved:
            allowed = {"object"}
        elif "items" in resolved or "prefixItems" in resolved:
            allowed = {"array"}
    if "enum" in resolved or "const" in resolved:
        values = resolved.get("enum", [resolved.get("const")])
        kinds = {JSON_TYPES[type(value)] for value in values if type(value) in JSON_TYPES}
        allowed = common_types(allowed, kinds) if types is not None else kinds
    for keyword in ("anyOf", "oneOf", "allOf") if depth < 8 else ():
        if isinstance(resolved.get(keyword), list) and resolved[keyword]:
            inner = [types_of(root, item, depth + 1) for item in resolved[keyword]]
            for kinds in inner if keyword == "allOf" else [frozenset[str]().union(*inner)]:
                allowed = common_types(allowed, kinds)
    return frozenset(allowed) or ALL_TYPES


def common_types(one: Iterable[str], other: Iterable[str]) -> set[str]:
    """The types in both sets. An integer is a number too."""
    first, second = set(one), set(other)
    integer = (
        {"integer"} if ("number" in first and "integer" in second) or ("integer" in first and "number" in second) else set[str]()
    )
    return first & second | integer


def property_of(root: Schema, schema: Any, key: str, depth: int = 0) -> Schema:
    """The schema of one property, also if an alternative declares it; an empty schema if nothing does."""
    resolved = resolve(root, schema)
    declared = resolved.get("properties")
    if isinstance(declared, Mapping) and key in declared:
        return resolve(root, declared[key])
    for item in alternatives(resolved) if depth < 8 else ():
        if inner := property_of(root, item, key, depth + 1):
            return inner
    return resolve(root, resolved.get("additionalProperties"))


def declared_keys(root: Schema, schema: Any) -> Collection[str]:
    """The names of the properties, where no others are meant to be given; else none."""
    resolved = resolve(root, schema)
    return () if "patternProperties" in resolved or resolved.get("additionalProperties") else resolved.get("properties") or ()


def meant_key(key: str, declared: Collection[str], seen: Collection[str]) -> str:
    """The property that a key means, where only case or `_` and `-` are wrong; the key itself if that is not certain."""
    if key in declared:
        return key
    folded = _fold(key)
    alike = [name for name in declared if _fold(name) == folded]
    return alike[0] if len(alike) == 1 and alike[0] not in seen else key


def _fold(key: str) -> str:
    return key.replace("_", "").replace("-", "").casefold()


def items_of(root: Schema, schema: Any, depth: int = 0) -> Schema:
    """The schema of an array's items, also if an alternative declares it."""
    resolved = resolve(root, schema)
    if "items" in resolved:
        return resolve(root, resolved["items"])
    for item in alternatives(resolved) if depth < 8 else ():
        if inner := items_of(root, item, depth + 1):
            return inner
    return {}


def alternatives(schema: Schema) -> list[Any]:
    """The schemas in a schema's anyOf, oneOf and allOf."""
    lists = (schema.get(keyword) for keyword in ("anyOf", "oneOf", "allOf"))
    return [branch for branches in lists if isinstance(branches, list) for branch in cast(list[Any], branches)]


def typed_json(text: str, types: frozenset[str]) -> str:
    """Plain text as JSON text of one of the types, if nothing is lost by that; otherwise as a JSON string."""
    bare = text.strip()
    if "null" in types and bare in ("null", "None"):
        return "null"
    if "boolean" in types and bare.lower() in ("true", "false"):
        return bare.lower()
    if types & {"integer", "number"} and (number := _number_json(bare, types)):
        return number
    if types & STRUCTURES and bare[:1] in ("[", "{"):
        return _structure_json(bare, types) or json_string(text)
    if "string" not in types and len(bare) > 1 and bare[0] == bare[-1] == '"' and types & {"integer", "number", "boolean"}:
        return typed_json(bare[1:-1], types)
    return json_string(text)


def _number_json(text: str, types: frozenset[str]) -> str | None:
    """The text as a number of an allowed type. `+5`, `.5` and `007` are numbers only if no string is allowed."""
    if NUMBER.fullmatch(text) and ("number" in types or text.lstrip("-").isdigit()):
        return text
    if not (NUMBER if "string" in types else LOOSE_NUMBER).fullmatch(text):
        return None
    if text.lstrip("+-").isdigit():
        return "-" * text.startswith("-") + (text.lstrip("+-0") or "0")
    value = float(text)
    if value.is_integer() and abs(value) < 2**53 and "number" not in types:
        return str(int(value))
    return repr(value) if "number" in types and abs(value) != float("inf") else None


def _structure_json(text: str, types: frozenset[str]) -> str | None:
    value = parse_json(text)
    if value is None:
        value = _python_or_escaped(text)
    if value is None or JSON_TYPES.get(type(cast(object, value))) not in types:
        return None
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _python_or_escaped(text: str) -> Any:
    """The value of a Python literal, or of JSON that was escaped twice; None if the text is neither."""
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return parse_json(parse_json(f'"{text}"') or "")


def bare_word_json(text: str) -> str:
    """A bare word of a notation as JSON text: a number, true, None, …; anything else is a string."""
    if text in BARE_WORDS:
        return BARE_WORDS[text]
    if NUMBER.fullmatch(text):
        return text
    try:
        return str(int(text.replace("_", ""), 0)) if text[:1].isdigit() else repr(_finite(text))
    except ValueError:
        return json_string(text)


def _finite(text: str) -> float:
    if text[:1] not in "+-.0123456789":
        raise ValueError(text)
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


# --- reading --------------------------------------------------------------------------------------------------------------


class ValueSchema(NamedTuple):
    """What is known of a value before it is read: the whole schema, its own schema, and its type flag if it has one."""

    root: Schema
    schema: Schema
    flag: str | None = None

    def types(self, spelling: Raw) -> frozenset[str]:
        """The types the value may have: those of the schema, narrowed by the flag as far as the schema allows."""
        types = types_of(self.root, self.schema)
        meant = dict(spelling.flags).get(self.flag or "")
        if meant is None:
            return types
        if meant == "json":
            return types - STRING or types
        return types & {meant} or types

    def property(self, key: str) -> "ValueSchema":
        """What is known of a property of the value."""
        return ValueSchema(self.root, property_of(self.root, self.schema, key))

    def items(self) -> "ValueSchema":
        """What is known of the items of the value."""
        return ValueSchema(self.root, items_of(self.root, self.schema))


class Bounds(NamedTuple):
    """What ends a value in plain text, and the white space that the format itself puts before and after the value."""

    closers: tuple[str, ...]
    before: str
    after: str


def read_raw(
    source: TextSource, spelling: Raw, bounds: Bounds, schema: ValueSchema, push: Emit, *, is_constrained: bool = False
) -> Incremental[None]:
    """Read a value as plain text up to one of its closers, which is left unread."""
    types = schema.types(spelling)
    closers, before, after = bounds
    wanted = stops(tuple(after + closer for closer in closers) + closers) if after else stops(closers)
    if before and (yield from source.at((before,))) and not (yield from source.at(wanted.texts)):
        source.pos += len(before)
    if spelling.cdata and (yield from source.at_after_space((CDATA,))):
        yield from source.skip_space()
        source.pos += len(CDATA)
        end = yield from _read_leaf(source, CDATA_END, types, push)
        source.pos += len(end)
        yield from source.skip_space()
        return
    stop = yield from _read_leaf(source, wanted, types, push, is_constrained=is_constrained)
    if stop not in closers:
        source.pos += len(after)


def _read_leaf(
    source: TextSource, wanted: Stops, types: frozenset[str], push: Emit, *, is_constrained: bool = False
) -> Incremental[str]:
    """Read text up to a stop. A value that can only be a string streams, any other is converted when it is complete.

    `is_constrained`: a grammar lets no string begin like an array or object where it could be one.
    """
    if types == STRING:
        push('"')
        stop = yield from source.read_until(wanted, lambda text: push(json_string(text)[1:-1]))
        push('"')
    else:
        buffered: list[str] = []
        skip_quoted = "string" not in types or (is_constrained and not types.isdisjoint(STRUCTURES))
        stop = yield from _buffer_until(source, wanted, buffered, skip_quoted=skip_quoted)
        if stop is not None:
            push(typed_json("".join(buffered), types))
    if stop is None:
        raise Truncated("the text ended in a value")
    return stop


def _buffer_until(source: TextSource, wanted: Stops, buffered: list[str], *, skip_quoted: bool) -> Incremental[str | None]:
    """Buffer the text up to a stop. In a JSON array or object, stops between quotes are skipped."""
    is_structure = skip_quoted and (yield from source.skip_space()) and source.text[source.pos] in "[{"
    if not is_structure:
        return (yield from source.read_until(wanted, buffered.append))
    outside = stops((*wanted.texts, '"'))
    while (stop := (yield from source.read_until(outside, buffered.append))) == '"':
        if buffered and buffered[-1].endswith("\\"):
            return (yield from source.read_until(wanted, buffered.append))  # escaped twice: the quotes quote nothing
        source.pos += 1
        buffered.append('"')
        while (stop := (yield from source.read_until(STRING_END, buffered.append))) == "\\":
            buffered.append((yield from source.peek_chars(2)))
            source.pos += 2
        if stop is None:
            return None
        source.pos += 1
        buffered.append('"')
    return stop


def read_nested(source: TextSource, spelling: Nested, schema: ValueSchema, push: Emit, depth: int = 0) -> Incremental[None]:
    """Read a value of nested elements, up to the closing tag around it, which is left unread."""
    if depth > MAX_DEPTH:
        raise Mismatch("nested too deep")
    root, own = schema.root, schema.schema
    types = types_of(root, own)
    tag, end = f"{spelling.prefix}<", f"{spelling.prefix}</"
    if types == STRING:
        yield from _read_leaf(source, stops((end,)), types, push)
        return
    buffered: list[str] = []
    if (yield from source.read_until(stops((tag,)), buffered.append)) is None:
        raise Truncated("the text ended in a value")
    is_list: bool | None = None
    while (yield from source.at((tag, end))) != end:
        if (yield from source.at((tag,))) is None:
            raise Mismatch("an element is missing")
        source.pos += len(tag)
        key = yield from read_tag_name(source)
        if is_list is None:
            is_list = "array" in types if len(types & {"array", "object"}) == 1 else key == spelling.item
            push("[" if is_list else "{")
        else:
            push(", ")
        if not is_list:
            push(f"{json_string(key)}: ")
        inner = ValueSchema(root, items_of(root, own)) if is_list else schema.property(key)
        yield from read_nested(source, spelling, inner, push, depth + 1)
        source.pos += len(end)
        if (yield from read_tag_name(source)) != key:
            raise Mismatch(f"element {key!r} is not closed")
        yield from source.skip_space()
    text = "".join(buffered)
    if is_list is not None:
        push("]" if is_list else "}")
    elif not text.strip() and types & {"array", "object"} and "string" not in types:
        push("[]" if "array" in types else "{}")
    else:
        push(typed_json(text, types))


def read_tag_name(source: TextSource) -> Incremental[str]:
    """Read the name and the end of a tag whose start was read."""
    word = yield from source.read_word(TAG_END, TAG_NAME)
    source.pos += 1
    return word
