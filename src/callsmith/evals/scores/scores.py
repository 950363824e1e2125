"""Scores of setups: by category, by the benchmark's groups, and what answers cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from callsmith.evals.bfcl.load import ANY_CALL, GROUPS, LIVE, MULTI_TURN, NO_CALL, NON_LIVE
from callsmith.evals.run.record import Record
from callsmith.evals.scores.statistics import Share

_ORDER = (*NON_LIVE, *LIVE, *NO_CALL, *ANY_CALL, *MULTI_TURN)


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one setup. `valid` is the share of the calls that were made that fit the schemas of their tools.

    `equal` is the share of strictly equal answers among the cases that expect calls. Tokens and seconds are those of a case.
    """

    setup: str
    categories: dict[str, Share]
    valid: Share
    equal: Share
    errors: int = 0
    cut_off: int = 0
    retries: int = 0
    repaired: int = 0
    prompt_tokens: float = 0.0
    completion_tokens: float = 0.0
    cached_tokens: float = 0.0
    seconds: float = 0.0
    error_types: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def groups(self) -> dict[str, Share]:
        """The benchmark's groups, as far as there are cases of them: all cases of a group count the same."""
        found = {
            name: _sum(self.categories[one] for one in members if one in self.categories) for name, members in GROUPS.items()
        }
        return {name: share for name, share in found.items() if share.n}

    @property
    def calls(self) -> Share:
        """Of the cases that expect certain calls in one turn, how many were right."""
        return _sum(share for name, share in self.categories.items() if name not in (*NO_CALL, *ANY_CALL, *MULTI_TURN))

    @property
    def no_call(self) -> Share:
        """Of the cases in which nothing is to be called, how many were right."""
        return _sum(share for name, share in self.categories.items() if name in NO_CALL)

    @property
    def overall(self) -> Share:
        """All cases."""
        return _sum(self.categories.values())

    def as_json(self) -> dict[str, Any]:
        """The scores as JSON."""
        return {
            "setup": self.setup,
            "overall": share_json(self.overall),
            "groups": {name: share_json(share) for name, share in self.groups.items()},
            "categories": {name: share_json(share) for name, share in self.categories.items()},
            "schema_valid": share_json(self.valid),
            "ast_eq": share_json(self.equal),
            "errors": self.errors,
            "cut_off": self.cut_off,
            "retries": self.retries,
            "repaired": self.repaired,
            "prompt_tokens": round(self.prompt_tokens, 1),
            "completion_tokens": round(self.completion_tokens, 1),
            "cached_tokens": round(self.cached_tokens, 1),
            "seconds": round(self.seconds, 4),
            "error_types": self.error_types,
        }


def share_json(share: Share) -> dict[str, Any]:
    """A share as JSON."""
    low, high = share.interval
    return {"right": share.right, "n": share.n, "share": round(share.value, 5), "low": round(low, 5), "high": round(high, 5)}


def score(setup: str, records: Sequence[Record]) -> Scores:
    """The scores of a setup's records."""
    n = max(1, len(records))
    errors: dict[str, int] = {}
    for record in records:
        if not record.is_right:
            errors[record.error_type] = errors.get(record.error_type, 0) + 1
    answered = [record for record in records if not record.error]
    return Scores(
        setup,
        {name: _share([record.is_right for record in records if record.category == name]) for name in _categories(records)},
        valid=Share(sum(record.valid for record in records), sum(len(record.calls) for record in records)),
        equal=_share([record.is_equal for record in records if record.is_equal is not None]),
        errors=len(records) - len(answered),
        cut_off=sum(record.finish == "length" for record in records),
        retries=sum(record.retries for record in records),
        repaired=sum(bool(record.repairs) for record in records),
        prompt_tokens=sum(record.prompt_tokens for record in answered) / n,
        completion_tokens=sum(record.completion_tokens for record in answered) / n,
        cached_tokens=sum(record.cached_tokens for record in answered) / n,
        seconds=median([record.seconds for record in answered] or [0.0]),
        error_types=dict(sorted(errors.items(), key=lambda item: -item[1])),
    )


def by_setup(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each setup, in the order in which setups first come."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.setup, []).append(record)
    return found


def _categories(records: Iterable[Record]) -> list[str]:
    found = dict.fromkeys(record.category for record in records)
    return [name for name in _ORDER if name in found] + [name for name in found if name not in _ORDER]


def _share(right: Sequence[bool | None]) -> Share:
    return Share(sum(map(bool, right)), len(right))


def _sum(shares: Iterable[Share]) -> Share:
    return sum(shares, Share(0, 0))
