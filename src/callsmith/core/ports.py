"""The two protocols everything plugs into: Model answers a request as events, Toolset runs calls."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, cast

from callsmith.core.approval import Decision, Policy
from callsmith.core.capability.authority import Authority
from callsmith.core.events import CallEvent, ModelEvent
from callsmith.core.types.field_checks import check_fields
from callsmith.core.values import Call, ChoicePolicy, Completion, Request, Sampling, Tool


async def _at_once() -> None:
    """Do nothing: nobody waits for the start of a tool."""


def _never() -> bool:
    return False


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Where a tool notes how far it is, or how work outside of this program is found again, so that it survives a restart.

    `value` is what was noted before the call paused or the program was stopped, or empty. `save` stores a new one, as durably as
    the call itself is stored. Once `is_left()` is true, the call ends only because the program does, and another process takes it
    up: the work outside is not to be stopped. `is_job`: the call goes on in the background.
    """

    value: str
    save: Callable[[str], Awaitable[None]]
    is_left: Callable[[], bool] = _never
    is_job: bool = False


@check_fields
@dataclass(frozen=True, slots=True)
class Context:
    """For whom and under which decisions a tool runs; passed through every wrapper to the tool itself.

    `subject` is the caller (results are never shared between callers), `depth` how many runs this one is nested in, `max_depth`
    how many it may be (None: whoever runs it says). `decisions` are a person's decisions by call id, and `asked` the tools as
    they were when the person was asked: a decision counts for no other definition (None: whoever decided answers for that).
    `granted` are the tools that need no further approval in this conversation (`Tool.grant`), `tighten` is the policy that the
    request adds to the operator's. `approved` is the digest of the tool that was approved; a toolset that has another one under
    this name by now raises `ToolChanged` and runs nothing. `tool` is the tool as whoever passes the call on has listed it, so
    that it need not be listed again; None: nobody has. `authority` is on whose behalf tools call other programs; None: this
    program's own. `checkpoint` is there where the call survives a restart of the program.

    A toolset awaits `starting()` right before the tool runs, so that the start can be written down first. A tool that cannot be
    cancelled, because it runs in a thread, can poll `cancelled()`: once that is true, nobody waits for its result.
    """

    conversation: str = ""
    subject: str = ""
    depth: int = 0
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    asked: Mapping[str, Tool] | None = None
    granted: frozenset[str] = frozenset()
    tighten: Policy | None = None
    approved: str = ""
    tool: Tool | None = field(default=None, compare=False, repr=False)
    authority: Authority | None = None
    max_depth: int | None = None
    checkpoint: Checkpoint | None = field(default=None, compare=False, repr=False)
    starting: Callable[[], Awaitable[None]] = field(default=_at_once, compare=False, repr=False)
    cancelled: Callable[[], bool] = field(default=_never, compare=False, repr=False)
    find_earlier: Callable[[], str | None] = field(default=_nothing, compare=False, repr=False)

    @property
    def earlier(self) -> str | None:
        """The result of an identical call of the same turn, if there is one: nobody is asked about such a call again."""
        return self.find_earlier()


