"""How much a model is to reason: an effort in words, and the most tokens that it stands for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

Effort: TypeAlias = Literal["minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: Final[tuple[Effort, ...]] = get_args(Effort)  # from the least to the most
MOST_BUDGET: Final = 10**9  # tokens


@dataclass(frozen=True, slots=True)
class EffortBudget:
    """The most tokens of reasoning (None: any number), and the most of all that the answer may have, as a share of it."""

    tokens: int | None
    share: float


BUDGETS: Final[Mapping[Effort, EffortBudget]] = {
    "minimal": EffortBudget(512, 0.1),
    "low": EffortBudget(1024, 0.2),
    "medium": EffortBudget(8192, 0.5),
    "high": EffortBudget(24576, 0.8),
    "xhigh": EffortBudget(None, 0.95),
    "max": EffortBudget(None, 0.95),
}


def budget_of(effort: Effort | None, max_tokens: int | None) -> int | None:
    """The most tokens of reasoning that an effort stands for in an answer of so many tokens; None: as many as the model likes.

    >>> budget_of("low", None), budget_of("low", 1000), budget_of("max", None)
    (1024, 200, None)
    """
    if effort is None:
        return None
    tokens, share = BUDGETS[effort].tokens, None if max_tokens is None else int(max_tokens * BUDGETS[effort].share)
    return min((limit for limit in (tokens, share) if limit is not None), default=None)


def effort_within(budget: int) -> Effort:
    """The highest effort that takes no more tokens than these, or else the least there is.

    >>> effort_within(100), effort_within(2000), effort_within(100_000)
    ('minimal', 'low', 'high')
    """
    within: list[Effort] = [effort for effort in EFFORTS if (tokens := BUDGETS[effort].tokens) is not None and tokens <= budget]
    return within[-1] if within else EFFORTS[0]


def nearest_effort(effort: Effort, known: Sequence[Effort]) -> Effort:
    """The effort, or of those that are known the next one below it, or else the least.

    >>> nearest_effort("xhigh", ("low", "high")), nearest_effort("minimal", ("low", "high"))
    ('high', 'low')
    """
    ranked: list[Effort] = [other for other in EFFORTS if other in known]
    below: list[Effort] = [other for other in ranked if EFFORTS.index(other) <= EFFORTS.index(effort)]
    return below[-1] if below else ranked[0]
