"""JSON Schema → normal form: keywords that a grammar can enforce stay, all others are left out and listed.

Schemas that apply to the same value (`allOf`, keywords beside a `$ref` or an `anyOf`) are combined into one. Nothing is loosened
silently: every keyword that is left out is in the `unenforced` of its schema, and is validated after generation instead. A schema
that no value fits is refused, with path and keyword.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, product
from math import prod
from typing import Any, cast

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.schema import locate, pointer, subschemas, to_standard, validate
from callsmith.core.values import Schema
from callsmith.formats.reader.typed import ALL_TYPES, common_types
from callsmith.grammar.schema.keywords import (
    ASSERTIONS,
    CONTENT_KEYWORDS,
    EXTERNAL_REFERENCES,
    KEYWORDS_BY_TYPE,
    MORE_THAN_TYPE,
    UNEVALUATED,
)
from callsmith.grammar.schema.normal_form import (
    NormalSchema,
    SchemaPart,
    UnenforcedKeywords,
    Unsatisfiable,
    are_disjoint,
    collect_unenforced,
    drop_repeated_types,
    finite_definitions,
    is_in_use,
    json_key,
    keyword_paths,
    standalone,
    value_types,
    with_keyword,
)
from callsmith.grammar.schema.scalars import MAX_NUMBER, may_break_format, number_keywords, string_keywords
from callsmith.grammar.schema.structures import ObjectKeywords, array_keywords

SCALAR_TYPES = ("string", "integer", "number", "boolean", "null")
MAX_ALTERNATIVES = 64  # of one union, after those of several keywords are multiplied
MANY_SCHEMAS = 10_000  # combined for one document: from here on large unions are left out
MAX_SCHEMAS = 50_000  # combined for one document: beyond that it is refused
DISTINCT_TYPES = ALL_TYPES - {"integer"}
VALUE_NAME = "\0"  # the property under which a single value is validated


def normalize(schema: Schema, *, kind: str | None = None, with_implied: bool = True) -> NormalSchema:
    """The normal form of a schema, limited to values of type `kind` if one is given; definitions are under `$defs`.

    With `with_implied`, an object that lists its properties has no others, and keywords imply the type they are for. Without it,
    a schema means what JSON Schema says. The result is cached: do not change it.
    """
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedSchema("#", "", f"not a JSON document: {error}") from None
    return _normalize(text, kind, with_implied)


@lru_cache(maxsize=1024)
def _normalize(text: str, kind: str | None, with_implied: bool) -> NormalSchema:
    root, unsatisfiable = to_standard(json.loads(text)), dict[tuple[str, ...], Unsatisfiable]()
    beside = [SchemaPart({"type": kind}, "#")] if kind and root.get("type") != kind else []
    while True:
        normalizer = _Normalizer(root, unsatisfiable, with_implied)
        normal = normalizer.combine(SchemaPart(root, "#"), *beside)
        if isinstance(normal, Unsatisfiable):
            raise UnsupportedSchema(normal.path, normal.keyword, f"no value fits: {normal.why}")
        impossible = normalizer.find_unsatisfiable()
        if not impossible:
            normal["$defs"] = normalizer.defs
            normal.unenforced += normalizer.unenforced
            return normal
        unsatisfiable |= impossible


def normalize_standalone(schema: Schema, unenforced: UnenforcedKeywords, *, with_implied: bool = True) -> NormalSchema:
    """The normal form of a schema, as a document of its own. The keywords it leaves out are added to `unenforced`."""
    root = normalize(schema, with_implied=with_implied)
    unenforced += collect_unenforced(root, root)
    return standalone(root, root)


class _Normalizer:
    """One pass over a document. `unsatisfiable` are the combinations that no value fits, as far as they are known."""

    def __init__(self, root: Schema, unsatisfiable: Mapping[tuple[str, ...], Unsatisfiable], with_implied: bool) -> None:
        self.root, self.with_implied = root, with_implied
        self.known_unsatisfiable = unsatisfiable
        self.names: dict[tuple[str, ...], str] = {}  # the paths of the schemas that are combined → the definition's name
        self.defs: dict[str, Any] = {}
        owned = ((pointer(tokens), inner) for tokens, inner in subschemas(root) if tokens and "$id" in inner)
        resources = [(f"#{place}", inner) for place, inner in owned if not str(inner["$id"]).startswith("#")]
        self.resources = sorted(resources, key=lambda resource: -len(resource[0]))  # the innermost first
        draft = re.search(r"draft-0([3-7])", str(root.get("$schema")))
        self.is_old_draft, self.asserts_content = draft is not None, draft is not None and draft[1] in "67"
        self.plain_integers = not with_implied and draft is not None and draft[1] in "34"
        self.unenforced: UnenforcedKeywords = []  # beside what is listed at the schema itself
        self._count = 0
        self._documents: dict[int, tuple[Any, Schema]] = {}  # by the id of the schema, which is stored so that it stays its own

    def combine(self, *parts: SchemaPart) -> NormalSchema | Unsatisfiable:
        """The schema of values that fit all the parts."""
        self._count += 1
        if self._count > MAX_SCHEMAS:
            raise UnsupportedSchema(parts[0].path, "", "too large: its references and alternatives multiply")
        if len(parts) == 1 and _is_single_type(parts[0].raw):
            normal = NormalSchema({"type": parts[0].raw["type"]}, parts[0].path)
            normal.sources, normal.plain_integers = {"type": [normal.path]}, self.plain_integers
            return normal
        flat = self._flatten(parts)
        if isinstance(flat, Unsatisfiable):
            return flat
        conjunction, referred = flat
        if not conjunction:
            return NormalSchema({}, parts[0].path if parts else "#")
        if not referred:
            return self._combine_flat(conjunction)
        key = tuple(part.path + "".join(sorted(part.raw)) for part in conjunction)
        if any(UNEVALUATED & part.raw.keys() for part in conjunction):
            key += tuple(str(item.covers(conjunction)) for item in conjunction)
        if key in self.known_unsatisfiable:
            return self.known_unsatisfiable[key]
        if key not in self.names:
            name = self.names[key] = f"d{len(self.names)}"
            self.defs[name] = None
            self.defs[name] = self._combine_flat(conjunction)
        name = self.names[key]
        if isinstance(unfit := self.defs[name], Unsatisfiable):
            return unfit
        return NormalSchema({"$ref": f"#/$defs/{name}"}, conjunction[0].path)

    def _flatten(self, parts: Iterable[SchemaPart]) -> tuple[list[SchemaPart], bool] | Unsatisfiable:
        """The assertions of the parts and of the schemas they apply by `$ref` and `allOf`; and whether there was a `$ref`."""
        waiting, flat, seen = list(parts), list[SchemaPart](), set[tuple[str, int]]()
        referred = False
        for part in waiting:  # grows in the loop
            if part.raw is False:
                return Unsatisfiable(part.path, "false", "the schema is `false`")
            if not isinstance(part.raw, bool | Mapping):
                raise UnsupportedSchema(part.path, "", "a schema is an object, or true or false")
            raw = cast(Schema, {} if part.raw is True else part.raw)  # pyright: ignore[reportUnknownMemberType]
            if (part.path, id(raw)) in seen:
                continue
            seen.add((part.path, id(raw)))
            assertions = {keyword: value for keyword, value in raw.items() if keyword in ASSERTIONS}
            if "$ref" in raw:
                if self.is_old_draft:  # in old drafts, keywords beside a `$ref` do not count
                    raw, assertions = {"$ref": raw["$ref"]}, dict[str, Any]()
                target = self._locate(str(raw["$ref"]), part.path)
                if target is None and str(raw["$ref"]).startswith("#/"):
                    raise UnsupportedSchema(part.path, "$ref", f"{raw['$ref']!r} leads nowhere within the schema")
                if target is None:
                    assertions["$ref"] = raw["$ref"]
                else:
                    referred = True
                    waiting.append(part.subschema(*target))
            listed = SchemaPart(raw, "").list_at("allOf")
            waiting += [part.subschema(schema, f"{part.path}/allOf/{at}") for at, schema in enumerate(listed)]
            if assertions:
                flat.append(part._replace(raw=assertions))
        return drop_repeated_types(flat), referred

    def _locate(self, reference: str, path: str) -> tuple[Any, str] | None:
        """The schema a reference leads to, and its path. Inside a schema with an `$id` of its own, `#` is that schema."""
        if reference.startswith("#"):
            for place, resource in self.resources:
                if f"{path}/".startswith(f"{place}/") and (located := locate(resource, reference)):
                    return located[0], place + located[1].removeprefix("#")
        return locate(self.root, reference)

    def _combine_flat(self, parts: list[SchemaPart]) -> NormalSchema | Unsatisfiable:
        for part in parts:
            if "enum" in part.raw or "const" in part.raw:
                return self._combine_enums(part, parts)
        unions = [(part, keyword) for part in parts for keyword in ("anyOf", "oneOf") if keyword in part.raw]
        return self._combine_unions(parts, unions) if unions else self._combine_keywords(parts)

    # --- values -----------------------------------------------------------------------------------------------------------

    def _combine_enums(self, listing: SchemaPart, parts: list[SchemaPart]) -> NormalSchema | Unsatisfiable:
        """Those of the listed values that fit all other keywords."""
        keyword = "enum" if "enum" in listing.raw else "const"
        first, *others = [
            {json_key(value): value for value in reversed(values)}
            for part in (listing, *(part for part in parts if part is not listing))
            for values in part.value_lists()
        ]
        values = [value for key, value in reversed(first.items()) if all(key in other for other in others)]
        tests = [test for part in parts if (test := self._value_test(part))]
        valid = [value for value in values if all(fits(value) for fits in tests)]
        if valid:
            normal = NormalSchema({"enum": valid}, listing.path)
            normal.sources = keyword_paths(parts)
            wholes = [value for value in valid if self.plain_integers and type(value) is int]
            normal.plain_integers = not all(abs(value) <= MAX_NUMBER and fits(float(value)) for value in wholes for fits in tests)
            return normal
        beside = sorted({*chain.from_iterable(part.raw for part in parts)} - {keyword})
        why = f"none of its values fits what is said beside it ({', '.join(beside)})" if first else "it lists no value"
        return Unsatisfiable(listing.path, keyword, why)

    def _value_test(self, part: SchemaPart) -> Callable[[Any], bool] | None:
        """A test whether a value fits the keywords beside `enum` and `const`; None where there are none."""
        beside = {keyword: value for keyword, value in part.raw.items() if keyword not in ("enum", "const")}
        if not beside:
            return None
        if beside.keys() == {"type"}:
            types = _named_types(part)
            if self.plain_integers and types >= {"integer"} and "number" not in types:
                return lambda value: type(value) is not float and bool(common_types(value_types(value), types))
            return lambda value: bool(common_types(value_types(value), types))
        return lambda value: self.is_valid(beside, value, [(part.path, keyword) for keyword in beside])

    def is_valid(self, schema: Any, value: Any, keywords: UnenforcedKeywords) -> bool:
        """Whether a value fits a schema of the document. Where that cannot be checked, yes, and `keywords` are unenforced."""
        if id(schema) not in self._documents:
            referred = (
                self.root.keys() - MORE_THAN_TYPE - {"type"} | {"properties"} if '"$ref"' in json.dumps(schema) else set[str]()
            )
            document = {keyword: inner for keyword, inner in self.root.items() if keyword in referred or keyword == "$schema"}
            document["properties"] = {**document.get("properties", {}), VALUE_NAME: schema}
            self._documents[id(schema)] = schema, document
        try:
            is_valid = not validate(self._documents[id(schema)][1], {VALUE_NAME: value})
            if is_valid and not self.with_implied and may_break_format(schema, value):
                self.unenforced += [item for item in keywords if item[1] == "format"] or keywords
            return is_valid
        except UnsupportedSchema:  # it has a reference that is relative to its own place
            self.unenforced += keywords
            return True

    # --- alternatives -----------------------------------------------------------------------------------------------------

    def _combine_unions(self, parts: list[SchemaPart], unions: list[tuple[SchemaPart, str]]) -> NormalSchema | Unsatisfiable:
        """Every choice of one alternative from each union, combined with the keywords beside the unions."""
        rest = [
            part._replace(raw={key: value for key, value in part.raw.items() if key not in ("anyOf", "oneOf")}) for part in parts
        ]
        rest = [part for part in rest if part.raw]
        unenforced, ways, combined = list[tuple[str, str]](), list[list[SchemaPart]](), list[NormalSchema | Unsatisfiable]()
        for part, keyword in unions:
            branches = [part.subschema(schema, f"{part.path}/{keyword}/{at}") for at, schema in enumerate(part.list_at(keyword))]
            if (ways or self._count > MANY_SCHEMAS) and prod(map(len, ways)) * len(branches) > MAX_ALTERNATIVES:
                unenforced.append((part.path, keyword))
                continue
            ways.append(branches)
            combined = [self.combine(*rest, branch) for branch in branches] if keyword == "oneOf" else []
            if keyword == "oneOf" and not self._are_exclusive(combined):
                unenforced.append((part.path, keyword))
        if not combined or len(ways) > 1:
            combined = [self.combine(*rest, *chosen) for chosen in product(*ways)]
        possible = [item for item in combined if isinstance(item, NormalSchema)]
        if not possible:
            first = next((item for item in combined if isinstance(item, Unsatisfiable)), None)
            why = f"it has no alternative that a value fits; the first: {first.why}" if first else "it has no alternatives"
            return Unsatisfiable(unions[0][0].path, unions[0][1], why)
        whole = possible[0] if len(possible) == 1 and not unenforced else NormalSchema({"anyOf": possible}, parts[0].path)
        whole.unenforced += unenforced
        return whole

    def _are_exclusive(self, ways: Sequence[NormalSchema | Unsatisfiable]) -> bool:
        """Whether a value generated for one alternative certainly fits no other."""
        satisfiable = [way for way in ways if isinstance(way, NormalSchema)]
        if any(self._resolve_finished(item) is None for item in satisfiable):
            return False
        document = {"$defs": self.defs}
        return all(are_disjoint(document, a, b) for a in satisfiable for b in satisfiable if a is not b)

    def _resolve_finished(self, schema: NormalSchema) -> NormalSchema | None:
        """The schema a reference leads to; None while that is still being made."""
        seen: Any = schema
        while isinstance(seen, NormalSchema) and "$ref" in seen:
            seen = self.defs[seen["$ref"].removeprefix("#/$defs/")]
        return seen if isinstance(seen, NormalSchema) else None

    # --- keywords, type by type -------------------------------------------------------------------------------------------

    def _combine_keywords(self, parts: list[SchemaPart]) -> NormalSchema | Unsatisfiable:
        types, implied = _common_types(parts, with_implied=self.with_implied)
        beyond = EXTERNAL_REFERENCES | CONTENT_KEYWORDS if self.asserts_content and "string" in types else EXTERNAL_REFERENCES
        unenforced: UnenforcedKeywords = [(part.path, keyword) for part in parts for keyword in beyond if keyword in part.raw]
        for part in with_keyword(parts, "not"):
            excluded = self._excluded_types(part)
            if excluded is None:
                unenforced.append((part.path, "not"))
            elif excluded >= DISTINCT_TYPES:
                return Unsatisfiable(part.path, "not", "it rules out everything")
            else:
                types -= excluded
        for part in with_keyword(parts, "if"):
            if {"then", "else"} & part.raw.keys():
                unenforced += [(part.path, keyword) for keyword in ("if", "then", "else") if keyword in part.raw]
        if not types:
            typed = with_keyword(parts, "type")
            return Unsatisfiable(typed[-1].path if typed else parts[0].path, "type", "no type is left")
        keywords: dict[str, Any] = {}
        reason: Unsatisfiable | None = None
        for kind in sorted(types):
            normal = self._type_keywords(kind, parts, unenforced)
            if isinstance(normal, Unsatisfiable):
                reason, types = normal, types - {kind}
            else:
                keywords |= normal
        if not types:
            return cast(Unsatisfiable, reason)
        kinds = sorted(types)
        type_keyword = {} if types == DISTINCT_TYPES else {"type": kinds[0] if len(kinds) == 1 else kinds}
        normal = NormalSchema(type_keyword, parts[0].path)
        normal |= keywords
        normal.sources, normal.unenforced = keyword_paths(parts), list(dict.fromkeys(unenforced))
        normal.plain_integers = self.plain_integers
        open_objects = (
            "additionalProperties" in keywords and not {"additionalProperties", "unevaluatedProperties"} & normal.sources.keys()
        )
        normal.implied = frozenset({*(["type"] if implied else ()), *(["additionalProperties"] if open_objects else ())})
        return normal

    def _excluded_types(self, part: SchemaPart) -> frozenset[str] | None:
        """The types that a `not` excludes; None where it does not just exclude types."""
        raw = part.raw["not"]
        if isinstance(raw, bool):
            return DISTINCT_TYPES if raw else frozenset()
        keywords = {keyword for keyword in raw if keyword in ASSERTIONS or keyword in ("$ref", "allOf")}
        if not keywords:
            return DISTINCT_TYPES
        types = _named_types(SchemaPart(raw, part.path))
        return frozenset(types - {"integer"}) if keywords == {"type"} and ("integer" not in types or "number" in types) else None

    def _type_keywords(
        self, kind: str, parts: list[SchemaPart], unenforced: UnenforcedKeywords
    ) -> dict[str, Any] | Unsatisfiable:
        match kind:
            case "integer" | "number":
                return number_keywords(parts, unenforced, whole=kind == "integer")
            case "string":
                return string_keywords(parts, unenforced)
            case "array":
                return array_keywords(self, parts, unenforced)
            case "object":
                return ObjectKeywords(self, parts, unenforced).combine()
            case _:
                return {}

    # --- definitions without a finite value -------------------------------------------------------------------------------

    def find_unsatisfiable(self) -> dict[tuple[str, ...], Unsatisfiable]:
        """The definitions that no finite value fits, because they require themselves."""
        finite = finite_definitions(self.defs)
        unsatisfiable: dict[tuple[str, ...], Unsatisfiable] = {}
        for key, name in self.names.items():
            if name not in finite and key not in self.known_unsatisfiable and is_in_use(self.defs, name):
                definition = self.defs[name]
                why = "it requires itself, without end"
                unsatisfiable[key] = (
                    definition if isinstance(definition, Unsatisfiable) else Unsatisfiable(definition.path, "$ref", why)
                )
        return unsatisfiable


def _is_single_type(raw: Any) -> bool:
    """Whether a schema has one scalar type and no other assertion: most do, and there is nothing to combine."""
    return isinstance(raw, dict) and raw.get("type") in SCALAR_TYPES and MORE_THAN_TYPE.isdisjoint(cast(Schema, raw))  # pyright: ignore[reportUnknownMemberType]


def _named_types(part: SchemaPart) -> set[str]:
    """The types a part names; all of them where it names none."""
    kind = part.raw.get("type")
    names = {kind} if isinstance(kind, str) else set(part.list_at("type")) if isinstance(kind, list) else set(ALL_TYPES)
    if unknown := names - ALL_TYPES:
        raise UnsupportedSchema(part.path, "type", f"{sorted(map(str, unknown))[0]!r} is no type of JSON")
    return names


def _common_types(parts: list[SchemaPart], *, with_implied: bool) -> tuple[frozenset[str], bool]:
    """The types that all parts allow, and whether they are only implied by the keywords."""
    types: set[str] = set(ALL_TYPES)
    for part in parts:
        types = common_types(types, _named_types(part))
    hinted = {kind for kind, keywords in KEYWORDS_BY_TYPE.items() for part in parts if keywords & part.raw.keys()}
    if with_implied and hinted and types == set(ALL_TYPES):
        return frozenset(hinted), True
    return frozenset(types - {"integer"} if "number" in types else types), False
