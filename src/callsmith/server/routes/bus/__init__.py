"""The capability bus over HTTP, SSE and WebSocket: calls, what can be called, and the trace of calls.

Errors read `{"error": "not_found", "message": "…"}`.
"""

from collections.abc import AsyncIterator

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from callsmith.bus.descriptor import write_descriptor
from callsmith.bus.port import Offer
from callsmith.bus.trace import CallTrace
from callsmith.core.capability.authority import is_trusted
from callsmith.core.closing import closing
from callsmith.core.errors import Unavailable
from callsmith.core.values import Json
from callsmith.server.http.errors import Dialect
from callsmith.server.http.pagination import read_number
from callsmith.server.http.request_context import caller, is_admin
from callsmith.server.http.streams import JsonResponse, unless_disconnected
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.routes.bus.connection import AuthorizedCall, CallConnection, authorize
from callsmith.server.service import Service
from callsmith.wire.capability.envelopes import write_version
from callsmith.wire.capability.errors import BusError, as_bus_error, status_of
from callsmith.wire.capability.errors import write_error as write_body
from callsmith.wire.capability.frames import encode_json, encode_sse, error_frame
from callsmith.wire.capability.requests import PATH, REQUEST_ID, read_call
from callsmith.wire.errors import Failure

_CODES = {
    401: "unauthorized",
    403: "unauthorized",
    404: "not_found",
    408: "timeout",
    426: "upgrade_required",
    429: "rate_limited",
    503: "partition",
}

_SSE = "text/event-stream"
_MOST_TRACED = 1000


def write_error(error: BaseException) -> Failure:
    is_away = isinstance(error, Unavailable) and error.retryable
    known = BusError("partition", str(error), seconds=1) if is_away else as_bus_error(error)
    return Failure(status_of(known), write_body(known))


def write_failure(status: int, message: str) -> Failure:
    """The response to what never got to the bus."""
    code = _CODES.get(status, "bad_request" if status < 500 else "internal_error")
    return Failure(status, write_body(BusError(code, message)))


DIALECT = Dialect(
    write_error,
    write_failure,
    paths=("/bus/v1",),
    error_event="error",
    id_header=REQUEST_ID,
    wrappers=("envelope", "body", "input"),
)


def routes(service: Service) -> list[BaseRoute]:
    bodies, part = service.bodies, service.part(BusPart)

    async def call(request: Request) -> Response:
        body = await bodies.read(request)
        sent = await bodies.read_with(read_call, request.headers.items(), body)
        authorized = authorize(part, service, sent)
        wants_frames = _SSE in request.headers.get("accept", "") if sent.stream is None else sent.stream
        if wants_frames and authorized.streams:
            return service.stream(_events(authorized), lambda error: encode_sse(error_frame(error)))
        answer = await unless_disconnected(request.receive, authorized.answer())
        return Response(encode_json(answer), media_type="application/json")

    async def connect(socket: WebSocket) -> None:
        await CallConnection(socket, part, service).serve()

    async def capabilities(request: Request) -> Response:
        authority = service.tools.authority_of(caller())
        descriptions: list[Json] = []
        for offer in part.bus.offers():
            known = offer.descriptor
            may_call = authority.may_call(known.name) and is_trusted(authority.trust, known.trust_required)
            descriptions += [_describe(offer, may_call)] if may_call or is_admin() else []
        return JsonResponse({"node": part.bus.node, "capabilities": descriptions})

    async def trace(request: Request) -> Response:
        if not is_admin():
            raise HTTPException(403, "only a key with the scope admin may see the calls of others")
        limit = read_number(request, "limit", 50, _MOST_TRACED)
        return JsonResponse({"calls": [_write_trace(call) for call in part.bus.trace.recent(limit)]})

    return [
        Route(PATH, call, methods=["POST"]),
        WebSocketRoute(PATH, connect),
        Route("/bus/v1/capabilities", capabilities),
        Route("/bus/v1/trace", trace),
    ]


async def _events(call: AuthorizedCall) -> AsyncIterator[bytes]:
    """The frames as server-sent events. An error that is the first of them is raised: it can be the response itself."""
    async with closing(call.frames()) as frames:
        is_first = True
        async for frame in frames:
            if is_first:
                frame.raise_error()
            is_first = False
            yield encode_sse(frame)


def _describe(offer: Offer, may_call: bool) -> dict[str, Json]:
    descriptor = offer.descriptor
    return {
        **write_descriptor(descriptor),
        "schema_hash": descriptor.schema_hash,
        "node": offer.node,
        "is_local": offer.is_local,
        "callable": may_call,
    }


def _write_trace(call: CallTrace) -> dict[str, Json]:
    """A call of the trace. Its token is a secret."""
    authority = call.authority
    return {
        "at": call.at,
        "request_id": call.request_id,
        "trace_id": authority.trace_id or call.request_id,
        "capability": call.capability,
        "version": write_version(call.version),
        "subject": authority.subject,
        "via": list(authority.via),
        "trust": authority.trust,
        "depth": authority.depth,
        "node": call.node,
        "is_local": call.is_local,
        "result": call.result,
        "seconds": call.seconds,
    }
