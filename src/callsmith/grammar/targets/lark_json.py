"""Schemas in normal form, rewritten for llguidance: the same values, without the points where llguidance is too permissive;
and JSON objects whose optional properties may come in any order, where llguidance itself allows only the schema's order.

- In the name of a property that is not listed it allows escapes, `"\\u0061"` for `"a"`, so that the schema of `a` can be avoided.
  In names that match a pattern it allows none: so names that are not listed are given as a pattern.
- Its definitions of some string formats are too wide: those formats are given as patterns too.
- Where a pattern allows all control characters it also allows `\\"` and `\\\\`, whatever the pattern says: so NUL is taken out.

In any order a model can write an optional property after one that the schema lists later. Required properties stay in the
schema's order: nothing is lost by it, and their names need not be chosen.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, cast

from callsmith.core.schema import GRAMMAR
from callsmith.core.values import Schema
from callsmith.grammar.nodes import Alt, JsonValue, Lit, Node, Pattern, Record, Seq
from callsmith.grammar.patterns.character_sets import MAX_CODE_POINT, Ranges, chars, intersection
from callsmith.grammar.patterns.regex import CharSet, UnsupportedRegex, literal, parse, unparse
from callsmith.grammar.patterns.string_formats import FORMATS
from callsmith.grammar.schema.normal_form import NormalSchema, reachable, resolve, standalone
from callsmith.grammar.values import item_nodes

SCHEMA_MAPS = ("properties", "patternProperties", "$defs")
SCHEMA_LISTS = ("anyOf", "prefixItems")
SINGLE_SCHEMAS = ("items", "additionalProperties")
# In llguidance 10:00:60 is a time, every year has a 29th of February, a host may begin with a hyphen, ::1.2.3.4 is not IPv6.
OWN_FORMATS = ("time", "date", "date-time", "hostname", "ipv6")
COUNTS = ("minProperties", "maxProperties")  # llguidance counts only where no listed property is optional
ANY = r"[\s\S]"
NOTHING = "[a&&b]"
OBJECT, ARRAY = frozenset({"object"}), frozenset({"array"})
_OBJECT: Final = frozenset({"type", "properties", "required", "additionalProperties", "$defs"})
_ARRAY: Final = frozenset({"type", "items", "prefixItems", "minItems", "maxItems", "$defs"})
_MAX_SCHEMAS: Final = 250  # inside one value; beyond that, the order is the schema's
_PREFIX = re.compile(r"\^([\w-]+)")  # a pattern that only demands a prefix
_CLASS = re.compile(r"\\.|\[\^?(?:\\.|[^\]\\])+\]", re.DOTALL)
_CONTROL: Ranges = ((0, 0x1F),)


def for_llguidance(schema: Schema) -> dict[str, Any]:
    """The schema, rewritten for llguidance."""
    copy: dict[str, Any] = {keyword: value for keyword, value in schema.items() if keyword != GRAMMAR}
    for keyword in SCHEMA_MAPS:
        if keyword in copy:
            copy[keyword] = {name: _inner(inner) for name, inner in copy[keyword].items()}
    for keyword in SCHEMA_LISTS:
        if keyword in copy:
            copy[keyword] = [_inner(item) for item in copy[keyword]]
    for keyword in SINGLE_SCHEMAS:
        if keyword in copy:
            copy[keyword] = _inner(copy[keyword])
    if copy.get("format") in OWN_FORMATS:
        copy["allOf"] = [*copy.get("allOf", ()), {"pattern": f"^({FORMATS[copy.pop('format')]})$"}]
    if "pattern" in copy:
        copy["pattern"] = drop_nul(copy["pattern"])
    if "allOf" in copy:
        copy["allOf"] = [{**item, "pattern": drop_nul(item["pattern"])} for item in copy["allOf"]]
    if "patternProperties" in copy:
        copy["patternProperties"] = {drop_nul(pattern): inner for pattern, inner in copy["patternProperties"].items()}
    listed, extra = copy.get("properties", {}), copy.get("additionalProperties", True)
    if isinstance(schema, NormalSchema) and any(
        inner is not False and name not in copy.get("required", ()) for name, inner in listed.items()
    ):
        for keyword in COUNTS:
            copy.pop(keyword, None)
    if extra is False or not (listed or "patternProperties" in copy):
        return copy
    if "patternProperties" not in copy:
        copy["patternProperties"] = {drop_nul(f"^{all_except(listed)}$"): extra}
    elif all(begin := [_PREFIX.fullmatch(pattern) for pattern in copy["patternProperties"]]):
        names = all_except(listed, [match[1] for match in begin if match])
        copy["patternProperties"] = {**copy["patternProperties"], drop_nul(f"^{names}$"): extra}
    copy["additionalProperties"] = False
    return copy


def _inner(schema: Any) -> Any:
    return for_llguidance(cast(Schema, schema)) if isinstance(schema, Mapping) else schema


def all_except(words: Iterable[str], beginnings: Iterable[str] = ()) -> str:
    """A regular expression of all texts except these words and those that begin with one of `beginnings`."""
    by_letter: dict[str, tuple[list[str], list[str]]] = {}
    ends = False
    for kind, texts in enumerate((words, beginnings)):
        for text in texts:
            if text:
                by_letter.setdefault(text[0], ([], []))[kind].append(text[1:])
            elif kind:
                return NOTHING
            else:
                ends = True
    ways = [] if ends else [""]
    if by_letter:
        ways += [_letter(letter) + rest for letter, two in by_letter.items() if (rest := all_except(*two)) != NOTHING]
        ways.append(f"[^{''.join(map(_letter, by_letter))}]{ANY}*")
    else:
        ways.append(f"{ANY}+")
    return f"({'|'.join(ways)})"


def _letter(letter: str) -> str:
    return letter if letter.isalnum() and letter.isascii() else f"\\x{{{ord(letter):x}}}"


def drop_nul(pattern: str) -> str:
    """The pattern without NUL in the classes for which llguidance would be too permissive."""
    return _CLASS.sub(lambda match: _drop_nul_in(match[0]), pattern) if "[" in pattern else pattern


def _drop_nul_in(piece: str) -> str:
    try:
        tree = parse(piece)
    except UnsupportedRegex:
        return piece
    if not isinstance(tree, CharSet) or intersection(tree.ranges, _CONTROL) != _CONTROL:
        return piece
    if all(intersection(tree.ranges, chars(char)) for char in '"\\'):
        return piece
    spans = [f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in intersection(tree.ranges, ((1, MAX_CODE_POINT),))]
    return f"[{''.join(spans)}]"


def any_order(value: JsonValue) -> Node | None:
    """The outermost level of the value as nodes; None if llguidance can handle the value as it is."""
    schema = value.schema
    if not isinstance(schema, NormalSchema):
        return None
    within = list(islice(reachable(schema, schema), _MAX_SCHEMAS + 1))
    if len(within) > _MAX_SCHEMAS or not any(map(_has_free_order, within)):
        return None

    def inner(item: NormalSchema) -> Node:
        return replace(value, schema=standalone(schema, item))

    if "$ref" in schema:
        return inner(resolve(schema, schema))
    if schema.keys() <= {"anyOf", "$defs"}:
        return Alt(tuple(map(inner, schema["anyOf"])))
    if schema.keys() <= _ARRAY and schema.types == ARRAY:
        return Seq((Lit("["), item_nodes(schema, inner, value.item_separator), Lit("]")))
    if not _is_closed(schema):
        return None
    names, required = _names(schema), schema.get("required", ())
    members = tuple(Seq((_key(name, value), inner(schema["properties"][name]))) for name in names)
    return Seq((Lit("{"), Record(members, tuple(name in required for name in names), value.item_separator), Lit("}")))


def _key(name: str, value: JsonValue) -> Node:
    """A name and the separator after it; the name is never a special token.

    They are two terminals, as in the rules that llguidance makes itself: where both stand side by side, the longest match wins.
    """
    return Seq((Pattern(unparse(literal(json.dumps(name, ensure_ascii=False)))), Lit(value.key_separator)))


def _has_free_order(schema: NormalSchema) -> bool:
    """Whether it is an object with an optional property before its last one."""
    required = schema.get("required", ())
    return _is_closed(schema) and not all(name in required for name in _names(schema)[:-1])


def _is_closed(schema: NormalSchema) -> bool:
    """Whether it is an object that allows no properties besides the listed ones."""
    return schema.keys() <= _OBJECT and schema.types == OBJECT and schema.get("additionalProperties") is False


def _names(schema: NormalSchema) -> list[str]:
    return [name for name, inner in schema.get("properties", {}).items() if inner is not False]
