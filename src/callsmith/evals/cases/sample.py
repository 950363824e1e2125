"""Which cases are asked: the same ones whenever the same sample is asked for. One half is for tuning, the other is held out."""

from collections import Counter
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Literal, Protocol, TypeAlias, TypeVar

from callsmith.core.errors import UnknownName

Half: TypeAlias = Literal["tuning", "held-out"]


class Categorized(Protocol):
    """What can be sampled: a case, or a question without an answer."""

    @property
    def id(self) -> str: ...
    @property
    def category(self) -> str: ...


_Item = TypeVar("_Item", bound=Categorized)


def sample(
    cases: Sequence[_Item],
    *,
    per_category: int | None = None,
    ids: Collection[str] = (),
    seed: int = 0,
) -> list[_Item]:
    """The cases with these ids, or so many of each category.

    Their order, and who is chosen, depends on their ids and the seed alone. So a larger sample holds the smaller one, a case that
    is added to a file displaces at most one other, and a run that is interrupted has asked a sample too.
    """
    ranked = sorted(cases, key=lambda case: sha256(f"{seed}:{case.id}".encode()).digest())
    if ids:
        known = {case.id for case in cases}
        for id in ids:
            if id not in known:
                raise UnknownName("case", id, known, field="ids")
        return [case for case in ranked if case.id in ids]
    chosen: list[_Item] = []
    counts = Counter[str]()
    for case in ranked:
        counts[case.category] += 1
        if per_category is None or counts[case.category] <= per_category:
            chosen.append(case)
    return chosen


def half_of(id: str) -> Half:
    """The half of a case, by its id alone: whatever else is added, it stays where it is.

    >>> half_of("bakery"), half_of("car")
    ('tuning', 'held-out')
    """
    return "held-out" if int(sha256(id.encode()).hexdigest(), 16) % 2 else "tuning"
