"""`GET /openapi.json`, which needs a key where the rest does; `GET /docs`: a page that shows it, and asks for the key.

The document describes the routes of the server by the tables of `wire/schemas`. A route that no table knows, such as one of a
plug-in, is there with its path and method.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pkgutil import iter_modules

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from callsmith.core.values import Json
from callsmith.server.http.streams import JsonResponse
from callsmith.server.routes.page import page_file
from callsmith.server.service import Service
from callsmith.wire import schemas
from callsmith.wire.declare.notation import Schema, parse_types
from callsmith.wire.schemas import Operation, term_schema

_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_JSON = "application/json"


def routes(service: Service) -> list[Route]:
    async def document(request: Request) -> Response:
        return JsonResponse(write_document(request.app.routes, has_keys=bool(service.settings.keys)))

    async def page(request: Request) -> Response:
        return page_file(request, "docs.html")

    docs_page = [Route("/docs", page)] if service.settings.page else []
    return [Route("/openapi.json", document), *docs_page]


def write_document(routes: Iterable[BaseRoute], *, has_keys: bool) -> dict[str, Json]:
    known, components = _tables()
    paths: dict[str, dict[str, Json]] = {}
    for method, path in _list_served(routes):
        tag, operation = known.get(f"{method} {path}", ("Others", Operation(f"{method} {path}")))
        paths.setdefault(path, {})[method.lower()] = {"tags": [tag], **_write_operation(f"{method} {path}", operation)}
    security = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}} if has_keys else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "callsmith", "version": version("callsmith")},
        "paths": paths,
        "components": {"schemas": components, **security},
        **({"security": [{"key": []}]} if has_keys else {}),
    }


def operations() -> dict[str, Operation]:
    """What is described, by method and path: `POST /v1/messages`."""
    return {at: operation for at, (_, operation) in _tables()[0].items()}


@cache
def _tables() -> tuple[dict[str, tuple[str, Operation]], dict[str, Schema]]:
    """The operations of all tables, by method and path and with their tags; and all schemas."""
    tables = [vars(import_module(f"{schemas.__name__}.{module.name}")) for module in iter_modules(schemas.__path__)]
    operations = {at: (table["TITLE"], operation) for table in tables for at, operation in table.get("OPERATIONS", {}).items()}
    requests = {fields.component: fields.schema() for table in tables for fields in table.get("REQUESTS", ())}
    return operations, requests | {
        name: schema for table in tables for name, schema in parse_types(table.get("TYPES", "")).items()
    }


def _list_served(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
    """The methods and paths of these routes; a WebSocket begins with a GET."""
    for route in routes:
        if isinstance(route, Route | WebSocketRoute):
            methods = route.methods if isinstance(route, Route) else {"GET"}
            path = _PARAMETER.sub(r"{\1}", route.path)
            yield from ((method, path) for method in sorted(methods or ()) if method != "HEAD")


def _write_operation(at: str, operation: Operation) -> dict[str, Json]:
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in _PARAMETER.findall(at)]
    in_query = [
        {"name": parameter.name, "in": "query", "description": parameter.about, "schema": parameter.schema()}
        for parameter in operation.parameters
    ]
    example = {} if operation.example is None else {"example": operation.example}
    body = operation.body is not None and {
        "required": True,
        "content": {_JSON: {"schema": term_schema(operation.body), **example}},
    }
    content: dict[str, Json] = {}
    if operation.answer is not None:
        content[operation.answer_media] = {"schema": term_schema(operation.answer)}
    if operation.frame is not None:
        content[operation.media] = {"schema": term_schema(operation.frame)}
    fields: dict[str, Json] = {
        "operationId": re.sub(r"\W+", "_", at.lower()).strip("_"),
        "summary": operation.summary,
        "description": operation.about,
        "parameters": [*in_path, *in_query],
        "requestBody": body,
        "responses": {
            "200": {"description": "The answer.", **({"content": content} if content else {})},
            "default": {"description": "An error.", "content": {_JSON: {"schema": term_schema(operation.error)}}},
        },
    }
    return {name: value for name, value in fields.items() if value}
