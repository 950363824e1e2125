"""What goes wrong, told in the words of whoever asked, with the request's id."""

import logging
from math import ceil

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from callsmith.core.errors import CallsmithError, QueueFull
from callsmith.server.http.dialects import dialect_of
from callsmith.server.http.request_context import current_request
from callsmith.server.http.streams import JsonResponse
from callsmith.wire.errors import Failure

_log = logging.getLogger(__name__)


async def on_error(request: Request, error: Exception) -> Response:
    """What was raised; what nobody foresaw is logged, and only named to the client."""
    if not isinstance(error, CallsmithError):
        _log.error("a request failed", exc_info=error)
    response = _response(dialect_of(request).write_error(error))
    if isinstance(error, QueueFull):
        response.headers["retry-after"] = str(max(1, ceil(error.seconds)))
    return response


async def on_http_error(request: Request, error: Exception) -> Response:
    """A request that leads nowhere, or is not let in."""
    assert isinstance(error, HTTPException)  # registered for nothing else
    words = {404: f"unknown path: {request.url.path}", 405: f"{request.method} is not possible on {request.url.path}"}
    response = _response(dialect_of(request).write_failure(error.status_code, words.get(error.status_code, error.detail)))
    response.headers.update(error.headers or {})
    return response


async def on_disconnect(_: Request, __: Exception) -> Response:
    """The client has left."""
    return Response(status_code=499)  # nobody reads it; 499 is what proxies log for this


def _response(failure: Failure) -> Response:
    exchange = current_request()
    body = {**failure.body, "request_id": exchange.id} if exchange else failure.body
    return JsonResponse(body, status_code=failure.status)
