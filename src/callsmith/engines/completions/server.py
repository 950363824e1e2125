"""The port of a server that continues text: what each kind of server has to say and to take, and what all of them share.

    class Server(Protocol):
        kind, needs_room
        async def describe() -> Description
        async def tokenize(texts) -> ids of each
        async def prompt(pieces) -> request fields
        def request(job) -> path and body
        def read(data, progress) -> Chunk
        def constrain(grammar) -> RequestFields

Nothing here knows of prompts, stop strings or pieces: `engine.py` does that for all kinds alike.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from callsmith.core.errors import ModelError, PromptTooLong, Rejected, Unavailable, UnknownName, UsageError, list_names, shorten
from callsmith.core.values import Json, Sampling, TokenLogprob, Usage
from callsmith.engines.upstream import Upstream
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.upstream import RequestFields
from callsmith.wire.errors import reported_error

Object: TypeAlias = Mapping[str, Json]

SAMPLING: Final = {  # what every kind of server calls alike
    name: name
    for name in (
        *("temperature", "top_p", "top_k", "min_p", "seed"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    )
}
_TOO_LONG: Final = re.compile(r"context (?:length|size)|longer than the model", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d[\d,]*")


@dataclass(frozen=True, slots=True)
class Description:
    """What a server says of itself and of its model.

    `adds_bos`: it puts the BOS before every prompt that is text. `specials` maps the text of special tokens to their ids.
    """

    name: str = ""
    text: str = ""
    context: int | None = None
    template: str | None = None
    response_template: Json = None
    bos: str = ""
    eos: str = ""
    adds_bos: bool = False
    specials: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt to continue, and how. `prompt` and `grammar` are request fields; `room` limits the answer, in tokens."""

    prompt: Object
    sampling: Sampling
    room: int | None = None
    grammar: Object = field(default_factory=dict[str, Json])
    session: str = ""
    cache_salt: str = ""


@dataclass(slots=True)
class Progress:
    """How much of an answer has been read: for servers that repeat all of it in every event."""

    text: int = 0
    tokens: int = 0
    logprobs: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next part of an answer: text, the ids of tokens, what it has cost so far, and whether it is the last.

    `logprobs` are those of its tokens, if they were asked for.
    """

    text: str = ""
    tokens: tuple[int, ...] = ()
    usage: Usage | None = None
    end: Literal["stop", "length"] | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


class Server(Protocol):
    """A kind of server. `needs_room`: it has to be told how long an answer may become, for its own default is short."""

    kind: str
    needs_room: bool

    async def describe(self) -> Description:
        """Ask the server what it serves."""
        ...

    async def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, without a BOS; what spells a special token is that token."""
        ...

    async def prompt(self, pieces: Sequence[str]) -> Object:
        """The request fields of a prompt. No token spans two pieces. The server puts a BOS before it, if it adds one at all."""
        ...

    def request(self, job: Job) -> tuple[str, dict[str, Any]]:
        """The path and the body that ask for a streamed completion."""
        ...

    def read(self, data: Object, progress: Progress) -> Chunk | None:
        """What an event of the stream says; None if nothing of interest."""
        ...

    def constrain(self, grammar: Grammar, specials: Mapping[str, int]) -> RequestFields:
        """The request fields that have the server enforce a grammar."""
        ...


class CompletionServer:
    """What the kinds of servers share. `_model` goes with every request that names a model."""

    def __init__(self, upstream: Upstream, model: str = "") -> None:
        self._upstream = upstream
        self._model = {"model": model} if model else {}

    async def _listed_model(self) -> Object:
        """The model as the server lists it."""
        return choose_model(self._upstream.url, list_models(await self._upstream.get("v1/models")), self._model.get("model", ""))

    async def _ask(self, path: str, field: str, **body: Json) -> Json:
        """A field of the answer to this body."""
        return as_object(await self._upstream.post(path, {**body, **self._model})).get(field)

    def _check(self, data: Object) -> None:
        """Raise the error that an event of a stream reports, if it does."""
        if error := data.get("error"):
            raise ModelError(f"{self._upstream.url} reports an error: {shorten(reported_error(error), 1000)}")

    def _end(self, reason: str, message: str = "") -> Literal["stop", "length"] | None:
        """Why an answer has ended, if it has; an error if the server gave it up."""
        if reason in ("abort", "error"):
            raise Unavailable(f"{self._upstream.url} gave up the answer{message or f' ({reason})'}", retryable=True)
        return None if not reason else "length" if reason == "length" else "stop"


# --- reading what a server says ---------------------------------------------------------------------------------------------


def as_object(value: Json) -> Object:
    """The value, if it is an object; else an empty one."""
    return cast(Object, value) if isinstance(value, Mapping) else {}


def as_list(value: Json) -> list[Json]:
    return cast(list[Json], value) if isinstance(value, list) else []


def as_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def as_ids(value: Json) -> tuple[int, ...]:
    """The ids in a list; what is none is left out."""
    return tuple(one for one in as_list(value) if isinstance(one, int) and not isinstance(one, bool))


def list_models(listed: Json) -> list[Object]:
    """The models in the answer to `GET /v1/models`."""
    return [as_object(one) for one in as_list(as_object(listed).get("data"))]


def choose_model(url: str, models: Sequence[Object], wanted: str) -> Object:
    """The model that is asked for; without a name the one there is."""
    if not models:
        raise ModelError(f"{url} lists no models")
    names = {as_text(one.get("id")): one for one in reversed(models)}
    if wanted:
        if wanted not in names:
            raise UnknownName("model", wanted, names, field="model")
        return names[wanted]
    bases = [one for one in models if not one.get("parent")]  # not the adapters beside it
    if len(bases) > 1:
        listed = list_names(as_text(one.get("id")) for one in bases)
        raise UsageError(f"{url} has several models: say which, completions:{url}#NAME; there are {listed}")
    return (bases or models)[0]


def translate(error: ModelError, context: int | None) -> ModelError | PromptTooLong:
    """The error that a refusal stands for: a prompt that does not fit is the client's mistake, a key the operator's."""
    if not isinstance(error, Rejected):
        return error
    if error.status in (400, 413, 422) and _TOO_LONG.search(error.message):
        _, _, said = error.message.partition(f"answers {error.status}")
        numbers = [int(one.replace(",", "")) for one in _NUMBER.findall(said)]
        limit = context if context in numbers or not numbers else min(numbers)
        return PromptTooLong(max(numbers, default=0), limit or 0)
    if error.status in (401, 403):
        return Rejected(error.message, status=error.status, hint="Set CALLSMITH_UPSTREAM_KEY to the server's API key.")
    return error


def write_sampling(sampling: Sampling, names: Mapping[str, str]) -> dict[str, Any]:
    """The sampling settings that are set, under the names that a server has for them."""
    found = {name: getattr(sampling, own) for own, name in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def write_bias(sampling: Sampling) -> dict[str, float]:
    return {str(one.token): one.bias for one in sampling.logit_bias}
