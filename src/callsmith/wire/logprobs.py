"""Log probabilities of tokens: how requests ask for them, and how the dialects write them.

{"token": "Hi", "logprob": -0.2, "bytes": [72, 105], "top_logprobs": [{"token": "Hi", "logprob": -0.2, "bytes": [72, 105]}]}
"""

from collections.abc import Iterable
from typing import Final

from callsmith.core.values import Json, TokenLogprob
from callsmith.wire.declare.request_fields import Field, RequestFields, flag, integer
from callsmith.wire.fields import Fields

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
    return [{**_write(one), "top_logprobs": [_write(other) for other in one.top]} for one in tokens]


def write_number(logprob: float) -> float:
    """The log probability, as JSON can have it."""
    return max(logprob, _IMPOSSIBLE)


def _write(one: TokenLogprob) -> dict[str, Json]:
    return {"token": one.text, "logprob": write_number(one.logprob), "bytes": list(one.data)}


def read_logprobs(fields: Fields | None, key: str) -> tuple[TokenLogprob, ...]:
    """What `write_logprobs` has written there."""
    return tuple(_read(one) for one in fields.objects(key)) if fields else ()


def _read(fields: Fields) -> TokenLogprob:
    text, data, logprob = fields.text("token") or "", fields.array("bytes"), fields.number("logprob", most=0, least=-1e308)
    top = tuple(_read(other) for other in fields.objects("top_logprobs"))
    return TokenLogprob(text.encode() if data is None else bytes(data), logprob or 0.0, top)
