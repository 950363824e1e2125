"""How tokens are sampled, and how likely those were that came."""

from dataclasses import dataclass

from callsmith.core.types.field_checks import check_fields


@check_fields
@dataclass(frozen=True, slots=True)
class TokenBias:
    """What is added to the logit of a token, given by its id."""

    token: int
    bias: float


@check_fields
@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are sampled. None: as the model's own settings say.

    `presence_penalty` and `frequency_penalty` are subtracted from the logits of tokens that the answer already has, once or as
    often as it has them. `repetition_penalty` divides those of tokens in the prompt or the answer (multiplies, where they are
    negative); 1 changes nothing. `penalty_window`: of how many tokens, the last ones, all three take account; None: of all.
    `logit_bias` adds to the logits of some tokens. `logprobs` asks for the log probabilities of the tokens of the text, each with
    those of so many of the likeliest ones in its place.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    typical_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    penalty_window: int | None = None
    logit_bias: tuple[TokenBias, ...] = ()
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, given by its bytes, and its log probability in the model's own distribution: before temperature, penalties,
    biases and grammar. `top` are the likeliest tokens in its place."""

    data: bytes
    logprob: float
    top: tuple["TokenLogprob", ...] = ()

    @property
    def text(self) -> str:
        """The token as text; bytes that are no whole character are replaced."""
        return self.data.decode("utf-8", "replace")
