"""What the OpenAI dialects share: error bodies, the list of models, token counts."""

from collections.abc import Iterable

from callsmith.core.errors import UsageError
from callsmith.core.values import Json, Sampling, Usage
from callsmith.wire.errors import PROMPT_TOO_LONG, Failure, describe_error
from callsmith.wire.fields import Fields, make_usage, without_none
from callsmith.wire.model_list import ListedModel


class NotStored(UsageError):
    """A response, a conversation or an item that is not, or no longer, known here."""

    def __init__(self, id: str, *, previous: bool = False, kind: str = "Response") -> None:
        which = "Previous response" if previous else kind
        super().__init__(f"{which} with id '{id}' not found.", field="previous_response_id" if previous else None)
        self.previous = previous


def write_failure(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Failure:
    """`{"error": {"message", "type", "param", "code"}}`."""
    kind = {429: "rate_limit_error"}.get(status, "invalid_request_error" if status < 500 else "server_error")
    return Failure(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})


def write_error(error: BaseException, prompt: str = "messages") -> Failure:
    """An exception as the client may see it; `prompt` is the field of the request that the model's prompt is made of."""
    if isinstance(error, NotStored) and not error.previous:
        return write_failure(404, str(error))
    code = "previous_response_not_found" if isinstance(error, NotStored) else None
    known = describe_error(error)
    param = prompt if known.code == PROMPT_TOO_LONG else known.param
    return write_failure(known.status, known.message, param=param, code=code or known.code)


def write_error_event(failure: Failure) -> dict[str, Json]:
    """An error in place of an answer, where answers are WebSocket messages; there a code is wanted in any case."""
    error = failure.body["error"]
    return {"type": "error", "status": failure.status, "error": {**error, "code": error["code"] or error["type"]}}


def write_model(model: ListedModel) -> dict[str, Json]:
    """A model in the list of models. The length of its context is where vLLM has it, and what else it can do is ours."""
    info = model.info
    about = {
        "format": info.format,
        "tools": True,
        "thinking": info.thinks,
        "loaded": model.is_loaded,
        "alias_of": model.alias_of or None,
    }
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "callsmith",
        "max_model_len": info.context,
        "callsmith": without_none(about),
    }


def write_models(models: Iterable[ListedModel]) -> dict[str, Json]:
    return {"object": "list", "data": [write_model(model) for model in models]}


def write_usage(usage: Usage) -> dict[str, Json]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def read_usage(fields: Fields, input: str = "prompt", output: str = "completion") -> Usage:
    """Token counts; `input` and `output` are the names they have in the dialect."""
    details, output_details = fields.object(f"{input}_tokens_details"), fields.object(f"{output}_tokens_details")
    return make_usage(
        fields.integer(f"{input}_tokens"),
        fields.integer(f"{output}_tokens"),
        details.integer("cached_tokens") if details else 0,
        output_details.integer("reasoning_tokens") if output_details else 0,
    )


def write_sampling(sampling: Sampling) -> dict[str, Json]:
    """The sampling in effect: clients want numbers, and where a model does not say, it samples as its probabilities are."""
    temperature, top_p = sampling.temperature, sampling.top_p
    return {
        "temperature": 1.0 if temperature is None else temperature,
        "top_p": 1.0 if top_p is None else top_p,
        "frequency_penalty": sampling.frequency_penalty or 0.0,
        "presence_penalty": sampling.presence_penalty or 0.0,
    }


def write_response_usage(usage: Usage) -> dict[str, Json]:
    """The same in Responses."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
