"""How tokens are to be chosen: the same fields in every dialect, but for the names of two of them."""

from collections.abc import Mapping
from typing import Final

from callsmith.core.values import Json, Sampling, TokenBias
from callsmith.wire.fields import Fields

_MOST_BIASED: Final = 1024  # tokens with a bias

# How other servers let tokens be chosen and this one does not, each with the values that ask for nothing.
UNSUPPORTED: Final[Mapping[str, tuple[Json, ...]]] = {
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


def read_sampling(fields: Fields, limit: str, stop: str = "stop", *, allows_minus_one: bool = True) -> Sampling:
    """The sampling a request asks for. `limit` is the field with the most tokens, `stop` the one with the strings to stop at.

    `allows_minus_one`: whether -1 in `limit`, `top_k` or `repeat_last_n` means that there is no limit.
    """
    top_k = fields.integer("top_k", -1 if allows_minus_one else 0)
    unlimited = allows_minus_one and fields.get(limit) == -1
    stops = fields.texts(stop)
    if "" in stops:
        raise fields.error(stop, "an empty string would stop everything")
    repetition = "repetition_penalty" if fields.get("repetition_penalty") is not None else "repeat_penalty"
    window = fields.integer("repeat_last_n", -1 if allows_minus_one else 0)
    return Sampling(
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p", most=1),
        top_k=None if top_k is None else max(top_k, 0),  # 0 means all of them
        min_p=fields.number("min_p", most=1),
        typical_p=fields.number("typical_p", most=1),
        seed=fields.integer("seed"),
        max_tokens=None if unlimited else fields.integer(limit, 1),
        stop=stops,
        presence_penalty=fields.number("presence_penalty", least=-2, most=2),
        frequency_penalty=fields.number("frequency_penalty", least=-2, most=2),
        repetition_penalty=fields.number(repetition, most=10) or None,  # 0 stands for none in some clients
        penalty_window=None if window == -1 else window,
        logit_bias=_read_bias(fields),
    )


def _read_bias(fields: Fields) -> tuple[TokenBias, ...]:
    """`{"1639": -100}`: by the ids of tokens."""
    biases = fields.object("logit_bias")
    if biases is None:
        return ()
    if len(biases.data) > _MOST_BIASED:
        raise fields.error("logit_bias", f"has {len(biases.data)} tokens, more than {_MOST_BIASED}")
    for key in biases.data:
        if not (key.isascii() and key.isdecimal()):
            raise fields.error("logit_bias", f"{key!r} is not the id of a token")
    return tuple(TokenBias(int(key), biases.number(key, least=-100, most=100) or 0.0) for key in biases.data)


def write_sampling(sampling: Sampling, limit: str, stop: str = "stop") -> dict[str, Json]:
    """The fields that `read_sampling` reads back; those without a value are None."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "typical_p": sampling.typical_p,
        "seed": sampling.seed,
        limit: sampling.max_tokens,
        stop: list(sampling.stop) or None,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "repeat_last_n": sampling.penalty_window,
        "logit_bias": {str(one.token): one.bias for one in sampling.logit_bias} or None,
    }
