"""`GET /openapi.json`. It needs a key where the rest does."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.server.http.streams import JsonResponse
from callsmith.server.routes.openapi.document import write_document
from callsmith.server.service import Service


def routes(service: Service) -> list[Route]:
    """The routes."""

    async def document(request: Request) -> Response:
        return JsonResponse(write_document(request.app.routes, has_keys=bool(service.settings.keys)))

    return [Route("/openapi.json", document)]
