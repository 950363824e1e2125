"""`GET /openapi.json`, which needs a key where the rest does; `GET /docs`: a page that shows it, and asks for the key."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.server.http.streams import JsonResponse
from callsmith.server.routes.openapi.document import write_document
from callsmith.server.routes.page import page_file
from callsmith.server.service import Service


def routes(service: Service) -> list[Route]:
    """The routes."""

    async def document(request: Request) -> Response:
        return JsonResponse(write_document(request.app.routes, has_keys=bool(service.settings.keys)))

    async def page(request: Request) -> Response:
        return page_file(request, "docs.html")

    shown = [Route("/docs", page)] if service.settings.page else []
    return [Route("/openapi.json", document), *shown]
