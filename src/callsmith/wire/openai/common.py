"""What the OpenAI dialects share: error bodies, the list of models, token counts."""

from collections.abc import Iterable
from dataclasses import dataclass

from callsmith.core.errors import LimitReached, ModelError, Rejected, TimedOut, Unavailable, UnknownName, UsageError
from callsmith.core.values import Json, Usage
from callsmith.wire.fields import Fields


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP status and the body that explains it."""

    status: int
    body: dict[str, Json]


class NotStored(UsageError):
    """A response that is not, or no longer, known here."""

    def __init__(self, id: str, *, previous: bool = False) -> None:
        which = f"Previous response with id '{id}' not found." if previous else f"Response with id '{id}' not found."
        super().__init__(which, field="previous_response_id" if previous else None)
        self.previous = previous


def write_failure(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Failure:
    """`{"error": {"message", "type", "param", "code"}}`."""
    kind = {429: "rate_limit_error"}.get(status, "invalid_request_error" if status < 500 else "server_error")
    return Failure(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})


def write_error(error: BaseException) -> Failure:
    """An exception as the client may see it. What is not meant for it is only named as an internal error."""
    match error:
        case UnknownName(kind="model"):
            return write_failure(404, str(error), param="model", code="model_not_found")
        case NotStored():
            return _not_stored(error)
        case UsageError():
            return write_failure(400, str(error), param=error.field)
        case LimitReached():
            return write_failure(429, str(error), code=error.limit)
        case Rejected():
            return write_failure(429 if error.status == 429 else 502, error.message, code="upstream_error")
        case TimedOut():
            return write_failure(504, error.message, code="timeout")
        case Unavailable():
            return write_failure(503, error.message, code="model_unavailable")
        case ModelError():
            return write_failure(503 if error.retryable else 500, error.message, code="model_error")
        case _:
            return write_failure(500, "internal error; the server's log says more", code="internal_error")


def _not_stored(error: NotStored) -> Failure:
    if error.previous:
        return write_failure(400, str(error), param=error.field, code="previous_response_not_found")
    return write_failure(404, str(error))


def write_model(name: str, created: int) -> dict[str, Json]:
    return {"id": name, "object": "model", "created": created, "owned_by": "callsmith"}


def write_models(names: Iterable[str], created: int) -> dict[str, Json]:
    return {"object": "list", "data": [write_model(name, created) for name in names]}


def write_usage(usage: Usage) -> dict[str, Json]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def read_usage(fields: Fields, given: str = "prompt", made: str = "completion") -> Usage:
    """Token counts; what was given and what was made have other names in other dialects."""
    details, made_details = fields.object(f"{given}_tokens_details"), fields.object(f"{made}_tokens_details")
    return Usage(
        fields.integer(f"{given}_tokens") or 0,
        fields.integer(f"{made}_tokens") or 0,
        (details.integer("cached_tokens") or 0) if details else 0,
        (made_details.integer("reasoning_tokens") or 0) if made_details else 0,
    )
