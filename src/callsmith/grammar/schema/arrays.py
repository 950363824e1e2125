"""The keywords of arrays, of several schemas that hold at once: one set of them, or the reason why nothing fits."""

from typing import Any

from callsmith.grammar.schema.normal_form import Left, Never, Part, Simple, Walk, tightest


def array(walk: Walk, parts: list[Part], left: Left) -> dict[str, Any] | Never:
    """The keywords, or why nothing fits."""
    least, most = tightest(parts, "minItems", most=False), tightest(parts, "maxItems", most=True)
    fewest, path = (int(least[0]), least[1]) if least else (0, parts[0].path)
    bound = int(most[0]) if most else None
    prefix, reason = list[Simple](), Never(most[1] if most else path, "maxItems", f"it allows fewer than {fewest} items")
    for at in range(max(len(_places(part)) for part in parts)):
        if bound is not None and at >= bound:
            break
        one = walk.schema(*(item for part in parts if (item := _item(part, at, parts))))
        if isinstance(one, Never):
            bound, reason = at, one
            break
        prefix.append(one)
    rest = walk.schema(*(item for part in parts if (item := _item(part, None, parts))))
    if isinstance(rest, Never) and (bound is None or bound > len(prefix)):
        bound, reason = len(prefix), rest
    if bound is not None and fewest > bound:
        return Never(reason.path, reason.keyword, reason.why)
    left += _of_items(parts, bound)
    made: dict[str, Any] = {"minItems": fewest} if fewest else {}
    if bound is not None:
        made["maxItems"] = bound
    if prefix:
        made["prefixItems"] = prefix
    if isinstance(rest, Simple) and (rest or rest.left) and (bound is None or bound > len(prefix)):
        made["items"] = rest
    return made


def _places(part: Part) -> list[Any]:
    """The schemas of single places; draft 7 has them in `items`."""
    return part.listed("items") or part.listed("prefixItems")


def _item(part: Part, at: int | None, parts: list[Part]) -> Part | None:
    """What a part says of one item; `at` None: of all behind the single places."""
    places, old = _places(part), isinstance(part.raw.get("items"), list)
    if at is not None and at < len(places):
        return Part(places[at], f"{part.path}/{'items' if old else 'prefixItems'}/{at}")
    keyword = "additionalItems" if old else "items"
    if keyword in part.raw:
        return Part(part.raw[keyword], f"{part.path}/{keyword}")
    if part is parts[0] and "unevaluatedItems" in part.raw and not any("items" in one.raw for one in parts):
        declared = at is not None and any(at < len(_places(one)) for one in parts)
        return None if declared else Part(part.raw["unevaluatedItems"], f"{part.path}/unevaluatedItems")
    return None


def _of_items(parts: list[Part], most: int | None) -> Left:
    """What is said of an array's items together, and is not enforced."""
    left: Left = []
    for part in parts:
        if part.raw.get("uniqueItems") is True and (most is None or most > 1):
            left.append((part.path, "uniqueItems"))
        if "contains" in part.raw:
            left += [(part.path, keyword) for keyword in ("contains", "minContains", "maxContains") if keyword in part.raw]
        enforced = part is parts[0] and part.sees(parts)
        if not enforced and part.raw.get("unevaluatedItems", True) is not True:
            left.append((part.path, "unevaluatedItems"))
    return left
