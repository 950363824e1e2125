"""Combine the array and object keywords of several schemas that apply to the same value."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, cast

from callsmith.core.schema import pointer
from callsmith.grammar.patterns.automaton import Follower, TooLarge
from callsmith.grammar.patterns.portable import to_portable
from callsmith.grammar.patterns.regex import UnsupportedRegex, match_whole_text, parse
from callsmith.grammar.schema.normal_form import (
    Normalizer,
    NormalSchema,
    SchemaPart,
    UnenforcedKeywords,
    Unsatisfiable,
    strictest_bound,
    with_keyword,
)


def array_keywords(
    normalizer: Normalizer, parts: list[SchemaPart], unenforced: UnenforcedKeywords
) -> dict[str, Any] | Unsatisfiable:
    """The combined keywords, or why no array fits. What is not enforced is added to `unenforced`."""
    least, most = strictest_bound(parts, "minItems", is_upper=False), strictest_bound(parts, "maxItems", is_upper=True)
    fewest, path = (int(least[0]), least[1]) if least else (0, parts[0].path)
    bound = int(most[0]) if most else None
    reason = Unsatisfiable(most[1] if most else path, "maxItems", f"it allows fewer than {fewest} items")
    sees_all = normalizer.with_implied or parts[0].decides_unevaluated(parts)
    prefix: list[NormalSchema] = []
    for at in range(max(len(_prefix_schemas(part)) for part in parts)):
        if bound is not None and at >= bound:
            break
        item_schema = normalizer.combine(*(item for part in parts if (item := _item_part(part, at, parts, sees_all))))
        if isinstance(item_schema, Unsatisfiable):
            bound, reason = at, item_schema
            break
        prefix.append(item_schema)
    rest = normalizer.combine(*(item for part in parts if (item := _item_part(part, None, parts, sees_all))))
    if isinstance(rest, Unsatisfiable) and (bound is None or bound > len(prefix)):
        bound, reason = len(prefix), rest
    if bound is not None and fewest > bound:
        return Unsatisfiable(reason.path, reason.keyword, reason.why)
    unenforced += _unenforced_of_items(parts, bound, sees_all)
    keywords: dict[str, Any] = {"minItems": fewest} if fewest else {}
    if bound is not None:
        keywords["maxItems"] = bound
    if prefix:
        keywords["prefixItems"] = prefix
    if isinstance(rest, NormalSchema) and (rest or rest.unenforced) and (bound is None or bound > len(prefix)):
        keywords["items"] = rest
    return keywords


def _prefix_schemas(part: SchemaPart) -> list[Any]:
    """The schemas of the first items, one each: `prefixItems`, or in draft 7 a list under `items`."""
    return part.list_at("items") or part.list_at("prefixItems")


def _item_part(part: SchemaPart, at: int | None, parts: list[SchemaPart], sees_all: bool) -> SchemaPart | None:
    """The schema that a part has for the item at this index; with `at` None, for those after the prefix.

    `sees_all`: what the first part says of unevaluated items counts.
    """
    prefix, is_old_draft = _prefix_schemas(part), isinstance(part.raw.get("items"), list)
    if at is not None and at < len(prefix):
        return SchemaPart(prefix[at], f"{part.path}/{'items' if is_old_draft else 'prefixItems'}/{at}")
    keyword = "additionalItems" if is_old_draft else "items"
    if keyword in part.raw:
        return SchemaPart(part.raw[keyword], f"{part.path}/{keyword}")
    if sees_all and part is parts[0] and "unevaluatedItems" in part.raw and not any(map(_has_rest, parts)):
        declared = at is not None and any(at < len(_prefix_schemas(part)) for part in parts)
        return None if declared else SchemaPart(part.raw["unevaluatedItems"], f"{part.path}/unevaluatedItems")
    return None


def _has_rest(part: SchemaPart) -> bool:
    """Whether a part has a schema for the items after the first ones."""
    return ("additionalItems" if isinstance(part.raw.get("items"), list) else "items") in part.raw


def _unenforced_of_items(parts: list[SchemaPart], most: int | None, sees_all: bool) -> UnenforcedKeywords:
    """The keywords about all items together, which no grammar enforces."""
    unenforced: UnenforcedKeywords = []
    for part in parts:
        if part.raw.get("uniqueItems") is True and (most is None or most > 1):
            unenforced.append((part.path, "uniqueItems"))
        if "contains" in part.raw:
            unenforced += [(part.path, keyword) for keyword in ("contains", "minContains", "maxContains") if keyword in part.raw]
        enforced = part is parts[0] and part.covers(parts) and sees_all
        if not enforced and part.raw.get("unevaluatedItems", True) is not True:
            unenforced.append((part.path, "unevaluatedItems"))
    return unenforced


# In any order, a grammar has 64 bits for each object to remember what was written: so many properties, and how many others.
TRACKED, COUNTED = 56, 255
_STEPS = 1 << 20  # on the way through a name


class ObjectKeywords:
    """The keywords of an object while they are being combined. What is not enforced is added to `unenforced`."""

    def __init__(self, normalizer: Normalizer, parts: Sequence[SchemaPart], unenforced: UnenforcedKeywords) -> None:
        self.normalizer, self.parts, self.unenforced = normalizer, parts, unenforced
        self.path = parts[0].path
        self.required = list(dict.fromkeys(name for part in parts for name in part.list_at("required")))
        names = chain.from_iterable(part.mapping_at("properties") for part in parts)
        self.names = list(dict.fromkeys((*names, *self.required)))
        self.properties: dict[str, Any] = {}
        self.patterns: dict[str, Any] = {}
        self.unevaluated = self._find_unevaluated()
        self.additional: Any = {}  # the schema of properties that are not listed; False: they are not allowed

    def combine(self) -> dict[str, Any] | Unsatisfiable:
        """The combined keywords, or why no object fits."""
        self._combine_additional()
        self._combine_patterns()
        for name in self.names:
            property_schema = self.normalizer.combine(*self._parts_of(name))
            for part in with_keyword(self.parts, "propertyNames"):
                if not self.normalizer.is_valid(part.raw["propertyNames"], name, [(part.path, "propertyNames")]):
                    property_schema = Unsatisfiable(
                        part.path, "propertyNames", f"{name!r} is required, but no such name is allowed"
                    )
            if isinstance(property_schema, NormalSchema):
                self.properties[name] = property_schema
            elif name in self.required:
                return property_schema
            elif self.additional is not False or self.patterns:
                self.properties[name] = False
        self._apply_property_names()
        self._report_dependencies()
        if len(self.required) > TRACKED and not self.normalizer.with_implied:
            self.unenforced += [(part.path, "required") for part in with_keyword(self.parts, "required")]
        counted = self._count_keywords()
        if isinstance(counted, Unsatisfiable):
            return counted
        if self.properties or self.additional is False:
            counted["properties"] = self.properties
        if self.required:
            counted["required"] = self.required
        if self.patterns:
            counted["patternProperties"] = self.patterns
        if self.additional is False or self.additional or self.additional.unenforced:
            counted["additionalProperties"] = self.additional
        return counted

    def _find_unevaluated(self) -> SchemaPart | None:
        """What the first part says of properties that nothing else speaks of; what others say of them is listed as unenforced.

        With what is implied, it closes the object even where a condition might evaluate more: nothing is lost by it.
        """
        first = self.parts[0]
        is_certain = first.decides_unevaluated(self.parts)
        for part in with_keyword(self.parts, "unevaluatedProperties"):
            enforced = part is first and (first.covers(self.parts) if self.normalizer.with_implied else is_certain)
            if part.raw["unevaluatedProperties"] is not True and not enforced:
                self.unenforced.append((part.path, "unevaluatedProperties"))
        if "unevaluatedProperties" in first.raw and (is_certain or self.normalizer.with_implied):
            return _below(first, "unevaluatedProperties")
        return None

    def _combine_additional(self) -> None:
        """Find out whether properties that are not listed are allowed, and their schema."""
        explicit = [_below(part, "additionalProperties") for part in with_keyword(self.parts, "additionalProperties")]
        if not explicit and self.unevaluated:
            explicit = [self.unevaluated]
        if explicit:
            additional = self.normalizer.combine(*explicit)
            self.additional = additional if isinstance(additional, NormalSchema) else False
        elif self.normalizer.with_implied and any(_declares_properties(part) for part in self.parts):
            self.additional = False
        else:
            self.additional = NormalSchema({}, self.path)

    def _parts_of(self, name: str) -> list[SchemaPart]:
        """The schemas that the parts have for one property."""
        first = self.parts[0]
        if len(self.parts) == 1 and "patternProperties" not in first.raw and name in first.mapping_at("properties"):
            return [_below(first, "properties", name)]
        parts = list[SchemaPart]()
        for part in self.parts:
            own = list[SchemaPart]()
            if name in part.mapping_at("properties"):
                own.append(_below(part, "properties", name))
            patterns = part.mapping_at("patternProperties")
            own += [_below(part, "patternProperties", pattern) for pattern in patterns if _matches(pattern, name)]
            if not own and "additionalProperties" in part.raw:
                own.append(_below(part, "additionalProperties"))
            parts += own
        if not parts and self.unevaluated:
            declared = any(name in part.mapping_at("properties") for part in self.parts)
            parts += [] if declared else [self.unevaluated]
        return parts

    def _combine_patterns(self) -> None:
        """Combine `patternProperties`, as long as no name can match two of the patterns."""
        closing = with_keyword(self.parts, "additionalProperties")
        forbidden: list[tuple[str, str | None]] = []
        for part in self.parts:
            others = [item for item in closing if item is not part]
            beside = [pattern for item in others for pattern in item.mapping_at("patternProperties")]
            additional = [_below(item, "additionalProperties") for item in others]
            for pattern in part.mapping_at("patternProperties"):
                pattern_schema = self.normalizer.combine(_below(part, "patternProperties", pattern), *additional)
                regex = to_portable(pattern)
                if not all(regex and _are_disjoint_patterns(regex, to_portable(other) or "") for other in beside):
                    regex, pattern_schema = None, NormalSchema({}, self.path)  # the other may speak of such a name, too
                is_apart = regex is not None and all(_are_disjoint_patterns(regex, other) for other in self.patterns)
                if isinstance(pattern_schema, Unsatisfiable):
                    forbidden.append((part.path, regex))
                elif regex is not None and is_apart and (self.normalizer.with_implied or _is_supported(regex)):
                    self.patterns[regex] = pattern_schema
                elif regex is None or not self.normalizer.with_implied:  # any name may be one of them
                    self.additional = NormalSchema({}, self.path)
                    self.unenforced.append((part.path, "patternProperties"))
                    self.unenforced += [(item.path, "additionalProperties") for item in closing]
                    self.unenforced += [(self.parts[0].path, "unevaluatedProperties")] if self.unevaluated else []
                else:
                    self.unenforced.append((part.path, "patternProperties"))
        for path, regex in forbidden:  # unless nothing else lets such a name in
            is_apart = regex is not None and all(_are_disjoint_patterns(regex, other) for other in self.patterns)
            if self.additional is not False or (self.patterns and not is_apart):
                self.unenforced.append((path, "patternProperties"))

    def _apply_property_names(self) -> None:
        """Limit the names of properties that are not listed to those that `propertyNames` allows."""
        if self.additional is False and not self.patterns:
            return
        for part in with_keyword(self.parts, "propertyNames"):
            names = self.normalizer.combine(
                SchemaPart(part.raw["propertyNames"], f"{part.path}/propertyNames"), SchemaPart({"type": "string"}, part.path)
            )
            if isinstance(names, Unsatisfiable):
                self.additional, self.patterns = False, {}
            elif "enum" in names and not self.patterns:
                self.properties |= {name: self.additional for name in names["enum"] if name not in self.properties}
                self.additional = False
            elif (
                names.keys() == {"type", "pattern"}
                and not names.unenforced
                and not self.patterns
                and not (self.additional and self.properties)
                and (self.normalizer.with_implied or _is_supported(names["pattern"]))
            ):
                self.patterns, self.additional = {names["pattern"]: self.additional}, False
            elif names.keys() != {"type"} or names.unenforced:
                self.unenforced.append((part.path, "propertyNames"))

    def _report_dependencies(self) -> None:
        """List what one property requires of others as unenforced, unless that property cannot be present."""
        for part in self.parts:
            for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
                for name, wanted in part.mapping_at(keyword).items():
                    possible = self.properties.get(name, self.additional is not False or bool(self.patterns)) is not False
                    is_certain = isinstance(wanted, list) and {*cast(list[str], wanted)} <= {*self.required}
                    if possible and not is_certain and wanted is not True and (part.path, keyword) not in self.unenforced:
                        self.unenforced.append((part.path, keyword))

    def _count_keywords(self) -> dict[str, Any] | Unsatisfiable:
        """How many properties are allowed. Not every engine counts them where one of the listed ones is optional."""
        keywords: dict[str, Any] = {}
        least = strictest_bound(self.parts, "minProperties", is_upper=False)
        most = strictest_bound(self.parts, "maxProperties", is_upper=True)
        listed = sum(schema is not False for schema in self.properties.values())
        closed = self.additional is False and not self.patterns
        if most and most[0] < len(self.required):
            return Unsatisfiable(most[1], "maxProperties", f"{len(self.required)} properties are required")
        if least and ((closed and least[0] > listed) or (most and least[0] > most[0])):
            return Unsatisfiable(
                least[1], "minProperties", f"there are {listed} properties at most" if closed else "maxProperties is less"
            )
        if least and least[0] > len(self.required):
            # A name may be written twice, so counting helps but proves nothing.
            self.unenforced.append((least[1], "minProperties"))
            keywords["minProperties"] = int(least[0])
        if most and not (closed and most[0] >= listed):
            keywords["maxProperties"] = int(most[0])
            is_counted = self.normalizer.with_implied or not listed or (listed <= TRACKED and most[0] - listed < COUNTED)
            if listed > len(self.required) or not is_counted:
                self.unenforced.append((most[1], "maxProperties"))
        return keywords


def _declares_properties(part: SchemaPart) -> bool:
    """Whether a part lists the allowed properties. An empty list does so only for a tool without arguments."""
    return bool(
        part.mapping_at("properties") or part.mapping_at("patternProperties") or (part.path == "#" and "properties" in part.raw)
    )


def _below(part: SchemaPart, keyword: str, name: str | None = None) -> SchemaPart:
    """The schema under a keyword, or under a name there."""
    value: Any = part.raw[keyword]
    path = f"{part.path}/{keyword}"
    return SchemaPart(value, path) if name is None else SchemaPart(value[name], path + pointer([name]))


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern is found in a name; a pattern that cannot be read is not, and is listed as unenforced."""
    regex = to_portable(pattern)
    try:
        follower = None if regex is None else _follower(regex)
        return re.search(pattern, name) is not None if follower is None else follower.follow(name, _STEPS) is None
    except (re.error, TooLarge):
        return False


@lru_cache(maxsize=256)
def _follower(regex: str) -> Follower | None:
    """What finds a pattern in whole names; None for one that is not supported."""
    try:
        return Follower(match_whole_text(parse(regex)))
    except UnsupportedRegex:
        return None


def _is_supported(pattern: str) -> bool:
    """Whether the names that match can be distinguished from all others."""
    try:
        match_whole_text(parse(pattern))
    except UnsupportedRegex:
        return False
    return True


def _are_disjoint_patterns(one: str, other: str) -> bool:
    """Whether certainly no name matches both patterns, because they begin with different letters."""
    heads = [re.match(r"\^([\w -]+)(?![\w -]|[*?{|])", pattern) for pattern in (one, other)]
    if "|" in one + other or not heads[0] or not heads[1]:
        return False
    size = min(len(heads[0][1]), len(heads[1][1]))
    return heads[0][1][:size] != heads[1][1][:size]
