"""Combine the array keywords of several schemas that apply to the same value."""

from typing import Any

from callsmith.grammar.schema.normal_form import (
    Normalizer,
    NormalSchema,
    SchemaPart,
    UnenforcedKeywords,
    Unsatisfiable,
    strictest_bound,
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
        one = normalizer.combine(*(item for part in parts if (item := _item_part(part, at, parts, sees_all))))
        if isinstance(one, Unsatisfiable):
            bound, reason = at, one
            break
        prefix.append(one)
    rest = normalizer.combine(*(item for part in parts if (item := _item_part(part, None, parts, sees_all))))
    if isinstance(rest, Unsatisfiable) and (bound is None or bound > len(prefix)):
        bound, reason = len(prefix), rest
    if bound is not None and fewest > bound:
        return Unsatisfiable(reason.path, reason.keyword, reason.why)
    unenforced += _unenforced_of_items(parts, bound, sees_all)
    made: dict[str, Any] = {"minItems": fewest} if fewest else {}
    if bound is not None:
        made["maxItems"] = bound
    if prefix:
        made["prefixItems"] = prefix
    if isinstance(rest, NormalSchema) and (rest or rest.unenforced) and (bound is None or bound > len(prefix)):
        made["items"] = rest
    return made


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
    if sees_all and part is parts[0] and "unevaluatedItems" in part.raw and not any("items" in one.raw for one in parts):
        declared = at is not None and any(at < len(_prefix_schemas(one)) for one in parts)
        return None if declared else SchemaPart(part.raw["unevaluatedItems"], f"{part.path}/unevaluatedItems")
    return None


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
