"""What the Anthropic dialect shares: error bodies, the list of models, token counts."""

from collections.abc import Iterable

from callsmith.core.errors import UsageError
from callsmith.core.values import Json, Usage
from callsmith.wire.errors import Failure, describe_error
from callsmith.wire.fields import Fields, as_count, make_usage
from callsmith.wire.model_list import ListedModel

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUSES = {503: 529}  # where this API has a number of its own


class ThreadsUnsupported(UsageError):
    """A request wants its history stored here. On this error, clients send the whole history again, without `thread`."""

    def __init__(self) -> None:
        super().__init__("thread: conversations are not stored here; send the whole history without it", field="thread")


def write_failure(status: int, message: str, *, details: Json = None) -> Failure:
    """`{"type": "error", "error": {"type", "message"}}`."""
    status = _STATUSES.get(status, status)
    error = {"type": _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error"), "message": message}
    return Failure(status, {"type": "error", "error": error if details is None else {**error, "details": details}})


def write_error(error: BaseException) -> Failure:
    """An exception as the client may see it."""
    known = describe_error(error)
    threads = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    details = threads if isinstance(error, ThreadsUnsupported) else None
    return write_failure(known.status, known.message, details=details)


def write_model(model: ListedModel) -> dict[str, Json]:
    """A model in the list of models, with what it can do."""
    label = f"{model.name} ({model.alias_of})" if model.alias_of else model.name
    return {
        "type": "model",
        "id": model.name,
        "display_name": label,
        "created_at": model.created_at,
        "lifecycle": "active",
        "max_input_tokens": model.info.context,
        "max_tokens": model.info.context,
        "capabilities": _write_capabilities(thinks=model.info.thinks, sees=model.info.reads_images),
    }


def _write_capabilities(*, thinks: bool, sees: bool) -> dict[str, Json]:
    """All capabilities that this API has names for; what it takes for thinking is taken of every model."""
    yes, no = {"supported": True}, {"supported": False}
    types = {"adaptive": yes, "between_tools": no, "disabled": yes, "enabled": yes}
    return {
        "batch": no,
        "citations": no,
        "code_execution": no,
        "context_management": no,
        "effort": {"supported": False, "low": no, "medium": no, "high": no, "xhigh": no, "max": no},
        "image_input": {"supported": sees},
        "pdf_input": no,
        "server_tools": {"supported": False, "code_execution": no, "web_search": no},
        "structured_outputs": yes,
        "thinking": {"supported": thinks, "types": types},
    }


def write_models(models: Iterable[ListedModel]) -> dict[str, Json]:
    entries = [write_model(model) for model in models]
    ids = [model["id"] for model in entries] or [None]
    return {"data": entries, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


def write_usage(usage: Usage) -> dict[str, Json]:
    """Token counts; in this API, tokens from the cache are not part of the input tokens."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def read_usage(fields: Fields) -> Usage:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    prompt = [as_count(fields.integer(name)) for name in names]
    details = fields.object("output_tokens_details")
    reasoning = details.integer("thinking_tokens") if details else 0
    return make_usage(sum(prompt), fields.integer("output_tokens"), prompt[-1], reasoning)
