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

from callsmith.core.errors import ModelError, PromptTooLong, Rejected, UnknownName, UsageError, list_names, shorten
from callsmith.core.values import Json, Sampling, TokenLogprob, Usage
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.upstream import RequestFields
from callsmith.wire.errors import reported_error

Object: TypeAlias = Mapping[str, Json]

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


def refuse_errors(url: str, data: Object) -> None:
    """Raise the error that an event of a stream reports, if it does."""
    if error := data.get("error"):
        raise ModelError(f"{url} reports an error: {shorten(reported_error(error), 1000)}")


def models_of(listed: Json) -> list[Object]:
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


def sampled(sampling: Sampling, names: Mapping[str, str]) -> dict[str, Any]:
    """The sampling settings that are set, under the names that a server has for them."""
    found = {name: getattr(sampling, own) for own, name in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def bias_of(sampling: Sampling) -> dict[str, float]:
    return {str(one.token): one.bias for one in sampling.logit_bias}
