"""How tokens are to be chosen: the same fields in every dialect, but for the names of two of them."""

from callsmith.core.values import Json, Sampling
from callsmith.wire.fields import Fields


def read_sampling(fields: Fields, limit: str, stop: str = "stop", *, allows_minus_one: bool = True) -> Sampling:
    """The sampling a request asks for. `limit` is the field with the most tokens, `stop` the one with the strings to stop at.

    `allows_minus_one`: whether -1 in `limit` or `top_k` means that there is no limit.
    """
    top_k = fields.integer("top_k", -1 if allows_minus_one else 0)
    unlimited = allows_minus_one and fields.get(limit) == -1
    stops = fields.texts(stop)
    if "" in stops:
        raise fields.error(stop, "an empty string would stop everything")
    return Sampling(
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p", most=1),
        top_k=None if top_k is None else max(top_k, 0),  # 0 means all of them
        min_p=fields.number("min_p", most=1),
        seed=fields.integer("seed"),
        max_tokens=None if unlimited else fields.integer(limit, 1),
        stop=stops,
    )


def write_sampling(sampling: Sampling, limit: str, stop: str = "stop") -> dict[str, Json]:
    """The fields that `read_sampling` reads back; those without a value are None."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "seed": sampling.seed,
        limit: sampling.max_tokens,
        stop: list(sampling.stop) or None,
    }
