"""`POST /v1/completions`: texts that are continued as they stand, and how the answer is written, whole and as a stream.

    {"model": "qwen", "prompt": "Once upon a time", "max_tokens": 16, "echo": true, "logprobs": 2}

A prompt is a text, a list of texts, the ids of tokens, or a list of such. The other fields are those of chat completions:
sampling, penalties, structured output, `n`. `suffix` is refused by name, and so are log probabilities of the prompt.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, TypeAlias, cast

from callsmith.core.capability.origin import Origin
from callsmith.core.events import ModelEvent, Report, Stopped, StopReason, Text
from callsmith.core.values import Completion, Json, TokenLogprob, Usage
from callsmith.wire import declare
from callsmith.wire.extensions import ExtensionFields, write_report
from callsmith.wire.fields import Fields, kind
from callsmith.wire.openai.chat_events import ChatHeading, sum_usage
from callsmith.wire.openai.common import write_usage
from callsmith.wire.openai.output import OutputFields
from callsmith.wire.sampling import SamplingFields, UnsupportedSampling, stop_texts, token_limit, top_logprobs, write_number

MAX_COMPLETIONS = 64  # texts that one request may get, for all its prompts
_OBJECT = "text_completion"
_CUT: dict[StopReason, str] = {"length": "length", "filtered": "content_filter"}
DEFAULT_MAX_TOKENS = 16  # as others have it
Prompts: TypeAlias = tuple[str | tuple[int, ...], ...]  # texts, or the ids of tokens


@dataclass(frozen=True, slots=True)
class CompletionsRequest:
    """What was asked, of which model: one completion for each prompt, each of them `n` times."""

    model: str
    completions: tuple[Completion, ...]
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    echo: bool = False


def read_prompts(fields: Fields, key: str) -> Prompts:
    """The prompts: one text or list of ids, or a list of such."""
    value = fields.get(key)
    if isinstance(value, str):
        return (value,)
    entries = fields.array(key)
    if not entries:
        raise fields.error(key, "is required: a text, the ids of tokens, or a list of such")
    if all(_is_id(entry) for entry in entries):
        return (tuple(entries),)
    prompts: list[str | tuple[int, ...]] = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, str) and not (isinstance(entry, list) and entry and all(map(_is_id, cast(list[Json], entry)))):
            raise fields.error(f"{key}.{index}", f"expected a text or the ids of tokens, got {kind(entry)}")
        prompts.append(entry if isinstance(entry, str) else tuple(cast(list[int], entry)))
    return tuple(prompts)


def _is_id(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def prompt_field() -> declare.RequiredField[Prompts]:
    return declare.RequiredField(
        "string | integer[] | (string | integer[])[]", read_prompts, "A text, the ids of tokens, or a list of such."
    )


class CompletionsFields(
    declare.ModelFields, SamplingFields, OutputFields, declare.StreamFields, UnsupportedSampling, component="CompletionsRequest"
):
    """Texts to be continued as they stand."""

    prompt = prompt_field()
    max_tokens = token_limit(default=DEFAULT_MAX_TOKENS)
    stop = stop_texts()
    n = declare.integer(least=1, most=MAX_COMPLETIONS)
    echo = declare.flag("Whether the prompt stands before the text.")
    logprobs = top_logprobs()
    cache_salt = declare.CacheFields.cache_salt
    session_id = ExtensionFields.session_id
    refused: ClassVar = {"suffix": ("",)}
    ignored: ClassVar = {"user": "callers are told apart by their keys"}


def read_request(body: Json) -> CompletionsRequest:
    """The request in a decoded JSON body; a UsageError names the field that is wrong."""
    fields = CompletionsFields.of(body, "")
    fields.refuse_unsupported()
    prompts, n, echo = fields.prompt, fields.n or 1, fields.echo or False
    if len(prompts) * n > MAX_COMPLETIONS:
        raise fields.error("n" if n > 1 else "prompt", f"asks for {len(prompts) * n} texts, more than {MAX_COMPLETIONS}")
    limit = DEFAULT_MAX_TOKENS if fields.get("max_tokens") is None else fields.max_tokens
    sampling = fields.read_sampling(limit, fields.stop, fields.logprobs)
    if echo and sampling.logprobs is not None:
        raise fields.error("echo", "the tokens of a prompt have no log probabilities here: ask for one of echo and logprobs")
    output, origin = declare.read_output(fields), Origin(fields.session_id or "", fields.cache_salt or "")
    return CompletionsRequest(
        fields.model or "",
        tuple(Completion(prompt, sampling, output, origin) for prompt in prompts),
        n,
        fields.stream or False,
        fields.stream_options or False,
        echo,
    )


@dataclass(slots=True)
class _Choice:
    """One of the texts being written. `offset` is how long it is so far."""

    offset: int = 0
    texts: list[str] = field(default_factory=list[str])
    logprobs: dict[str, list[Json]] | None = None
    reason: str | None = None


class CompletionWriter:
    """Events of several texts to chunks; `prompts` are those that are repeated before them, if any are."""

    def __init__(self, heading: ChatHeading, choices: int, prompts: Sequence[str] = ()) -> None:
        self._heading = heading
        self._choices = [_Choice() for _ in range(choices)]
        self._prompts = prompts
        self._usage, self._report = Usage(), Report()

    def begin(self) -> list[dict[str, Json]]:
        """The chunks that repeat the prompts."""
        return [self._chunk(number, prompt) for number, prompt in enumerate(self._prompts)]

    def write(self, number: int, event: ModelEvent) -> list[dict[str, Json]]:
        match event:
            case Text(text, logprobs) if text:
                return [self._chunk(number, text, logprobs)]
            case Stopped():
                self._usage, self._report = sum_usage(self._usage, event.usage), self._report + event.report
                reason = self._choices[number].reason = _CUT.get(event.reason, "stop")
                return [{**self._chunk(number, "", reason=reason), **write_report(event.report)}]
            case _:
                return []

    def close(self) -> list[dict[str, Json]]:
        """What all of it has cost, where that was asked for."""
        return [{**self._heading.around(_OBJECT, []), "usage": write_usage(self._usage)}] if self._heading.include_usage else []

    def whole(self) -> dict[str, Json]:
        choices: list[Json] = [
            {
                "index": number,
                "text": "".join(choice.texts),
                "logprobs": choice.logprobs,
                "finish_reason": choice.reason or "stop",
            }
            for number, choice in enumerate(self._choices)
        ]
        return {**self._heading.around(_OBJECT, choices), "usage": write_usage(self._usage), **write_report(self._report)}

    def _chunk(self, number: int, text: str, logprobs: Sequence[TokenLogprob] = (), reason: str | None = None) -> dict[str, Json]:
        choice = self._choices[number]
        token_logprobs = _write_logprobs(logprobs, choice.offset) if logprobs else None
        if token_logprobs:
            choice.logprobs = choice.logprobs or {key: [] for key in token_logprobs}
            for key, more in token_logprobs.items():
                choice.logprobs[key] += more
        choice.offset += len(text)
        choice.texts.append(text)
        return self._heading.around(
            _OBJECT, [{"index": number, "text": text, "logprobs": token_logprobs, "finish_reason": reason}]
        )


def _write_logprobs(tokens: Iterable[TokenLogprob], offset: int) -> dict[str, list[Json]]:
    tokens = tuple(tokens)
    offsets = accumulate((len(token.text) for token in tokens[:-1]), initial=offset)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [write_number(token.logprob) for token in tokens],
        "top_logprobs": [{other.text: write_number(other.logprob) for other in token.top} for token in tokens],
        "text_offset": list(offsets),
    }
