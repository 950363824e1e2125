"""A server that continues text: what each kind of server has to say and to take, and what all of them share.

Nothing here knows of prompts, stop strings or pieces: `engine.py` does that for all kinds alike.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

from callsmith.core.capability.origin import NOWHERE, Origin
from callsmith.core.errors import ModelError, PromptTooLong, Rejected, Unavailable, UnknownName, UsageError, list_names, shorten
from callsmith.core.types.tables import as_list, as_object, as_text
from callsmith.core.values import Json, Sampling, TokenLogprob, Usage
from callsmith.engines.completions.tokenizer import find_specials
from callsmith.engines.port import EngineInfo
from callsmith.engines.upstream import Upstream
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.upstream import GrammarFields
from callsmith.wire.errors import reported_error
from callsmith.wire.fields import as_count

Object: TypeAlias = Mapping[str, Json]

_SAMPLING: Final = (
    *("temperature", "top_p", "top_k", "min_p", "seed"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
)
_TOO_LONG: Final = re.compile(r"context (?:length|size)|longer than the model", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d[\d,]*")


@dataclass(frozen=True, slots=True)
class Continuation:
    """A prompt to continue, and how. `prompt` and `grammar` are request fields; `room` limits the answer, in tokens."""

    prompt: Object
    sampling: Sampling
    room: int | None = None
    grammar: Object = field(default_factory=dict[str, Json])
    origin: Origin = NOWHERE

    @property
    def session_fields(self) -> dict[str, str]:
        """The fields by which vLLM and SGLang know a conversation, and who may share a cache."""
        fields = (("session_id", self.origin.affinity), ("cache_salt", self.origin.cache_salt))
        return {name: value for name, value in fields if value}


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


class CompletionServer(ABC):
    """A kind of server. `owner` is what its list of models says of their owner. `needs_room`: it has to be sent how long an
    answer may become, for its own default is short. `adds_bos`: it puts the BOS before every prompt that is text. `_model` goes
    with every request that names a model.
    """

    kind: ClassVar[str]
    owner: ClassVar[str]
    needs_room: ClassVar[bool] = True

    def __init__(self, upstream: Upstream, model: str = "") -> None:
        self.adds_bos = False
        self._upstream = upstream
        self._model = {"model": model} if model else {}

    @abstractmethod
    async def describe(self) -> EngineInfo:
        """Ask the server what it serves."""

    @abstractmethod
    async def tokenize(self, texts: Sequence[str], *, add_special: bool = False) -> list[list[int]]:
        """The tokens of each text, without a BOS unless it is added; what spells a special token is that token."""

    @abstractmethod
    async def _detokenize(self, tokens: list[int]) -> str: ...

    @abstractmethod
    async def prompt(self, pieces: Sequence[str]) -> Object:
        """The request fields of a prompt. No token spans two pieces. The server puts a BOS before it, if it adds one at all."""

    @abstractmethod
    def request(self, job: Continuation) -> tuple[str, dict[str, Any]]:
        """The path and the body that ask for a streamed completion."""

    @abstractmethod
    def read(self, data: Object, progress: Progress) -> Chunk | None:
        """What an event of the stream says; None if nothing of interest."""

    @abstractmethod
    def constrain(self, grammar: Grammar, specials: Mapping[str, int]) -> GrammarFields:
        """The request fields that have the server enforce a grammar."""

    async def _listed_model(self) -> Object:
        """The model as the server lists it."""
        return choose_model(self._upstream.url, list_models(await self._upstream.get("v1/models")), self._model.get("model", ""))

    async def _describe(self, name: str, listed: Object, files: EngineInfo) -> EngineInfo:
        """What the files of the model say, completed by asking the tokenizer."""
        (begun,), (plain,) = await self.tokenize(["a"], add_special=True), await self.tokenize(["a"])
        self.adds_bos = begun != plain
        bos = await self._detokenize(begun[:1]) if self.adds_bos else files.bos
        specials = await find_specials(self.tokenize, self._detokenize, None, (bos, files.eos))
        context = as_count(listed.get("max_model_len")) or None
        return replace(files, name=name, context=context, bos=bos, specials={**specials, **files.specials})

    async def _prompt_ids(self, first: str, *others: str) -> list[int]:
        (begun,) = await self.tokenize([first], add_special=True)
        return [*begun, *(token for ids in (await self.tokenize(others) if others else ()) for token in ids)]

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


def list_models(listed: Json) -> list[Object]:
    """The models in the answer to `GET /v1/models`."""
    return [as_object(item) for item in as_list(as_object(listed).get("data"))]


def choose_model(url: str, models: Sequence[Object], wanted: str) -> Object:
    """The model that is asked for; without a name the one there is."""
    if not models:
        raise ModelError(f"{url} lists no models")
    names = {as_text(model.get("id")): model for model in reversed(models)}
    if wanted:
        if wanted not in names:
            raise UnknownName("model", wanted, names, field="model")
        return names[wanted]
    bases = [model for model in models if not model.get("parent")]  # not the adapters beside it
    if len(bases) > 1:
        listed = list_names(as_text(base.get("id")) for base in bases)
        raise UsageError(f"{url} has several models: say which, completions:{url}#NAME; there are {listed}")
    return (bases or models)[0]


def translate(error: ModelError, context: int | None) -> ModelError | PromptTooLong:
    """The error that a refusal means: a prompt that does not fit is the client's mistake, a key the operator's."""
    if not isinstance(error, Rejected):
        return error
    if error.status in (400, 413, 422) and _TOO_LONG.search(error.message):
        _, _, reason = error.message.partition(f"answers {error.status}")
        numbers = [int(match.replace(",", "")) for match in _NUMBER.findall(reason)]
        limit = context if context in numbers or not numbers else min(numbers)
        return PromptTooLong(max(numbers, default=0), limit or 0)
    if error.status in (401, 403):
        return Rejected(error.message, status=error.status, hint="Set CALLSMITH_UPSTREAM_KEY to the server's API key.")
    return error


def write_sampling(sampling: Sampling, others: Iterable[str] = (), **names: str) -> dict[str, Any]:
    """The sampling settings that are set: what every kind of server has, and `others`, under the `names` that this one has."""
    settings = {names.get(own, own): getattr(sampling, own) for own in (*_SAMPLING, *others)}
    if sampling.logit_bias:
        settings["logit_bias"] = {str(entry.token): entry.bias for entry in sampling.logit_bias}
    return {name: value for name, value in settings.items() if value is not None}
