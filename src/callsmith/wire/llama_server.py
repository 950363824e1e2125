"""What llama-server and vLLM have besides OpenAI's dialects: `/completion`, `/tokenize`, `/detokenize`, `/props`.

    {"prompt": "Once upon a time", "n_predict": 16}     → {"content": "…", "stop": true, "stop_type": "limit", …}
    {"content": "Hi", "with_pieces": true}              → {"tokens": [{"id": 5, "piece": "Hi"}]}           (llama-server)
    {"prompt": "Hi"} or {"messages": […], "tools": […]} → {"count": 1, "max_model_len": 8192, "tokens": [5]}      (vLLM)

The two shapes of `/tokenize` are told apart by their fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from callsmith.core.events import ModelEvent, Stopped, Text
from callsmith.core.ports import ModelInfo
from callsmith.core.values import Completion, Json, Request
from callsmith.wire.fields import Fields
from callsmith.wire.logprobs import read_top, write_logprobs
from callsmith.wire.openai.chat import read_request as read_chat
from callsmith.wire.openai.completions import DEFAULT_MAX_TOKENS, read_prompts
from callsmith.wire.openai.output import read_output
from callsmith.wire.sampling import UNSUPPORTED, read_sampling

NEUTRAL: dict[str, tuple[Json, ...]] = {
    **UNSUPPORTED,
    "dry_multiplier": (0,),
    "lora": ([],),
    "mirostat": (0,),
    "post_sampling_probs": (False,),
    "return_tokens": (False,),
    "xtc_probability": (0,),
}
_NO_LIMIT: Final = (-1, -2)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A text to be continued, and whether as a stream. `model` is empty where none was named."""

    model: str
    completion: Completion
    stream: bool = False


def read_completion(body: Json) -> CompletionRequest:
    """The request to `/completion`; a UsageError names the field that is wrong."""
    fields = Fields.of(body, "")
    fields.refuse_unsupported(NEUTRAL)
    (prompt, *more) = read_prompts(fields)
    if more:
        raise fields.error("prompt", "one at a time: /v1/completions takes several")
    limit = next((name for name in ("n_predict", "max_tokens") if fields.get(name) is not None), "n_predict")
    is_unlimited = fields.get(limit) in _NO_LIMIT
    if is_unlimited:
        fields = Fields({**fields.data, limit: None})
    sampling = replace(read_sampling(fields, limit), logprobs=read_top(fields, "n_probs") or None)
    if sampling.max_tokens is None and not is_unlimited:
        sampling = replace(sampling, max_tokens=DEFAULT_MAX_TOKENS)
    completion = Completion(prompt, sampling, read_output(fields), fields.text("session_id") or "")
    return CompletionRequest(fields.text("model") or "", completion, fields.flag("stream") or False)


class CompletionWriter:
    """Events to what `/completion` sends. `whole` is the answer that is not a stream."""

    def __init__(self, model: str, prompt: str) -> None:
        self._model = model
        self._prompt = prompt
        self._texts: list[str] = []
        self._logprobs: list[Json] = []
        self._end: dict[str, Json] = {}

    def write(self, event: ModelEvent) -> list[dict[str, Json]]:
        """What is sent for this event."""
        match event:
            case Text(text, logprobs) if text:
                written = write_logprobs(logprobs)
                self._texts.append(text)
                self._logprobs += written
                return [{"index": 0, "content": text, "stop": False, **_probabilities(written)}]
            case Stopped():
                self._end = {
                    "index": 0,
                    "model": self._model,
                    "prompt": self._prompt,
                    "stop": True,
                    "stop_type": "limit" if event.reason == "length" else "word" if event.matched else "eos",
                    "stopping_word": event.matched,
                    "tokens_evaluated": event.usage.prompt,
                    "tokens_predicted": event.usage.completion,
                    "tokens_cached": event.usage.cached,
                    "truncated": False,
                }
                return [{"content": "", **self._end}]
            case _:
                return []

    def whole(self) -> dict[str, Json]:
        return {"content": "".join(self._texts), **self._end, **_probabilities(self._logprobs)}


def _probabilities(written: list[Json]) -> dict[str, Json]:
    return {"completion_probabilities": written} if written else {}


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """A text or a chat whose tokens are asked for. `pieces`: with their texts. `native`: in the shape of llama-server."""

    model: str
    text: str = ""
    request: Request | None = None
    bos: bool = True
    specials: bool = True
    pieces: bool = False
    native: bool = False


def read_tokenize(body: Json) -> TokenizeRequest:
    """The request to `/tokenize`, in either shape."""
    fields = Fields.of(body, "")
    model, pieces = fields.text("model") or "", fields.flag("return_token_strs") or False
    if fields.get("messages") is not None:
        return TokenizeRequest(model, request=read_chat({**fields.data, "model": model or "any"}).request, pieces=pieces)
    if fields.get("prompt") is not None:
        return TokenizeRequest(
            model, fields.text("prompt") or "", bos=fields.flag("add_special_tokens") is not False, pieces=pieces
        )
    if fields.get("content") is None:
        raise fields.error("prompt", "is required; or content, or messages")
    return TokenizeRequest(
        model,
        fields.text("content") or "",
        bos=fields.flag("add_special") or False,
        specials=fields.flag("parse_special") is not False,
        pieces=fields.flag("with_pieces") or False,
        native=True,
    )


def write_tokens(asked: TokenizeRequest, tokens: Sequence[int], texts: Sequence[bytes], context: int | None) -> dict[str, Json]:
    """The answer of `/tokenize`; `texts` are those of the tokens."""
    if not asked.native:
        shown = [text.decode("utf-8", "replace") for text in texts] if asked.pieces else None
        return {"count": len(tokens), "max_model_len": context, "tokens": list(tokens), "token_strs": shown}
    if not asked.pieces:
        return {"tokens": list(tokens)}
    return {"tokens": [_Token(token, _piece(text)) for token, text in zip(tokens, texts, strict=True)]}


class _Token(msgspec.Struct, gc=False):
    """A token and its text. There may be very many: as dictionaries they would take ten times as long, and as much memory."""

    id: int
    piece: Json


def _piece(text: bytes) -> Json:
    """The text of a token; where it is a part of a character, its bytes."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return list(text)


def read_detokenize(body: Json) -> tuple[str, tuple[int, ...]]:
    """The model, if one was named, and the tokens."""
    fields = Fields.of(body, "")
    if fields.get("tokens") == []:
        return fields.text("model") or "", ()
    (tokens, *more) = read_prompts(Fields({"prompt": fields.array("tokens")}))
    if more or isinstance(tokens, str):
        raise fields.error("tokens", "expected the ids of tokens")
    return fields.text("model") or "", tokens


def write_text(text: str) -> dict[str, Json]:
    """The answer of `/detokenize`: under the name that llama-server gives it, and under vLLM's."""
    return {"content": text, "prompt": text}


def write_props(name: str, info: ModelInfo) -> dict[str, Json]:
    """The answer of `/props`."""
    settings = {"n_ctx": info.context, "temperature": info.sampling.temperature, "top_p": info.sampling.top_p}
    return {
        "model_alias": name,
        "model_path": info.name,
        "chat_template": info.template,
        "default_generation_settings": settings,
        "modalities": {"vision": False, "audio": False},
    }
