"""A schema taken apart: references followed, everything that must hold at once side by side.

`Document` knows where references lead: `#`, `#/$defs/a~1b`, `#anchor`, and addresses relative to an `$id`. `Parts` is what a
schema demands after `$ref` and `allOf` are dissolved: a list of plain schemas, and the questions a grammar asks of them all.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeAlias, cast

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.schema import modern, pointer, subschemas, validate
from callsmith.core.values import Json, Schema
from callsmith.formats.typed import ANYTHING, SCALARS
from callsmith.grammar.json_text import Bound

Part: TypeAlias = tuple[Schema, str]  # a schema without `$ref` and `allOf`, and where it stands

NOT_ENFORCED = frozenset(
    {
        "$dynamicRef", "contains", "dependencies", "dependentRequired", "dependentSchemas", "if", "not", "propertyNames",
        "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
    }
)  # fmt: skip
_CHECKED = frozenset(
    {"minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "required", "items", "prefixItems", "properties"}
    | {"additionalProperties", "patternProperties"}
)


class Impossible(UnsupportedSchema):
    """No value satisfies the schema: an alternative that says so is left out, anything else is an error."""


class Document:
    """A schema that stands alone, and its references."""

    def __init__(self, schema: Schema) -> None:
        self.root: Schema = modern(schema)
        self._places = {"": self.root}
        bases: dict[tuple[str | int, ...], str] = {(): ""}
        for tokens, inner in subschemas(self.root):
            above = next(tokens[:size] for size in range(len(tokens), -1, -1) if tokens[:size] in bases)
            base = bases[above]
            named = inner.get("$id")
            if isinstance(named, str):
                base = bases[tokens] = _joined(base, named.removesuffix("#"))
                self._places[base] = inner
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(inner.get(keyword), str):
                    self._places[f"{base}#{inner[keyword]}"] = inner
        self._bases = {id(inner): self._base(bases, tokens) for tokens, inner in subschemas(self.root)}

    @staticmethod
    def _base(bases: Mapping[tuple[str | int, ...], str], tokens: tuple[str | int, ...]) -> str:
        return next(bases[tokens[:size]] for size in range(len(tokens), -1, -1) if tokens[:size] in bases)

    def follow(self, schema: Schema, path: str) -> tuple[Any, str]:
        """Where the reference of this schema leads, and the address of that."""
        reference = str(schema.get("$ref", schema.get("$dynamicRef")))
        address, _, fragment = reference.partition("#")
        base = self._bases.get(id(schema), "")
        resource = _joined(base, address) if address else base
        fragment = re.sub("%([0-9a-fA-F]{2})", lambda found: chr(int(found[1], 16)), fragment)
        if fragment and not fragment.startswith("/"):
            found: Any = self._places.get(f"{resource}#{fragment}")
        else:
            found = self._places.get(resource)
            for step in fragment.split("/")[1:] if found is not None else ():
                found = _within(found, step.replace("~1", "/").replace("~0", "~"))
        if not isinstance(found, Mapping | bool):
            raise UnsupportedSchema(path, "$ref", f"{reference!r} leads nowhere in this schema")
        return cast(Any, found), f"{resource}#{fragment}"

    def parts(self, schema: Any, path: str, via: tuple[str, ...] = ()) -> Iterator[Part]:
        """What must hold all at once."""
        if schema is False:
            raise Impossible(path, "false", "nothing satisfies it")
        if not isinstance(schema, Mapping) or not schema:
            return
        whole = cast(Schema, schema)
        if "$ref" in whole or "$dynamicRef" in whole:
            found, address = self.follow(whole, path)
            if address in via:
                raise Impossible(path, "$ref", f"{address} leads back to itself")
            yield from self.parts(found, address if address.startswith("#") else path, (*via, address))
        yield whole, path
        for at, one in enumerate(cast(Sequence[Any], whole.get("allOf", ()))):
            yield from self.parts(one, f"{path}/allOf/{at}", via)


def _joined(base: str, address: str) -> str:
    """An address relative to another."""
    if "://" in address or not base or address.startswith("urn:"):
        return address
    host = re.match(r"[a-z][a-z0-9+.-]*://[^/]*", base)
    if address.startswith("/"):
        return (host[0] if host else "") + address
    return base.rpartition("/")[0] + "/" + address if "/" in base else address


def _within(schema: Any, step: str) -> Any:
    if isinstance(schema, list) and step.isdigit():
        listed = cast(list[Any], schema)
        return listed[int(step)] if int(step) < len(listed) else None
    return cast(Mapping[str, Any], schema).get(step) if isinstance(schema, Mapping) else None


def same(one: Json, other: Json) -> bool:
    """Equality as JSON Schema has it: 1 is 1.0, and is not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        left, right = cast(list[Json], one), cast(list[Json], other)
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(one, dict) and isinstance(other, dict):
        mine, yours = cast(dict[str, Json], one), cast(dict[str, Json], other)
        return mine.keys() == yours.keys() and all(same(value, yours[key]) for key, value in mine.items())
    return one == other


