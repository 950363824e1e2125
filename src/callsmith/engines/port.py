"""The engine port: all that a model may ask of an engine. `tests/engines/contract.py` holds engines to it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Protocol, TypeAlias

from callsmith.core.ports import Upstreams, WeightsInfo
from callsmith.core.values import Json, Sampling, TokenLogprob, Usage
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay

# What an engine does not enforce of a grammar, as (path, keyword); None if the grammar is too large for it.
UnenforcedBy: TypeAlias = Callable[[Grammar], Sequence[tuple[str, str]] | None]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is known of an engine and of the weights it has opened.

    `name` is what the weights call the model, `description` their architecture, size and quantisation. `context` is how many
    tokens prompt and answer may have together, None if that is not known. `placement` says which GPUs are used, or why one that
    is there is not. `template` is the chat template that the weights carry, `response_template` Hugging Face's description of
    the answers, `weights` what else they say of themselves, `memory` how many bytes weights and KV cache take, about; 0 if that
    is not known.
    `bos` and `eos` are the texts of the tokens that begin a document and end an answer. `specials` maps the text of special and
    added tokens to their ids. `relays`: `generate` takes a `Relay` too, which is cheaper than one grammar for many tools.
    `sampling` is how tokens are sampled where a request does not say.
    `logprobs`: `generate` gives log probabilities of tokens where the sampling settings ask for them.
    `tokenizer`: its tokens, where they are known here; then a prompt may also be given as ids of tokens.
    `unenforced`, where it is given, says what the engine does not enforce of a grammar, besides what the grammar lists itself;
    None if the grammar is too large for it. `is_enforcing`: it is known that grammars are enforced, and not ignored.
    `write_grammar` writes a grammar as the engine gets it, as text, for persons; None: as Lark.
    `spells_specials`: under a grammar, a special token may come as its letters, and in a string mean no more than those.
    `upstreams` are the other servers that generate for it; None if it generates here.
    `count_images` gives the tokens that the images of a prompt take; None: it reads none, and `no_images` may say why.
    `prefill` says how far the prompts are that are in prefill just now: tokens done, and tokens in all. From any thread.
    """

    name: str = ""
    description: str = ""
    context: int | None = None
    placement: str = ""
    template: str | None = None
    response_template: Json = None
    weights: WeightsInfo = WeightsInfo()
    memory: int = 0
    bos: str = ""
    eos: str = ""
    specials: Mapping[str, int] = field(default_factory=dict[str, int])
    relays: bool = False
    sampling: Sampling = Sampling()
    logprobs: bool = False
    tokenizer: "Tokenizer | None" = field(default=None, compare=False, repr=False)
    unenforced: UnenforcedBy | None = field(default=None, compare=False, repr=False)
    is_enforcing: bool = True
    write_grammar: Callable[[Grammar], str] | None = field(default=None, compare=False, repr=False)
    spells_specials: bool = False
    upstreams: Upstreams | None = field(default=None, compare=False, repr=False)
    count_images: Callable[[Prompt], Awaitable[int]] | None = field(default=None, compare=False, repr=False)
    no_images: str = ""
    prefill: Callable[[], tuple[int, int]] | None = field(default=None, compare=False, repr=False)


class Tokenizer(Protocol):
    """The tokens of an engine's model. `bos` is the one that every prompt begins with, None if there is none."""

    @property
    def bos(self) -> int | None: ...

    def encode(self, text: str, *, specials: bool = True) -> list[int]:
        """The tokens of a text, without a BOS. `specials`: what spells a special token is that token."""
        ...

    def decode(self, tokens: Sequence[int]) -> list[bytes]:
        """The text of each token; a UsageError if there is no such token."""
        ...


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token of an answer with its log probability, and the first and the last character of its text in the answer.

    A token that holds the beginning of a character, and not all of it, ends before that.
    """

    logprob: TokenLogprob
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The next piece of text. `special`: it is the text of one special token, and not the same letters in ordinary tokens.

    `usage` is the cost of the answer up to this piece, where the engine reports it: for a caller that stops reading here.
    `tokens` are those sampled since the piece before, if their log probabilities were asked for. A piece without text has some:
    an answer that ends at once may tell of the token that ended it.
    """

    text: str
    special: bool = False
    usage: Usage | None = field(default=None, compare=False, repr=False)
    tokens: tuple[SampledToken, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of the text: by itself, at a stop string or at the end of the grammar ("stop"), or at a length limit ("length").

    `matched` is the stop string, where it was one.
    """

    reason: Literal["stop", "length"]
    usage: Usage = Usage()
    matched: str = ""


class Engine(Protocol):
    """Continues a prompt with text, under a grammar where one is given."""

    @property
    def info(self) -> EngineInfo:
        """What is known of the engine; it does not change while the engine is open."""
        ...

    def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | Relay | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        """Pieces of text, then exactly one Finished. Closing the generator early stops the work within one decode step.

        A `Relay` comes only where `info.relays` is true.
        """
        ...

    async def count(self, text: str) -> int:
        """How many tokens the text has."""
        ...

    async def close(self) -> None:
        """Free weights, threads and connections; closing twice does no harm. Generating afterwards is an error."""
        ...


def with_defaults(sampling: Sampling, defaults: Sampling) -> Sampling:
    """The sampling settings, with the defaults for those that are not set."""
    missing = {item.name: getattr(defaults, item.name) for item in fields(sampling) if getattr(sampling, item.name) in (None, ())}
    return replace(sampling, **missing)
