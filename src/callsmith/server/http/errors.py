"""Error responses in the dialect of the client, with the id of the request.

A dialect is found by listing `server/routes`: see `DIALECT` in its modules. The application has them in `app.state.dialects`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from callsmith.core.errors import CallFailed, CallsmithError, QueueFull, RateLimited, Rejected, Unavailable
from callsmith.core.values import Json
from callsmith.server.http.request_context import current_request
from callsmith.server.http.streams import JsonResponse, encode
from callsmith.wire.errors import Failure
from callsmith.wire.model_list import ListedModel
from callsmith.wire.openai import common as openai
from callsmith.wire.sse import write_frame

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How clients of one API read errors and the list of models, and which requests are theirs.

    `paths` are the beginnings of paths that no other dialect has. `headers` only its clients send: they decide on
    a path that several dialects have, such as `/v1/models`. `error_event` is the name of the event that ends a stream with an
    error, where the body of the error does not say it. `id_header` is a header for the id of a request, besides ours. `wrappers`
    are fields that hold a request in another one, whose parts are measured like those of any request.
    """

    write_error: Callable[[BaseException], Failure]
    write_failure: Callable[[int, str], Failure]
    paths: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    error_event: str = ""
    id_header: str = ""
    wrappers: tuple[str, ...] = ()
    write_model: Callable[[ListedModel], Json] = openai.write_model
    write_models: Callable[[Iterable[ListedModel]], dict[str, Json]] = openai.write_models

    def write_failure_frame(self, error: BaseException) -> bytes:
        """The last frame of a stream that has failed. Where a dialect's events have names, these are also in their bodies."""
        body = self.write_error(error).body
        return write_frame(encode(body), str(body.get("type", self.error_event)).encode())

    def owns(self, path: str) -> bool:
        """Whether this path is in one of `paths`."""
        return any(path == start or path.startswith(f"{start}/") for start in self.paths)


OPENAI = Dialect(openai.write_error, openai.write_failure)  # also where there is no dialect: `/health`, unknown paths


def dialect_of(request: HTTPConnection) -> Dialect:
    """The dialect of a request: by its path, or else by a header; otherwise OpenAI's."""
    known: Sequence[Dialect] = request.app.state.dialects if "app" in request.scope else ()
    by_path = (dialect for dialect in known if dialect.owns(request.url.path))
    by_header = (dialect for dialect in known if any(header in request.headers for header in dialect.headers))
    return next(by_path, None) or next(by_header, OPENAI)


async def on_error(request: Request, error: Exception) -> Response:
    """The response to an exception; an unexpected one is logged, and the client sees only its kind."""
    if not isinstance(error, CallsmithError):
        _log.error("a request failed", exc_info=error)
    response = write_response(dialect_of(request).write_error(error))
    if isinstance(error, QueueFull | RateLimited | Rejected | Unavailable | CallFailed) and error.seconds is not None:
        response.headers["retry-after"] = str(max(1, ceil(error.seconds)))
    if isinstance(error, RateLimited):
        response.headers.update(error.headers)
    return response


async def on_http_error(request: HTTPConnection, error: Exception) -> Response:
    """The response to a request with an unknown path or method, or without access."""
    assert isinstance(error, HTTPException)  # registered for nothing else
    path, method = request.url.path, request.scope.get("method")
    messages = {"Not Found": f"unknown path: {path}", "Method Not Allowed": f"{method} is not possible on {path}"}
    response = write_response(dialect_of(request).write_failure(error.status_code, messages.get(error.detail, error.detail)))
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


def write_response(failure: Failure) -> Response:
    """The response of a failure, with the id of the request."""
    context = current_request()
    body = {**failure.body, "request_id": context.id} if context else failure.body
    return JsonResponse(body, status_code=failure.status)
