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


def read_limit(request: Request, most: int = 100) -> int:
    """How many items the request wants in a page."""
    limit = request.query_params.get("limit", "20")
    if not limit.isdecimal() or len(limit) > len(str(most)) or not 1 <= int(limit) <= most:
        raise UsageError(f"limit: {limit!r} is no number from 1 to {most}", field="limit")
    return int(limit)


def write_page(items: Sequence[Json], *, has_more: bool) -> dict[str, Json]:
    """A page of a list, in the order of the list."""
    ids = [item["id"] for item in items]
    ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return {"object": "list", "data": items, **ends, "has_more": has_more}
