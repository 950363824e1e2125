"""Errors of the bus on the wire, and their HTTP status: `{"error": "rate_limited", "message": "…", "retry_after_ms": 500}`."""

from typing import cast

from callsmith.core.errors import CallFailed, LimitReached, ModelError, QueueFull, RateLimited, TimedOut, UsageError
from callsmith.core.values import Json
from callsmith.wire.errors import describe_error
from callsmith.wire.fields import Fields

STATUS: dict[str, int] = {
    "bad_request": 400,
    "schema_mismatch": 400,
    "schema_invalid": 400,
    "namespace_violation": 400,
    "invalid_signature": 401,
    "unauthorized": 401,
    "token_invalid": 401,
    "token_revoked": 401,
    "revoked": 403,
    "token_scope_insufficient": 403,
    "federation_forbidden": 403,
    "not_found": 404,
    "not_federated": 404,
    "timeout": 408,
    "cancelled": 408,
    "expired": 410,
    "token_expired": 410,
    "upgrade_required": 426,
    "rate_limited": 429,
    "capacity_exceeded": 429,
    "internal_error": 500,
    "not_implemented": 501,
    "partition": 503,
}


class BusError(CallFailed):
    """A call of a capability has failed; `code` is one of `STATUS`: bad_request, timeout, token_expired, …

    `has_run`: its handler had begun, and may have done what is not to be done twice. A code such as rate_limited is then that of
    a call that the handler has made, and does not mean that nothing was done.
    """

    has_run = False

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later; after an internal_error it may too, but only an idempotent one is repeated."""
        return self.code in ("timeout", "partition", "capacity_exceeded", "rate_limited")


def write_error(error: BaseException) -> dict[str, Json]:
    """The body of an error, also of one that is not the bus's own."""
    known = as_bus_error(error)
    body: dict[str, Json] = {"error": known.code, "message": known.message}
    if known.seconds is not None:
        body["retry_after_ms"] = round(known.seconds * 1000)
    if known.has_run:
        body["has_run"] = True
    return body


def status_of(error: BusError) -> int:
    return STATUS.get(error.code, 500)


def read_error(body: Json) -> BusError:
    """The error that another node has sent. What is no error code becomes an internal_error."""
    fields = Fields(cast(dict[str, Json], body) if isinstance(body, dict) else {})
    code, after = fields.get("error"), fields.get("retry_after_ms")
    message = fields.get("message")
    seconds = after / 1000 if isinstance(after, int | float) and not isinstance(after, bool) and after >= 0 else None
    known = code if isinstance(code, str) and code in STATUS else "internal_error"
    error = BusError(known, message if isinstance(message, str) else "", seconds=seconds, sent=True)
    error.has_run = fields.get("has_run") is True
    return error


def as_bus_error(error: BaseException) -> BusError:
    """Any exception as an error of the bus; what is not meant for callers is only called an internal error."""
    match error:
        case BusError():
            return error
        case QueueFull() | RateLimited():
            code = "rate_limited" if isinstance(error, RateLimited) else "capacity_exceeded"
            return BusError(code, str(error), seconds=error.seconds)
        case LimitReached():
            return BusError("bad_request", str(error))
        case UsageError():
            return BusError("bad_request", describe_error(error).message)
        case TimedOut() | TimeoutError():
            return BusError("timeout", "there was no answer in time")
        case ModelError():
            return BusError("internal_error", describe_error(error).message)
        case _:
            return BusError("internal_error", "internal error; the provider's log says more")
