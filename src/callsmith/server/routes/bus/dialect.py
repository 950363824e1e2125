"""Errors as callers of the bus read them: `{"error": "not_found", "message": "…"}`."""

from callsmith.core.errors import Unavailable
from callsmith.server.http.dialects import Dialect
from callsmith.wire.capability.errors import BusError, as_bus_error, status_of
from callsmith.wire.capability.errors import write_error as write_body
from callsmith.wire.capability.requests import REQUEST_ID
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


def write_error(error: BaseException) -> Failure:
    """The response to an exception."""
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
