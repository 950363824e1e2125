"""Pagination of lists as in OpenAI's API, by the query parameters `limit`, `order` and `after` (an id)."""

from collections.abc import Sequence

from starlette.requests import Request

from callsmith.core.errors import UsageError
from callsmith.core.values import Json


def paginate(items: Sequence[Json], request: Request) -> dict[str, Json]:
    """The requested page of a list that is given oldest first. Pages are newest first unless the request says otherwise."""
    query, limit = request.query_params, read_limit(request)
    ordered = items if query.get("order") == "asc" else items[::-1]
    ids = [item["id"] for item in ordered]
    after = query.get("after")
    if after is not None and after not in ids:
        raise UsageError(f"after: there is no item {after!r}", field="after")
    start = ids.index(after) + 1 if after is not None else 0
    part = ordered[start : start + limit]
    return write_page(part, has_more=start + len(part) < len(ordered))


def read_choice(request: Request, name: str, otherwise: str, choices: Sequence[str]) -> str:
    """One of several words among the query parameters."""
    text = request.query_params.get(name, otherwise)
    if text not in choices:
        raise UsageError(f"{name}: unknown {name} {text!r}; expected one of {', '.join(choices)}", field=name)
    return text


def read_limit(request: Request) -> int:
    """How many items the request wants in a page."""
    return read_number(request, "limit", 20, 100)


def read_number(request: Request, name: str, otherwise: int, most: int, *, least: int = 1) -> int:
    """A whole number among the query parameters."""
    text = request.query_params.get(name, str(otherwise))
    if not text.isdecimal() or len(text) > 18 or not least <= int(text) <= most:
        raise UsageError(f"{name}: expected a number from {least} to {most}, got {text!r}", field=name)
    return int(text)


def write_page(items: Sequence[Json], *, has_more: bool) -> dict[str, Json]:
    """A page of a list, in the order of the list."""
    ids = [item["id"] for item in items]
    ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return {"object": "list", "data": items, **ends, "has_more": has_more}
