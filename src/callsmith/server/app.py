"""The server: `uvicorn.run(create_app({"qwen": model}, tools=Functions(weather)))`."""

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import CallsmithError, UsageError
from callsmith.core.ports import Model, Toolset
from callsmith.server import anthropic, openai_chat, openai_responses
from callsmith.server.dialects import dialect_of
from callsmith.server.service import Service, Settings
from callsmith.server.store import SqliteStore, Store
from callsmith.server.transport import ClientGone, JsonResponse
from callsmith.wire.openai import Failure

STANDARD_SETTINGS = Settings()


def create_app(
    models: Mapping[str, Model],
    *,
    tools: Toolset | None = None,
    settings: Settings = STANDARD_SETTINGS,
    store: Store | None = None,
) -> Starlette:
    """The ASGI application that serves these models, and runs these tools for requests that bring none of their own.

    What has to be remembered is in the store; if none is given, in memory.
    """
    if not models:
        raise UsageError("a server needs at least one model")
    service = Service(models, tools, settings, store=store or SqliteStore())
    return Starlette(
        routes=[
            Route("/health", _health),
            *openai_chat.routes(service),
            *openai_responses.routes(service),
            *anthropic.routes(service),
        ],
        exception_handlers={
            CallsmithError: _on_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_gone,
            ClientGone: _on_gone,
            Exception: _on_error,
        },
    )


async def _health(_: Request) -> Response:
    return JsonResponse({"status": "ok"})


async def _on_error(request: Request, error: Exception) -> Response:
    return _response(dialect_of(request).error(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # registered for nothing else
    words = {404: f"unknown path: {request.url.path}", 405: f"{request.method} is not possible on {request.url.path}"}
    response = _response(dialect_of(request).failure(error.status_code, words.get(error.status_code, error.detail)))
    response.headers.update(error.headers or {})
    return response


async def _on_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it; 499 is what proxies log for this


def _response(failure: Failure) -> Response:
    return JsonResponse(failure.body, status_code=failure.status)
