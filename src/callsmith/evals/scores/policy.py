"""The policy that follows from scores: how a model is best asked where a request leaves it open.

The rule: of the setups `free-repaired`, `guarded` and `required`, as far as measured, the one with the most right calls,
among those that are not significantly worse than the first of them at leaving calls alone (McNemar's exact test, p < 0.05). Of
equal ones the one whose calls are more often valid counts, then the one that constrains less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.core.values import ChoicePolicy
from callsmith.evals.run.record import Record
from callsmith.evals.scores.comparison import compare
from callsmith.evals.scores.scores import Scores, by_setup, score

SIGNIFICANT: Final = 0.05
# What a setup is for a model that is opened: when it must call, and whether calls it may choose to make are constrained.
OUTCOMES: Final[dict[str, tuple[ChoicePolicy, bool]]] = {
    "free-repaired": ("auto", False),
    "guarded": ("auto", True),
    "required": ("required_first_hop", True),
}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What suits a model, and why."""

    model: str
    setup: str
    policy: ChoicePolicy
    auto_guarded: bool
    scores: dict[str, Scores]
    reasons: tuple[str, ...]

    @property
    def lines(self) -> str:
        """The lines of a preset."""
        return f'policy = "{self.policy}"\nauto_guarded = {str(self.auto_guarded).lower()}'


def suggest(records: Sequence[Record], model: str) -> Suggestion:
    """What suits the model of this name, by the rule."""
    found = {setup.removeprefix(f"{model}/"): rows for setup, rows in by_setup(records).items() if setup.startswith(f"{model}/")}
    measured = [name for name in OUTCOMES if name in found]
    if len(measured) < 2:
        raise UsageError(f"there must be results of at least two of {', '.join(OUTCOMES)} for {model}", field="setup")
    scores = {name: score(name, found[name]) for name in measured}
    if not all(one.calls.n and one.no_call.n for one in scores.values()):
        raise UsageError("a policy follows only from cases with and without right calls: add irrelevance", field="categories")
    reasons, left = list[str](), measured[:1]
    for name in measured[1:]:
        paired = compare(records, f"{model}/{measured[0]}", f"{model}/{name}").groups["irrelevance"]
        if paired.difference < 0 and paired.p < SIGNIFICANT:
            reasons.append(f"{name} calls where nothing is to be called: {100 * paired.difference:+.1f} points, p {paired.p:.4f}")
        else:
            left.append(name)
    best = max(left, key=lambda name: (scores[name].calls.value, scores[name].valid.value, -measured.index(name)))
    reasons.append(f"{best} has the most right calls of {', '.join(left)}: {100 * scores[best].calls.value:.1f} %")
    return Suggestion(model, best, *OUTCOMES[best], scores, tuple(reasons))
