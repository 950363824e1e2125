"""`POST /v1/completions`: texts that are continued as they stand, and how the answer is written, whole and as a stream.

    {"model": "qwen", "prompt": "Once upon a time", "max_tokens": 16, "echo": true, "logprobs": 2}

A prompt is a text, a list of texts, the ids of tokens, or a list of such. The other fields are those of chat completions:
sampling, penalties, structured output, `n`. `suffix` is refused by name, and so are log probabilities of the prompt.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import cast

from callsmith.core.events import ModelEvent, Report, Stopped, Text
from callsmith.core.values import Completion, Json, TokenLogprob, Usage
from callsmith.wire.extensions import write_report
from callsmith.wire.fields import Fields, kind
from callsmith.wire.logprobs import read_top, write_number
from callsmith.wire.openai.chat_events import Heading, sum_usage
from callsmith.wire.openai.common import write_usage
from callsmith.wire.openai.output import read_output
from callsmith.wire.sampling import UNSUPPORTED, read_sampling

MAX_COMPLETIONS = 64  # texts that one request may get, for all its prompts
_OBJECT = "text_completion"
DEFAULT_MAX_TOKENS = 16  # as others have it
NEUTRAL: dict[str, tuple[Json, ...]] = {**UNSUPPORTED, "suffix": ("",)}
HINTS: dict[str, str] = {"user": "callers are told apart by their keys"}


@dataclass(frozen=True, slots=True)
class CompletionsRequest:
    """What was asked, of which model: one completion for each prompt, each of them `n` times."""

    model: str
    completions: tuple[Completion, ...]
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    echo: bool = False


def read_request(body: Json) -> CompletionsRequest:
    """The request in a decoded JSON body; a UsageError names the field that is wrong."""
    fields = Fields.of(body, "")
    fields.refuse_unsupported(NEUTRAL)
    prompts, n, echo = read_prompts(fields), fields.integer("n", 1) or 1, fields.flag("echo") or False
    if len(prompts) * n > MAX_COMPLETIONS:
        raise fields.error("n" if n > 1 else "prompt", f"asks for {len(prompts) * n} texts, more than {MAX_COMPLETIONS}")
    sampling = replace(read_sampling(fields, "max_tokens"), logprobs=read_top(fields, "logprobs"))
    if fields.get("max_tokens") is None:
        sampling = replace(sampling, max_tokens=DEFAULT_MAX_TOKENS)
    if echo and sampling.logprobs is not None:
        raise fields.error("echo", "the tokens of a prompt have no log probabilities here: ask for one of echo and logprobs")
    options, output, session = fields.object("stream_options"), read_output(fields), fields.text("session_id") or ""
    return CompletionsRequest(
        fields.text("model") or "",
        tuple(Completion(prompt, sampling, output, session, fields.text("cache_salt") or "") for prompt in prompts),
        n,
        fields.flag("stream") or False,
        (options.flag("include_usage") if options else None) or False,
        echo,
    )


def read_prompts(fields: Fields) -> tuple[str | tuple[int, ...], ...]:
    """The prompts: one text or list of ids, or a list of such."""
    value = fields.get("prompt")
    if isinstance(value, str):
        return (value,)
    given = fields.array("prompt")
    if not given:
        raise fields.error("prompt", "is required: a text, the ids of tokens, or a list of such")
    if all(_is_id(one) for one in given):
        return (tuple(given),)
    prompts: list[str | tuple[int, ...]] = []
    for index, one in enumerate(given):
        if not isinstance(one, str) and not (isinstance(one, list) and one and all(map(_is_id, cast(list[Json], one)))):
            raise fields.error(f"prompt.{index}", f"expected a text or the ids of tokens, got {kind(one)}")
        prompts.append(one if isinstance(one, str) else tuple(cast(list[int], one)))
    return tuple(prompts)


def _is_id(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(slots=True)
class _Choice:
    """One of the texts being written. `offset` is how long it is so far."""

    offset: int = 0
    texts: list[str] = field(default_factory=list[str])
    logprobs: dict[str, list[Json]] | None = None
    reason: str | None = None


class CompletionWriter:
    """Events of several texts to chunks; `prompts` are those that are repeated before them, if any are."""

    def __init__(self, heading: Heading, choices: int, prompts: Sequence[str] = ()) -> None:
        self._heading = heading
        self._choices = [_Choice() for _ in range(choices)]
        self._prompts = prompts
        self._usage, self._report = Usage(), Report()

    def begin(self) -> list[dict[str, Json]]:
        """The chunks that repeat the prompts."""
        return [self._chunk(number, prompt) for number, prompt in enumerate(self._prompts)]

    def write(self, number: int, event: ModelEvent) -> list[dict[str, Json]]:
        """The chunks that an event of this text makes."""
        match event:
            case Text(text, logprobs) if text:
                return [self._chunk(number, text, logprobs)]
            case Stopped():
                self._usage, self._report = sum_usage(self._usage, event.usage), self._report + event.report
                reason = self._choices[number].reason = "length" if event.reason == "length" else "stop"
                return [{**self._chunk(number, "", reason=reason), **write_report(event.report)}]
            case _:
                return []

    def close(self) -> list[dict[str, Json]]:
        """What all of it has cost, where that was asked for."""
        return [{**self._heading.around(_OBJECT, []), "usage": write_usage(self._usage)}] if self._heading.include_usage else []

    def whole(self) -> dict[str, Json]:
        """The whole answer."""
        choices: list[Json] = [
            {"index": number, "text": "".join(one.texts), "logprobs": one.logprobs, "finish_reason": one.reason or "stop"}
            for number, one in enumerate(self._choices)
        ]
        return {**self._heading.around(_OBJECT, choices), "usage": write_usage(self._usage), **write_report(self._report)}

    def _chunk(self, number: int, text: str, logprobs: Sequence[TokenLogprob] = (), reason: str | None = None) -> dict[str, Json]:
        choice = self._choices[number]
        written = _write_logprobs(logprobs, choice.offset) if logprobs else None
        if written:
            choice.logprobs = choice.logprobs or {key: [] for key in written}
            for key, more in written.items():
                choice.logprobs[key] += more
        choice.offset += len(text)
        choice.texts.append(text)
        return self._heading.around(_OBJECT, [{"index": number, "text": text, "logprobs": written, "finish_reason": reason}])


def _write_logprobs(tokens: Iterable[TokenLogprob], offset: int) -> dict[str, list[Json]]:
    tokens = tuple(tokens)
    offsets = accumulate((len(one.text) for one in tokens[:-1]), initial=offset)
    return {
        "tokens": [one.text for one in tokens],
        "token_logprobs": [write_number(one.logprob) for one in tokens],
        "top_logprobs": [{other.text: write_number(other.logprob) for other in one.top} for one in tokens],
        "text_offset": list(offsets),
    }
