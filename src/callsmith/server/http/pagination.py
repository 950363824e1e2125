"""Pagination of lists as in OpenAI's API, by the query parameters `limit`, `order` and `after` (an id)."""

from collections.abc import Sequence

from starlette.requests import Request

from callsmith.core.errors import UsageError
from callsmith.core.values import Json


def paginate(items: Sequence[Json], request: Request) -> dict[str, Json]:
    """The requested page of a list that is given oldest first. Pages are newest first unless the request says otherwise."""
    query = request.query_params
    limit = query.get("limit", "20")
    if not limit.isdecimal() or len(limit) > 3 or not 1 <= int(limit) <= 100:
        raise UsageError(f"limit: {limit!r} is no number from 1 to 100", field="limit")
    ordered = items if query.get("order") == "asc" else items[::-1]
    ids = [item["id"] for item in ordered]
    after = query.get("after")
    if after is not None and after not in ids:
        raise UsageError(f"after: there is no item {after!r}", field="after")
    start = ids.index(after) + 1 if after is not None else 0
    part = ordered[start : start + int(limit)]
    return {
        "object": "list",
        "data": part,
        "first_id": part[0]["id"] if part else None,
        "last_id": part[-1]["id"] if part else None,
        "has_more": start + len(part) < len(ordered),
    }
