"""`/v1/audit`: what tools have done, for whom, and what persons have decided.

    GET /v1/audit?after=120&limit=100         (also: subject, tool, event)

    {"object": "list", "data": [{"number": 121, "at": 1780000000.2, "event": "executed", "name": "pay", "subject": "ada", …}],
     "last": 121, "has_more": false}

Only an admin's key may read it. It has the arguments of executions as hashes.
"""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.server.http.pagination import read_number
from callsmith.server.http.request_context import is_admin
from callsmith.server.http.streams import JsonResponse
from callsmith.server.service import Service
from callsmith.server.store import AuditEntry

_MOST = 1_000
_LAST = 10**18 - 1  # the largest number an entry can have
_FILTERS = {"subject": ("subject",), "tool": ("name", "tool"), "event": ("event",)}  # fields of an entry that are compared


def routes(service: Service) -> list[Route]:
    """The route of the audit log."""

    async def audit(request: Request) -> Response:
        if not is_admin() or (service.settings.open and not service.settings.keys):
            raise HTTPException(403, "only a key with the scope admin may read the audit log")
        after, limit = read_number(request, "after", 0, _LAST, least=0), read_number(request, "limit", 100, _MOST)
        read = service.audit.read if service.audit else service.store.audit
        entries = await read(after=after, limit=limit)
        data = [{"number": entry.number, "at": entry.at, **entry.data} for entry in entries if _is_wanted(entry, request)]
        last = entries[-1].number if entries else after
        return JsonResponse({"object": "list", "data": data, "last": last, "has_more": len(entries) == limit})

    return [Route("/v1/audit", audit)]


def _is_wanted(entry: AuditEntry, request: Request) -> bool:
    query = request.query_params
    return all(
        any(entry.data.get(field) == query[name] for field in fields) for name, fields in _FILTERS.items() if name in query
    )
