"""Which half of the cases a case belongs to: one is for tuning, the other is held out and only reported."""

from hashlib import sha256
from typing import Literal, TypeAlias

Half: TypeAlias = Literal["tuning", "held-out"]


def half_of(id: str) -> Half:
    """The half of a case, by its id alone: whatever else is added, it stays where it is.

    >>> half_of("bakery"), half_of("car")
    ('tuning', 'held-out')
    """
    return "held-out" if int(sha256(id.encode()).hexdigest(), 16) % 2 else "tuning"
