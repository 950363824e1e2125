"""How tokens are to be chosen, the same fields in every dialect but for the names of two; and log probabilities of tokens.

{"token": "Hi", "logprob": -0.2, "bytes": [72, 105], "top_logprobs": [{"token": "Hi", "logprob": -0.2, "bytes": [72, 105]}]}
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from callsmith.core.values import Json, Sampling, TokenBias, TokenLogprob
from callsmith.wire.declare import Field, RequestFields, bounds, flag, integer, number
from callsmith.wire.fields import Fields

_MOST_BIASED: Final = 1024  # tokens with a bias
_MOST_BIAS: Final = 100
# Fields that are read into the field of `Sampling` of the same name, as they are.
_ALIKE: Final = ("temperature", "top_p", "min_p", "typical_p", "seed", "presence_penalty", "frequency_penalty")
_BIAS_SCHEMA: Final = {"type": "number", **bounds(-_MOST_BIAS, _MOST_BIAS)}


def token_limit(
    about: str = "The most tokens of the answer; -1: as many as fit.", *, minimum: int = -1, **keywords: Json
) -> Field[int]:
    """The field with the most tokens of an answer. With -1 there is no limit: that reads as None."""

    def read(fields: Fields, key: str) -> int | None:
        return None if fields.get(key) == -1 else fields.integer(key, 1)

    return Field("integer", read, about, minimum=minimum, **keywords)


def stop_texts() -> Field[tuple[str, ...]]:
    """The field with the texts at which an answer ends."""

    def read(fields: Fields, key: str) -> tuple[str, ...]:
        stops = fields.texts(key)
        if "" in stops:
            raise fields.error(key, "an empty string would stop everything")
        return stops

    return Field("string | string[]", read, "Texts at which the answer ends.")


def _read_bias(fields: Fields, key: str) -> tuple[TokenBias, ...]:
    """`{"1639": -100}`: by the ids of tokens."""
    biases = fields.required_object(key)
    if len(biases.data) > _MOST_BIASED:
        raise fields.error(key, f"has {len(biases.data)} tokens, more than {_MOST_BIASED}")
    for token in biases.data:
        if not (token.isascii() and token.isdecimal()):
            raise fields.error(key, f"{token!r} is not the id of a token")
    return tuple(TokenBias(int(token), biases.number(token, least=-_MOST_BIAS, most=_MOST_BIAS) or 0.0) for token in biases.data)


class SamplingFields(RequestFields):
    """How tokens are chosen."""

    temperature = number()
    top_p = number(most=1)
    top_k = integer("0 or -1: all tokens.", least=-1)
    min_p = number(most=1)
    typical_p = number(most=1)
    seed = integer("The same answer again, while nothing else is being answered.")
    presence_penalty = number(least=-2, most=2)
    frequency_penalty = number(least=-2, most=2)
    repetition_penalty = number(most=10)
    repeat_penalty = number("As repetition_penalty.", most=10)
    repeat_last_n = integer("How many tokens the penalties look back on; -1: all.", least=-1)
    logit_bias = Field("object", _read_bias, "By the ids of tokens.", additionalProperties=_BIAS_SCHEMA)

    def read_sampling(self, max_tokens: int | None, stop: tuple[str, ...] | None, logprobs: int | None = None) -> Sampling:
        """The sampling that a request asks for; what limits an answer has other names in other dialects."""
        top_k, window = self.top_k, self.repeat_last_n
        penalty = self.repeat_penalty if self.repetition_penalty is None else self.repetition_penalty
        return Sampling(
            **{name: getattr(self, name) for name in _ALIKE},
            top_k=None if top_k is None else max(top_k, 0),  # 0 means all of them
            max_tokens=max_tokens,
            stop=stop or (),
            repetition_penalty=penalty or None,  # 0 stands for none in some clients
            penalty_window=None if window == -1 else window,
            logit_bias=self.logit_bias or (),
            logprobs=logprobs,
        )


class UnsupportedSampling(RequestFields):
    """How other servers let tokens be chosen, and this one does not."""

    refused: ClassVar = {
        "allowed_token_ids": ([],),
        "bad_words": ([],),
        "best_of": (1,),
        "ignore_eos": (False,),
        "include_stop_str_in_output": (False,),
        "length_penalty": (1,),
        "min_tokens": (0,),
        "prompt_logprobs": (0, False),
        "skip_special_tokens": (True,),
        "stop_token_ids": ([],),
        "truncate_prompt_tokens": (),
        "use_beam_search": (False,),
    }


def write_sampling(sampling: Sampling, limit: str, stop: str = "stop") -> dict[str, Json]:
    """The fields that `SamplingFields` reads back; those without a value are None."""
    return {
        **{name: getattr(sampling, name) for name in (*_ALIKE, "top_k", "repetition_penalty")},
        limit: sampling.max_tokens,
        stop: list(sampling.stop) or None,
        "repeat_last_n": sampling.penalty_window,
        "logit_bias": {str(entry.token): entry.bias for entry in sampling.logit_bias} or None,
    }


MAX_TOP: Final = 20  # tokens that are listed in the place of one
_IMPOSSIBLE: Final = -9999.0  # in place of minus infinity, which JSON does not have


def top_logprobs() -> Field[int]:
    """A field that says how many of the likeliest tokens are listed for each."""
    return integer(least=0, most=MAX_TOP)


class LogprobFields(RequestFields):
    """Which log probabilities are wanted."""

    logprobs = flag()
    top_logprobs = top_logprobs()

    def read_wanted(self) -> int | None:
        """How many of the likeliest tokens are to be listed for each. None: none, and no others."""
        top = self.top_logprobs
        if self.logprobs:
            return top or 0
        if top:
            raise self.error("top_logprobs", "needs logprobs to be true")
        return None


def write_wanted(top: int | None) -> dict[str, Json]:
    """The fields that `LogprobFields` reads back."""
    return {} if top is None else {"logprobs": True, "top_logprobs": top or None}


def write_logprobs(tokens: Iterable[TokenLogprob]) -> list[Json]:
    return [{**_write(token), "top_logprobs": [_write(other) for other in token.top]} for token in tokens]


def write_number(logprob: float) -> float:
    """The log probability, as JSON can have it."""
    return max(logprob, _IMPOSSIBLE)


def _write(token: TokenLogprob) -> dict[str, Json]:
    return {"token": token.text, "logprob": write_number(token.logprob), "bytes": list(token.data)}


def read_logprobs(fields: Fields | None, key: str) -> tuple[TokenLogprob, ...]:
    """What `write_logprobs` has written there."""
    return tuple(_read(token) for token in fields.objects(key)) if fields else ()


def _read(fields: Fields) -> TokenLogprob:
    text, data, logprob = fields.text("token") or "", fields.array("bytes"), fields.number("logprob", most=1e308, least=-1e308)
    top = tuple(_read(other) for other in fields.objects("top_logprobs"))
    return TokenLogprob(
        text.encode() if data is None else bytes(data), min(logprob or 0.0, 0.0), top
    )  # a server that rounds may be just above
