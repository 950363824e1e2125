"""Paths of other servers that are not served here: the error says where to go."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.server.service import Service
from callsmith.wire.schemas.not_served import NOT_SERVED


def routes(service: Service) -> list[Route]:
    async def refuse(request: Request) -> Response:
        # Not 501: clients would ask again, and wait in between.
        raise HTTPException(404, f"{request.url.path} is not served here: {NOT_SERVED[request.url.path]}")

    return [Route(path, refuse, methods=["GET", "POST"]) for path in NOT_SERVED]
