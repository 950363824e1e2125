"""Error responses in the dialect of the client, with the id of the request."""

import logging
from math import ceil

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from callsmith.core.errors import CallFailed, CallsmithError, QueueFull, RateLimited, Rejected, Unavailable
from callsmith.server.http.dialects import dialect_of
from callsmith.server.http.request_context import current_request
from callsmith.server.http.streams import JsonResponse
from callsmith.wire.errors import Failure

_log = logging.getLogger(__name__)


async def on_error(request: Request, error: Exception) -> Response:
    """The response to an exception; an unexpected one is logged, and the client sees only its kind."""
    if not isinstance(error, CallsmithError):
        _log.error("a request failed", exc_info=error)
    response = _response(dialect_of(request).write_error(error))
    if isinstance(error, QueueFull | RateLimited | Rejected | Unavailable | CallFailed) and error.seconds is not None:
        response.headers["retry-after"] = str(max(1, ceil(error.seconds)))
    if isinstance(error, RateLimited):
        response.headers.update(error.headers)
    return response


async def on_http_error(request: HTTPConnection, error: Exception) -> Response:
    """The response to a request with an unknown path or method, or without access."""
    assert isinstance(error, HTTPException)  # registered for nothing else
    path, method = request.url.path, request.scope.get("method")
    messages = {404: f"unknown path: {path}", 405: f"{method} is not possible on {path}"}
    response = _response(dialect_of(request).write_failure(error.status_code, messages.get(error.status_code, error.detail)))
    response.headers.update(error.headers or {})
    return response


async def refuse(scope: Scope, receive: Receive, send: Send, error: HTTPException) -> None:
    """Answer a request, or a WebSocket that has not been accepted, with an error; where the HTTP server can send one."""
    response = await on_http_error(HTTPConnection(scope), error)
    if scope["type"] == "http":
        await response(scope, receive, send)
    elif "websocket.http.response" in scope.get("extensions", {}):
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await WebSocket(scope, receive, send).close(1008)


async def on_disconnect(_: Request, __: Exception) -> Response:
    """The response when the client has disconnected."""
    return Response(status_code=499)  # nobody reads it; 499 is what proxies log for this


def _response(failure: Failure) -> Response:
    context = current_request()
    body = {**failure.body, "request_id": context.id} if context else failure.body
    return JsonResponse(body, status_code=failure.status)
