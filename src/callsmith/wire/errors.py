"""Exceptions as clients may see them, before a dialect writes them: an HTTP status, a message and a code."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from callsmith.core.errors import (
    CallFailed,
    GrammarFailed,
    LimitReached,
    ModelError,
    PromptTooLong,
    Rejected,
    StoreUnavailable,
    TimedOut,
    Unavailable,
    UnknownName,
    UsageError,
    shorten,
)
from callsmith.core.values import Json

_LONGEST = 4000  # characters of a message
PROMPT_TOO_LONG = "context_length_exceeded"  # the code that clients know
# Types and codes of errors that may not come again.
_PASSING = frozenset(
    {
        "overloaded_error",
        "rate_limit_error",
        "timeout_error",
        "server_error",
        "rate_limit_exceeded",
        "timeout",
        "model_unavailable",
    }
    | {"429", "500", "502", "503", "504", "529"}
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP status and the body that explains it."""

    status: int
    body: dict[str, Json]


@dataclass(frozen=True, slots=True)
class ErrorDescription:
    """What a client may know of an exception. `param` is the field of the request that is wrong."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None


def describe_error(error: BaseException) -> ErrorDescription:
    """The exception as a client may see it, in a bounded number of words, whatever it quotes."""
    described = _describe_error(error)
    if len(described.message) <= _LONGEST and len(described.param or "") <= _LONGEST:
        return described
    param = None if described.param is None else shorten(described.param, _LONGEST)
    return replace(described, message=shorten(described.message, _LONGEST), param=param)


def _describe_error(error: BaseException) -> ErrorDescription:
    """The description. What is not meant for clients is only called an internal error."""
    match error:
        case UnknownName(kind="model"):
            return ErrorDescription(404, str(error), "model", "model_not_found")
        case PromptTooLong():
            return ErrorDescription(400, str(error), code=PROMPT_TOO_LONG)
        case UsageError():
            return ErrorDescription(400, str(error), error.field)
        case CallFailed():
            return ErrorDescription(502, error.message, code=error.code)
        case LimitReached():
            return ErrorDescription(429, str(error), code=error.limit)
        case Rejected():
            passed_on = {429: 429, 503: 503, 529: 503}  # they say when to come again; all else is the upstream's own affair
            return ErrorDescription(passed_on.get(error.status, 502), error.message, code="upstream_error")
        case TimedOut():
            return ErrorDescription(504, error.message, code="timeout")
        case StoreUnavailable():
            return ErrorDescription(503, error.message, code="store_unavailable")
        case Unavailable():
            return ErrorDescription(503, error.message, code="model_unavailable")
        case GrammarFailed():
            return ErrorDescription(400, error.message, code="grammar_failed")
        case ModelError():
            return ErrorDescription(503 if error.retryable else 500, error.message, code="model_error")
        case _:
            return ErrorDescription(500, "internal error; the server's log says more", code="internal_error")


def reported_error(error: Json) -> str:
    """The message in an error that another server has sent: a text, or an object with one."""
    message: Json = cast(Mapping[str, Json], error).get("message") if isinstance(error, Mapping) else error
    return message if isinstance(message, str) and message else "the server reports an error"


def sent_error(error: Json) -> ModelError:
    """The error that another server has sent in the middle of an answer."""
    kind: Json = cast(Mapping[str, Json], error).get("type") if isinstance(error, Mapping) else None
    code: Json = cast(Mapping[str, Json], error).get("code") if isinstance(error, Mapping) else None
    return ModelError(reported_error(error), retryable=bool({kind, str(code)} & _PASSING))
