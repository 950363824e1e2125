"""What llama-server and vLLM have besides OpenAI's dialects: `/completion`, `/tokenize`, `/detokenize`, `/props`.

    {"prompt": "Once upon a time", "n_predict": 16}     → {"content": "…", "stop": true, "stop_type": "limit", …}
    {"content": "Hi", "with_pieces": true}              → {"tokens": [{"id": 5, "piece": "Hi"}]}           (llama-server)
    {"prompt": "Hi"} or {"messages": […], "tools": […]} → {"count": 1, "max_model_len": 8192, "tokens": [5]}      (vLLM)

The two shapes of `/tokenize` differ in their fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from callsmith.core.capability.origin import Origin
from callsmith.core.events import ModelEvent, Stopped, Text
from callsmith.core.ports import ModelInfo
from callsmith.core.values import Completion, Json, Request
from callsmith.wire.declare import Field, ModelFields, RequestFields, RequiredField, flag, read_output
from callsmith.wire.extensions import ExtensionFields
from callsmith.wire.fields import Fields
from callsmith.wire.openai.chat import read_request as read_chat
from callsmith.wire.openai.completions import DEFAULT_MAX_TOKENS, prompt_field, read_prompts
from callsmith.wire.openai.output import OutputFields
from callsmith.wire.sampling import SamplingFields, UnsupportedSampling, stop_texts, top_logprobs, write_logprobs

_NO_LIMIT: Final = (-1, -2)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A text to be continued, and whether as a stream. `model` is empty where none was named."""

    model: str
    completion: Completion
    stream: bool = False


def _read_limit(fields: Fields, key: str) -> int | None:
    return None if fields.get(key) in _NO_LIMIT else fields.integer(key, 1)


class CompletionFields(ModelFields, SamplingFields, OutputFields, UnsupportedSampling, component="CompletionRequest"):
    """A text to be continued as it stands."""

    prompt = prompt_field()
    n_predict = Field("integer", _read_limit, "The most tokens of the answer; -1: as many as fit.")
    max_tokens = Field("integer", _read_limit, "As n_predict.")
    stop = stop_texts()
    n_probs = top_logprobs()
    session_id = ExtensionFields.session_id
    refused: ClassVar = {
        "dry_multiplier": (0,),
        "lora": ([],),
        "mirostat": (0,),
        "post_sampling_probs": (False,),
        "return_tokens": (False,),
        "xtc_probability": (0,),
    }


def read_completion(body: Json) -> CompletionRequest:
    """The request to `/completion`; a UsageError names the field that is wrong."""
    fields = CompletionFields.of(body, "")
    fields.refuse_unsupported()
    (prompt, *more) = fields.prompt
    if more:
        raise fields.error("prompt", "one at a time: /v1/completions takes several")
    has_limit = fields.get("n_predict") is not None
    limit = fields.n_predict if has_limit else fields.max_tokens
    if not has_limit and fields.get("max_tokens") is None:
        limit = DEFAULT_MAX_TOKENS
    sampling = fields.read_sampling(limit, fields.stop, fields.n_probs or None)
    completion = Completion(prompt, sampling, read_output(fields), Origin(fields.session_id or ""))
    return CompletionRequest(fields.model or "", completion, fields.stream or False)


class LlamaCompletionWriter:
    """Events to what `/completion` sends. `whole` is the answer that is not a stream."""

    def __init__(self, model: str, prompt: str) -> None:
        self._model = model
        self._prompt = prompt
        self._texts: list[str] = []
        self._logprobs: list[Json] = []
        self._end: dict[str, Json] = {}

    def write(self, event: ModelEvent) -> list[dict[str, Json]]:
        match event:
            case Text(text, logprobs) if text:
                probabilities = write_logprobs(logprobs)
                self._texts.append(text)
                self._logprobs += probabilities
                return [{"index": 0, "content": text, "stop": False, **_probabilities(probabilities)}]
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


def _probabilities(logprobs: list[Json]) -> dict[str, Json]:
    return {"completion_probabilities": logprobs} if logprobs else {}


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


class TokenizeFields(RequestFields, component="VllmTokenize"):
    """A text whose tokens are wanted, as vLLM asks."""

    prompt = RequiredField("string", Fields.text)
    model = ModelFields.model
    add_special_tokens = flag("Whether the prompt begins as the model's prompts do; it does, unless false.")
    return_token_strs = flag("Whether the texts of the tokens are wanted.")


class NativeTokenizeFields(RequestFields, component="NativeTokenize"):
    """A text whose tokens are wanted, as llama-server asks."""

    content = RequiredField("string", Fields.text)
    model = ModelFields.model
    add_special = flag("Whether the text begins as the model's prompts do.")
    parse_special = flag("Whether special tokens in the text are such; they are, unless false.")
    with_pieces = flag("Whether the texts of the tokens are wanted.")


def read_tokenize(body: Json) -> TokenizeRequest:
    """The request to `/tokenize`, in either shape."""
    fields, native = TokenizeFields.of(body, ""), NativeTokenizeFields.of(body, "")
    model, pieces = fields.model or "", fields.return_token_strs or False
    if fields.get("messages") is not None:
        return TokenizeRequest(model, request=read_chat({**fields.data, "model": model or "any"}).request, pieces=pieces)
    if fields.get("prompt") is not None:
        return TokenizeRequest(model, fields.prompt, bos=fields.add_special_tokens is not False, pieces=pieces)
    if fields.get("content") is None:
        raise fields.error("prompt", "is required; or content, or messages")
    return TokenizeRequest(
        model,
        native.content,
        bos=native.add_special or False,
        specials=native.parse_special is not False,
        pieces=native.with_pieces or False,
        native=True,
    )


def write_tokens(request: TokenizeRequest, tokens: Sequence[int], texts: Sequence[bytes], context: int | None) -> dict[str, Json]:
    """The answer of `/tokenize`; `texts` are those of the tokens."""
    if not request.native:
        pieces = [text.decode("utf-8", "replace") for text in texts] if request.pieces else None
        return {"count": len(tokens), "max_model_len": context, "tokens": list(tokens), "token_strs": pieces}
    if not request.pieces:
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


def _read_ids(fields: Fields, key: str) -> tuple[int, ...]:
    if fields.get(key) == []:
        return ()
    (tokens, *more) = read_prompts(Fields({"prompt": fields.array(key)}), "prompt")
    if more or isinstance(tokens, str):
        raise fields.error(key, "expected the ids of tokens")
    return tokens


class DetokenizeFields(RequestFields):
    """Tokens whose text is wanted."""

    tokens = RequiredField("integer[]", _read_ids)
    model = ModelFields.model


def read_detokenize(body: Json) -> tuple[str, tuple[int, ...]]:
    """The model, if one was named, and the tokens."""
    fields = DetokenizeFields.of(body, "")
    return fields.model or "", fields.tokens


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