class Model(Protocol):
    """Answers a request with a stream of events; the last one is `Stopped`."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]: ...


@dataclass(frozen=True, slots=True)
class WeightsInfo:
    """What a file of weights says of itself: its format ("gguf"), the architecture ("qwen2"), how many parameters there are, what
    the model's size is called ("1.5B"), how they are quantised ("Q4_K_M"), and how many bytes the file has.

    What is not known is empty or 0. A file may hold more parameters than its model has: some are in it twice.
    """

    format: str = ""
    architecture: str = ""
    parameters: int = 0
    size_label: str = ""
    quantization: str = ""
    size: int = 0


UpstreamState: TypeAlias = Literal["up", "down", "busy", "draining"]


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """How another server is that answers for a model: "up", "down", "busy" (it wants to be left alone for a while) or "draining".

    `answering` is how many requests it is answering, `requests` how many it was sent so far, `failures` how many of them failed.
    """

    url: str
    state: UpstreamState
    answering: int = 0
    requests: int = 0
    failures: int = 0


class Upstreams(Protocol):
    """The other servers that answer for a model."""

    def status(self) -> Sequence[UpstreamStatus]: ...

    def drain(self, url: str, draining: bool) -> None:
        """Send a server no new requests, or send it some again. What it is answering comes to its end. A UsageError if it is
        none of these."""
        ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a model besides its answers; the defaults stand for a model of which nothing is known.

    `name` and `description` are what the weights call themselves, `format` is how the model writes calls, `template` its chat
    template, `weights` the file it was opened from, `memory` about how many bytes it takes while it is loaded (0: not known),
    `placement` the GPUs it is on, in words. `context` is how many tokens prompt and answer may have together. `policy` is the
    choice policy and `sampling` the sampling where a request has none, `guards` the names of the guards the model needs.
    `ready` is false while the model is loading. `count` gives the tokens of the prompt of a request; None if the model cannot
    count. `complete` continues a text as it is, `tokenizer` gives the model's tokens; None if it cannot.
    `upstreams` are the other servers that answer for it; None if there are none. `prefill` says how far the prompts are that are
    being read just now, as tokens done and tokens in all; None if that is not known. `tool_prompt` names how tools are put to it.
    `reads_images`: it runs here and takes images in messages; of models of other servers that is not known.
    """

    name: str = ""
    description: str = ""
    format: str = ""
    template: str = ""
    weights: WeightsInfo = WeightsInfo()
    memory: int = 0
    placement: str = ""
    thinks: bool = False
    context: int | None = None
    policy: ChoicePolicy = "auto"
    sampling: Sampling = Sampling()
    guards: tuple[str, ...] = ()
    tool_prompt: str = ""
    reads_images: bool = False
    ready: bool = True
    count: Callable[[Request], Awaitable[int]] | None = field(default=None, compare=False, repr=False)
    complete: Callable[[Completion], AsyncIterator[ModelEvent]] | None = field(default=None, compare=False, repr=False)
    tokenizer: "ModelTokenizer | None" = field(default=None, compare=False, repr=False)
    upstreams: Upstreams | None = field(default=None, compare=False, repr=False)
    prefill: Callable[[], tuple[int, int]] | None = field(default=None, compare=False, repr=False)


class ModelTokenizer(Protocol):
    """The tokens of a model: from text to their ids, and back."""

    def encode(self, text: str, *, bos: bool = True, specials: bool = True) -> list[int]:
        """The tokens of a text. `bos`: with the token that begins a document, if the model wants one. `specials`: what spells
        a special token is that token."""
        ...

    def encode_request(self, request: Request) -> list[int]:
        """The tokens of the prompt that a request becomes."""
        ...

    def decode(self, tokens: Sequence[int]) -> list[bytes]:
        """The text of each token; a UsageError if there is no such token."""
        ...


class DescribedModel(Model, Protocol):
    """A model that also says what is known of it. A model around another one passes the other's `info` on."""

    @property
    def info(self) -> ModelInfo: ...


class OpenedModel(DescribedModel, Protocol):
    """A model that holds weights or connections until it is closed."""

    async def close(self) -> None: ...


_NO_INFO = ModelInfo()


def model_info(model: Model) -> ModelInfo:
    """What is known of the model; the defaults for a plain `Model` that has no `info`."""
    if hasattr(type(model), "info") or hasattr(model, "info"):  # asking the protocol takes ten times as long
        return cast(DescribedModel, model).info
    return _NO_INFO


class Toolset(Protocol):
    """A source of tools that runs their calls: functions, an MCP server, another program, or a wrapper around another toolset."""

    async def tools(self) -> Sequence[Tool]: ...

    def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        """Progress, then exactly one Result; for a call that does not run now, one ConfirmationNeeded or CallDeferred instead."""
        ...