class Parts:
    """What a schema demands, all of it together."""

    def __init__(self, document: Document, schema: Any, path: str) -> None:
        self.document, self.path = document, path
        self.parts = list(document.parts(schema, path))

    def said(self, keyword: str) -> list[Any]:
        """What the parts say about one thing."""
        return [schema[keyword] for schema, _ in self.parts if keyword in schema]

    def choices(self) -> list[tuple[str, str, list[Any]]]:
        """The alternatives: each time the keyword, where it stands, and what there is to choose from."""
        return [
            (keyword, path, cast(list[Any], schema[keyword]))
            for schema, path in self.parts
            for keyword in ("anyOf", "oneOf")
            if isinstance(schema.get(keyword), list)
        ]

    def plain(self) -> list[Any]:
        """The parts without their alternatives and what is already dissolved."""
        gone = ("anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "$defs", "definitions", "$id")
        return [kept for schema, _ in self.parts if (kept := {key: one for key, one in schema.items() if key not in gone})]

    @cached_property
    def types(self) -> frozenset[str]:
        """The types that are left."""
        left = ANYTHING
        for kind in self.said("type"):
            named = frozenset(cast(list[str], kind) if isinstance(kind, list) else [str(kind)])
            left &= named | ({"integer"} if "number" in named else set())
        return left

    @cached_property
    def values(self) -> list[Json] | None:
        """The values of `enum` and `const` that satisfy all the rest; None where any value may stand."""
        lists = [cast(list[Json], one) for one in self.said("enum")] + [[one] for one in self.said("const")]
        if not lists:
            return None
        first, *others = lists
        shared = [value for value in first if all(any(same(value, one) for one in other) for other in others)]
        return [value for value in shared if self._fits(value)]

    def _fits(self, value: Json) -> bool:
        kind = SCALARS[type(cast(object, value))]
        if kind == "number" and value == int(value):
            kind = "integer"
        if kind not in self.types:
            return False
        rest = [{key: one for key, one in schema.items() if key in _CHECKED} for schema, _ in self.parts]
        rest = [one for one in rest if one]
        if not rest:
            return True
        defined = {key: self.document.root[key] for key in ("$defs", "definitions") if key in self.document.root}
        try:
            return not validate({**defined, "allOf": rest}, value)
        except UnsupportedSchema:
            return True  # a reference from elsewhere; it is validated after generation

    def least(self, keyword: str) -> int:
        """The greatest of the lower bounds."""
        return max((int(one) for one in self.said(keyword)), default=0)

    def most(self, keyword: str) -> int | None:
        """The least of the upper bounds."""
        return min((int(one) for one in self.said(keyword)), default=None)

    def bounds(self) -> tuple[Bound | None, Bound | None]:
        """The least and the greatest number."""
        low = [Bound(value) for value in self._numbers("minimum")]
        high = [Bound(value) for value in self._numbers("maximum")]
        for schema, _ in self.parts:
            for keyword, bounds, older in (("exclusiveMinimum", low, "minimum"), ("exclusiveMaximum", high, "maximum")):
                value = schema.get(keyword)
                if value is True and older in schema:  # draft 4
                    bounds.append(Bound(Decimal(repr(schema[older])), open=True))
                elif isinstance(value, int | float) and not isinstance(value, bool):
                    bounds.append(Bound(Decimal(repr(value)), open=True))
        return (
            max(low, key=lambda bound: (bound.value, bound.open), default=None),
            min(high, key=lambda bound: (bound.value, not bound.open), default=None),
        )

    def _numbers(self, keyword: str) -> list[Decimal]:
        return [Decimal(repr(one)) for one in self.said(keyword)]

    def steps(self) -> list[Decimal]:
        """What a number must be a multiple of."""
        return list(dict.fromkeys(self._numbers("multipleOf")))

    def key(self) -> str:
        """The demands as text: equal ones get one rule."""
        told = [{key: one for key, one in schema.items() if key not in _ANNOTATIONS} for schema in self.plain()]
        return json.dumps([told, [branches for _, _, branches in self.choices()]], default=str)

    def unenforced(self) -> Iterator[tuple[str, str]]:
        """Keywords that no grammar is made of."""
        for schema, path in self.parts:
            for keyword in schema:
                if keyword in NOT_ENFORCED and not (keyword == "uniqueItems" and schema[keyword] is False):
                    yield path, keyword


_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "example", "deprecated", "$comment", "$schema"})


def at(path: str, *steps: str | int) -> str:
    """The address of something inside."""
    return path + pointer(steps)
