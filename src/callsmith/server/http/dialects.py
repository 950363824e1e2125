"""Whose words are used where paths are shared: in errors, and in the list of models."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.requests import Request

from callsmith.core.values import Json
from callsmith.wire.anthropic import common as anthropic
from callsmith.wire.ollama import requests as ollama
from callsmith.wire.openai import common as openai
from callsmith.wire.openai.common import Failure


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a dialect says what went wrong, and which models there are since when."""

    error: Callable[[BaseException], Failure]
    failure: Callable[[int, str], Failure]
    model: Callable[[str, int], Json]
    models: Callable[[Iterable[str], int], Json]


OPENAI = Dialect(openai.write_error, openai.write_failure, openai.write_model, openai.write_models)
ANTHROPIC = Dialect(anthropic.write_error, anthropic.write_failure, anthropic.write_model, anthropic.write_models)
OLLAMA = Dialect(ollama.write_error, ollama.write_failure, openai.write_model, openai.write_models)  # it shares /v1/models

_BY_PATH = {"/v1/messages": ANTHROPIC, "/api": OLLAMA}


def dialect_of(request: Request) -> Dialect:
    """The dialect of who asks: by the beginning of the path, or by a header; otherwise OpenAI's."""
    path = request.url.path
    for start, dialect in _BY_PATH.items():
        if path == start or path.startswith(f"{start}/"):
            return dialect
    return ANTHROPIC if "anthropic-version" in request.headers else OPENAI  # only Anthropic's clients send it
