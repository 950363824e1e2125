"""JSON Schema → simple schemas: what a grammar can enforce is kept, what it cannot is left out and listed.

Schemas that hold at once (`allOf`, what stands beside a `$ref` or an `anyOf`) are worked together into one. Nothing is loosened
silently: every keyword left out is in the `left` of its place, and is validated after generation instead. What no value fits is
refused, by place and keyword.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, product
from math import prod
from typing import Any, cast

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.schema import modern, pointer, subschemas, validate
from callsmith.core.values import Schema
from callsmith.formats.reader.typed import ALL_TYPES, common_types, locate
from callsmith.grammar.schema.arrays import array
from callsmith.grammar.schema.finite import ending, harmful
from callsmith.grammar.schema.keywords import ASSERTING, BEYOND_TYPE, CONTENT, ELSEWHERE, SHAPES, UNEVALUATED
from callsmith.grammar.schema.normal_form import (
    Left,
    Never,
    Part,
    Simple,
    disjoint,
    identity,
    kinds_of,
    places,
    reachable,
    saying,
    telling,
)
from callsmith.grammar.schema.objects import Members
from callsmith.grammar.schema.scalars import numbers, strings

PLAIN = ("string", "integer", "number", "boolean", "null")
MOST_WAYS = 64  # alternatives, once those of several keywords are multiplied
MANY_SCHEMAS, MOST_SCHEMAS = 10_000, 50_000  # worked out for one document: then large unions are left out, then it is refused
EVERY = ALL_TYPES - {"integer"}
VALUE = "\0"  # where a value stands that is tried by itself


def simplified(schema: Schema, *, kind: str | None = None, habits: bool = True) -> Simple:
    """What fits the schema, and is of this type if one is named; what it refers to is under `$defs`. Not to be changed.

    Without `habits` nothing is implied: an object may have properties that are not listed, as JSON Schema has it.
    """
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedSchema("#", "", f"not a JSON document: {error}") from None
    return _simplified(text, kind, habits)


@lru_cache(maxsize=1024)
def _simplified(text: str, kind: str | None, habits: bool) -> Simple:
    root, barren = modern(json.loads(text)), dict[tuple[str, ...], Never]()
    beside = [Part({"type": kind}, "#")] if kind and root.get("type") != kind else []
    while True:
        walk = _Walk(root, barren, habits)
        made = walk.schema(Part(root, "#"), *beside)
        if isinstance(made, Never):
            raise UnsupportedSchema(made.path, made.keyword, f"no value fits: {made.why}")
        found = walk.barren()
        if not found:
            made["$defs"] = walk.defs
            made.left += walk.left
            return made
        barren |= found


def json_schema(schema: Schema, left: Left) -> Simple:
    """The schema of a JSON value, simplified; what that leaves out is added to `left`."""
    simple = simplified(schema)
    left += unenforced(simple, simple)
    return standalone(simple, simple)


def unenforced(root: Simple, simple: Simple) -> Left:
    """What schemas leave out that a value may go through, each once."""
    return list(dict.fromkeys(left for one in reachable(root, simple) for left in one.left))


def standalone(root: Simple, simple: Simple) -> Simple:
    """The schema as a document of its own, with the definitions it needs."""
    names = {one["$ref"].removeprefix("#/$defs/") for one in reachable(root, simple) if "$ref" in one}
    whole = Simple({keyword: value for keyword, value in simple.items() if keyword != "$defs"}, simple.path)
    whole.said, whole.implied, whole.left = simple.said, simple.implied, simple.left
    if names:
        whole["$defs"] = {name: root["$defs"][name] for name in sorted(names)}
    return whole


class _Walk:
    """One pass over a document. `barren` are combinations already known to fit nothing."""

    def __init__(self, root: Schema, barren: Mapping[tuple[str, ...], Never], habits: bool) -> None:
        self.root, self.habits = root, habits
        self.known_barren = barren
        self.names: dict[tuple[str, ...], str] = {}  # the places of what holds at once → its name
        self.defs: dict[str, Any] = {}
        owned = ((pointer(tokens), inner) for tokens, inner in subschemas(root) if tokens and "$id" in inner)
        found = [(f"#{place}", inner) for place, inner in owned if not str(inner["$id"]).startswith("#")]
        self.resources = sorted(found, key=lambda one: -len(one[0]))  # the innermost first
        draft = re.search(r"draft-0([3-7])", str(root.get("$schema")))
        self.old, self.judges_content = draft is not None, draft is not None and draft[1] in "67"
        self.left: Left = []  # beside what is left out at its own place
        self._count = 0
        self._documents: dict[int, tuple[Any, Schema]] = {}  # by the schema, which is kept so that nothing else gets its id

    def schema(self, *parts: Part) -> Simple | Never:
        """What fits all the parts."""
        self._count += 1
        if self._count > MOST_SCHEMAS:
            raise UnsupportedSchema(parts[0].path, "", "too large: its references and alternatives multiply")
        if len(parts) == 1 and _says_type_alone(parts[0].raw):
            made = Simple({"type": parts[0].raw["type"]}, parts[0].path)
            made.said = {"type": [made.path]}
            return made
        found = self._flat(parts)
        if isinstance(found, Never):
            return found
        conjunction, referred = found
        if not conjunction:
            return Simple({}, parts[0].path if parts else "#")
        if not referred:
            return self._made(conjunction)
        key = tuple(part.path + "".join(sorted(part.raw)) for part in conjunction)
        if any(UNEVALUATED & part.raw.keys() for part in conjunction):
            key += tuple(str(one.sees(conjunction)) for one in conjunction)
        if key in self.known_barren:
            return self.known_barren[key]
        if key not in self.names:
            name = self.names[key] = f"d{len(self.names)}"
            self.defs[name] = None
            self.defs[name] = self._made(conjunction)
        made = self.defs[self.names[key]]
        return made if isinstance(made, Never) else Simple({"$ref": f"#/$defs/{self.names[key]}"}, conjunction[0].path)

    def _flat(self, parts: Iterable[Part]) -> tuple[list[Part], bool] | Never:
        """The parts without references and `allOf`, only with what asserts something; and whether a reference was followed."""
        waiting, found, seen = list(parts), list[Part](), set[tuple[str, int]]()
        referred = False
        for part in waiting:  # which grows
            if part.raw is False:
                return Never(part.path, "false", "the schema is `false`")
            if not isinstance(part.raw, bool | Mapping):
                raise UnsupportedSchema(part.path, "", "a schema is an object, or true or false")
            said = cast(Schema, {} if part.raw is True else part.raw)  # pyright: ignore[reportUnknownMemberType]
            if (part.path, id(said)) in seen:
                continue
            seen.add((part.path, id(said)))
            core = {keyword: value for keyword, value in said.items() if keyword in ASSERTING}
            if "$ref" in said:
                if self.old:  # there nothing counts beside it
                    said, core = {"$ref": said["$ref"]}, dict[str, Any]()
                target = self._located(str(said["$ref"]), part.path)
                if target is None and str(said["$ref"]).startswith("#/"):
                    raise UnsupportedSchema(part.path, "$ref", f"{said['$ref']!r} leads nowhere within the schema")
                if target is None:
                    core["$ref"] = said["$ref"]
                else:
                    referred = True
                    waiting.append(part.inner(*target))
            waiting += [part.inner(one, f"{part.path}/allOf/{at}") for at, one in enumerate(Part(said, "").listed("allOf"))]
            if core:
                found.append(part._replace(raw=core))
        return telling(found), referred

    def _located(self, reference: str, path: str) -> tuple[Any, str] | None:
        """What a reference leads to, and where that stands; from inside a schema with an `$id` of its own, `#` is that schema."""
        if reference.startswith("#"):
            for place, resource in self.resources:
                if f"{path}/".startswith(f"{place}/") and (found := locate(resource, reference)):
                    return found[0], place + found[1].removeprefix("#")
        return locate(self.root, reference)

    def _made(self, parts: list[Part]) -> Simple | Never:
        for part in parts:
            if "enum" in part.raw or "const" in part.raw:
                return self._values(part, parts)
        unions = [(part, keyword) for part in parts for keyword in ("anyOf", "oneOf") if keyword in part.raw]
        return self._union(parts, unions) if unions else self._leaf(parts)

    # --- values -----------------------------------------------------------------------------------------------------------

    def _values(self, listing: Part, parts: list[Part]) -> Simple | Never:
        """Those of the listed values that fit everything else said of them."""
        keyword = "enum" if "enum" in listing.raw else "const"
        first, *others = [
            {identity(value): value for value in reversed(values)}
            for part in (listing, *(part for part in parts if part is not listing))
            for values in part.listings()
        ]
        values = [value for key, value in reversed(first.items()) if all(key in one for one in others)]
        tests = [test for part in parts if (test := self._test(part))]
        kept = [value for value in values if all(fits(value) for fits in tests)]
        if kept:
            made = Simple({"enum": kept}, listing.path)
            made.said = places(parts)
            return made
        beside = sorted({*chain.from_iterable(part.raw for part in parts)} - {keyword})
        why = f"none of its values fits what is said beside it ({', '.join(beside)})" if first else "it lists no value"
        return Never(listing.path, keyword, why)

    def _test(self, part: Part) -> Callable[[Any], bool] | None:
        """Whether a value fits what a part says besides the values it lists; None where it says nothing."""
        beside = {keyword: one for keyword, one in part.raw.items() if keyword not in ("enum", "const")}
        if not beside:
            return None
        if beside.keys() == {"type"}:
            named = _named(part)
            return lambda value: bool(common_types(kinds_of(value), named))
        return lambda value: self.valid(beside, value, [(part.path, keyword) for keyword in beside])

    def valid(self, schema: Any, value: Any, told: Left) -> bool:
        """Whether a value fits a schema of this document; yes where it cannot be tried, but then what is `told` is left out."""
        if id(schema) not in self._documents:
            referred = (
                self.root.keys() - BEYOND_TYPE - {"type"} | {"properties"} if '"$ref"' in json.dumps(schema) else set[str]()
            )
            document = {keyword: one for keyword, one in self.root.items() if keyword in referred or keyword == "$schema"}
            document["properties"] = {**document.get("properties", {}), VALUE: schema}
            self._documents[id(schema)] = schema, document
        try:
            return not validate(self._documents[id(schema)][1], {VALUE: value})
        except UnsupportedSchema:  # it refers to something from where it stands
            self.left += told
            return True

    # --- alternatives -----------------------------------------------------------------------------------------------------

    def _union(self, parts: list[Part], unions: list[tuple[Part, str]]) -> Simple | Never:
        """One alternative of each union, each together with all that stands beside them."""
        rest = [part._replace(raw={key: one for key, one in part.raw.items() if key not in ("anyOf", "oneOf")}) for part in parts]
        rest = [part for part in rest if part.raw]
        left, ways, made = list[tuple[str, str]](), list[list[Part]](), list[Simple | Never]()
        for part, keyword in unions:
            branches = [part.inner(one, f"{part.path}/{keyword}/{at}") for at, one in enumerate(part.listed(keyword))]
            if (ways or self._count > MANY_SCHEMAS) and prod(map(len, ways)) * len(branches) > MOST_WAYS:
                left.append((part.path, keyword))
                continue
            ways.append(branches)
            made = [self.schema(*rest, branch) for branch in branches] if keyword == "oneOf" else []
            if keyword == "oneOf" and not self._exclusive(made):
                left.append((part.path, keyword))
        if not made or len(ways) > 1:
            made = [self.schema(*rest, *chosen) for chosen in product(*ways)]
        possible = [one for one in made if isinstance(one, Simple)]
        if not possible:
            first = next((one for one in made if isinstance(one, Never)), None)
            why = f"it has no alternative that a value fits; the first: {first.why}" if first else "it has no alternatives"
            return Never(unions[0][0].path, unions[0][1], why)
        whole = possible[0] if len(possible) == 1 and not left else Simple({"anyOf": possible}, parts[0].path)
        whole.left += left
        return whole

    def _exclusive(self, ways: Sequence[Simple | Never]) -> bool:
        """Whether a value made for one alternative surely fits no other."""
        made = [one for one in ways if isinstance(one, Simple)]
        if any(self._target(one) is None for one in made):
            return False
        document = {"$defs": self.defs}
        return all(disjoint(document, a, b) for a in made for b in made if a is not b)

    def _target(self, simple: Simple) -> Simple | None:
        """What a reference leads to; None while that is still being made."""
        seen: Any = simple
        while isinstance(seen, Simple) and "$ref" in seen:
            seen = self.defs[seen["$ref"].removeprefix("#/$defs/")]
        return seen if isinstance(seen, Simple) else None

    # --- keywords of one type after another -------------------------------------------------------------------------------

    def _leaf(self, parts: list[Part]) -> Simple | Never:
        types, implied = _types(parts, habits=self.habits)
        beyond = ELSEWHERE | CONTENT if self.judges_content and "string" in types else ELSEWHERE
        left: Left = [(part.path, keyword) for part in parts for keyword in beyond if keyword in part.raw]
        for part in saying(parts, "not"):
            barred = self._barred(part)
            if barred is None:
                left.append((part.path, "not"))
            elif barred >= EVERY:
                return Never(part.path, "not", "it rules out everything")
            else:
                types -= barred
        for part in saying(parts, "if"):
            if {"then", "else"} & part.raw.keys():
                left += [(part.path, keyword) for keyword in ("if", "then", "else") if keyword in part.raw]
        if not types:
            return Never(saying(parts, "type")[-1].path if saying(parts, "type") else parts[0].path, "type", "no type is left")
        keywords: dict[str, Any] = {}
        reason: Never | None = None
        for kind in sorted(types):
            made = self._of(kind, parts, left)
            if isinstance(made, Never):
                reason, types = made, types - {kind}
            else:
                keywords |= made
        if not types:
            return cast(Never, reason)
        made = Simple({} if types == EVERY else {"type": _spelled(types)}, parts[0].path)
        made |= keywords
        made.said, made.left = places(parts), list(dict.fromkeys(left))
        open_objects = (
            "additionalProperties" in keywords and not {"additionalProperties", "unevaluatedProperties"} & made.said.keys()
        )
        made.implied = frozenset({*(["type"] if implied else ()), *(["additionalProperties"] if open_objects else ())})
        return made

    def _barred(self, part: Part) -> frozenset[str] | None:
        """The types a `not` rules out, where it does nothing else; None where it does more."""
        raw = part.raw["not"]
        if isinstance(raw, bool):
            return EVERY if raw else frozenset()
        found = {keyword for keyword in raw if keyword in ASSERTING or keyword in ("$ref", "allOf")}
        if not found:
            return EVERY
        named = _named(Part(raw, part.path))
        return frozenset(named - {"integer"}) if found == {"type"} and ("integer" not in named or "number" in named) else None

    def _of(self, kind: str, parts: list[Part], left: Left) -> dict[str, Any] | Never:
        match kind:
            case "integer" | "number":
                return numbers(parts, left, whole=kind == "integer")
            case "string":
                return strings(parts, left)
            case "array":
                return array(self, parts, left)
            case "object":
                return Members(self, parts, left).made()
            case _:
                return {}

    # --- what never ends --------------------------------------------------------------------------------------------------

    def barren(self) -> dict[tuple[str, ...], Never]:
        """Definitions that no finite value fits, because they need themselves."""
        fitting = ending(self.defs)
        endless = "it needs a value of its own kind, and that another, without end"
        return {
            key: self.defs[name] if isinstance(self.defs[name], Never) else Never(self.defs[name].path, "$ref", endless)
            for key, name in self.names.items()
            if name not in fitting and key not in self.known_barren and harmful(self.defs, name)
        }


def _says_type_alone(raw: Any) -> bool:
    """Whether a schema names one type and asserts nothing else: most do, so they are not taken apart."""
    return isinstance(raw, dict) and raw.get("type") in PLAIN and BEYOND_TYPE.isdisjoint(cast(Schema, raw))  # pyright: ignore[reportUnknownMemberType]


def _named(part: Part) -> set[str]:
    """The types a part names; all of them where it names none."""
    kind = part.raw.get("type")
    names = {kind} if isinstance(kind, str) else set(part.listed("type")) if isinstance(kind, list) else set(ALL_TYPES)
    if unknown := names - ALL_TYPES:
        raise UnsupportedSchema(part.path, "type", f"{sorted(map(str, unknown))[0]!r} is no type of JSON")
    return names


def _types(parts: list[Part], *, habits: bool) -> tuple[frozenset[str], bool]:
    """The types all parts allow, and whether they are only implied by keywords that make sense for them alone."""
    types: set[str] = set(ALL_TYPES)
    for part in parts:
        types = common_types(types, _named(part))
    hinted = {kind for kind, keywords in SHAPES.items() for part in parts if keywords & part.raw.keys()}
    if habits and hinted and types == set(ALL_TYPES):
        return frozenset(hinted), True
    return frozenset(types - {"integer"} if "number" in types else types), False


def _spelled(types: frozenset[str]) -> str | list[str]:
    kinds = sorted(types)
    return kinds[0] if len(kinds) == 1 else kinds
