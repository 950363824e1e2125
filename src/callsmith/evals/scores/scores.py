"""Scores of setups: by category, by the benchmark's groups, and what answers cost; two compared on the cases both were asked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from callsmith.core.errors import UnknownName, UsageError
from callsmith.evals.bfcl.load import ANY_CALL, GROUPS, LIVE, MULTI_TURN, NO_CALL, NON_LIVE
from callsmith.evals.run.record import CaseRecord
from callsmith.evals.scores.statistics import Paired, Share

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
        shares = {
            name: _sum(self.categories[member] for member in members if member in self.categories)
            for name, members in GROUPS.items()
        }
        return {name: share for name, share in shares.items() if share.n}

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


def score(setup: str, records: Sequence[CaseRecord]) -> Scores:
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


def by_setup(records: Iterable[CaseRecord]) -> dict[str, list[CaseRecord]]:
    """The records of each setup, in the order in which setups first come."""
    setups: dict[str, list[CaseRecord]] = {}
    for record in records:
        setups.setdefault(record.setup, []).append(record)
    return setups


def _categories(records: Iterable[CaseRecord]) -> list[str]:
    names = dict.fromkeys(record.category for record in records)
    return [name for name in _ORDER if name in names] + [name for name in names if name not in _ORDER]


def _share(right: Sequence[bool | None]) -> Share:
    return Share(sum(map(bool, right)), len(right))


def _sum(shares: Iterable[Share]) -> Share:
    return sum(shares, Share(0, 0))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second setup against the first. `gains` are the cases that only the second got right, `losses` only the first."""

    first: str
    second: str
    overall: Paired
    groups: dict[str, Paired]
    categories: dict[str, Paired]
    gains: tuple[str, ...]
    losses: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return {
            "first": self.first,
            "second": self.second,
            "overall": _pair_json(self.overall),
            "groups": {name: _pair_json(pair) for name, pair in self.groups.items()},
            "categories": {name: _pair_json(pair) for name, pair in self.categories.items()},
            "gains": list(self.gains),
            "losses": list(self.losses),
        }


def compare(records: Sequence[CaseRecord], first: str, second: str) -> Comparison:
    """Compare two setups, by their names or by the ends of them (`free` for `qwen/free`)."""
    setups = by_setup(records)
    first, second = find_setup(first, setups), find_setup(second, setups)
    before = {(record.case, record.digest): record for record in setups[first]}
    pairs = [(before[record.case, record.digest], record) for record in setups[second] if (record.case, record.digest) in before]
    if not pairs:
        raise UsageError(f"{first} and {second} have no case in common")
    categories = {
        name: [pair for pair in pairs if pair[0].category == name] for name in dict.fromkeys(p[0].category for p in pairs)
    }
    groups = {name: [pair for member in members for pair in categories.get(member, [])] for name, members in GROUPS.items()}
    return Comparison(
        first,
        second,
        _pair(pairs),
        {name: _pair(pairs_of_name) for name, pairs_of_name in groups.items() if pairs_of_name},
        {name: _pair(pairs_of_name) for name, pairs_of_name in categories.items()},
        gains=tuple(sorted(two.case for one, two in pairs if two.is_right and not one.is_right)),
        losses=tuple(sorted(two.case for one, two in pairs if one.is_right and not two.is_right)),
    )


def find_setup(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    """The setup of this name, or the only one whose name ends so."""
    matching = [item for item in known if item == name] or [item for item in known if item.endswith(f"/{name}")]
    if len(matching) != 1:
        raise UnknownName("setup", name, known, field="setup")
    return matching[0]


def _pair(pairs: Sequence[tuple[CaseRecord, CaseRecord]]) -> Paired:
    both = sum(one.is_right and two.is_right for one, two in pairs)
    first = sum(one.is_right and not two.is_right for one, two in pairs)
    second = sum(two.is_right and not one.is_right for one, two in pairs)
    return Paired(both, first, second, len(pairs) - both - first - second)


def _pair_json(paired: Paired) -> dict[str, Any]:
    low, high = paired.interval
    return {
        "n": paired.n,
        "both": paired.both,
        "only_first": paired.first,
        "only_second": paired.second,
        "difference": round(paired.difference, 5),
        "low": round(low, 5),
        "high": round(high, 5),
        "p": round(paired.p, 6),
    }
