"""Two setups compared on the cases that both were asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from callsmith.core.errors import UnknownName, UsageError
from callsmith.evals.bfcl.load import GROUPS
from callsmith.evals.run.record import Record
from callsmith.evals.scores.scores import by_setup
from callsmith.evals.scores.statistics import Paired


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
            "overall": _paired_json(self.overall),
            "groups": {name: _paired_json(one) for name, one in self.groups.items()},
            "categories": {name: _paired_json(one) for name, one in self.categories.items()},
            "gains": list(self.gains),
            "losses": list(self.losses),
        }


def compare(records: Sequence[Record], first: str, second: str) -> Comparison:
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
    groups = {name: [pair for one in members for pair in categories.get(one, [])] for name, members in GROUPS.items()}
    return Comparison(
        first,
        second,
        _paired(pairs),
        {name: _paired(found) for name, found in groups.items() if found},
        {name: _paired(found) for name, found in categories.items()},
        gains=tuple(sorted(two.case for one, two in pairs if two.is_right and not one.is_right)),
        losses=tuple(sorted(two.case for one, two in pairs if one.is_right and not two.is_right)),
    )


def find_setup(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    """The setup of this name, or the only one whose name ends so."""
    found = [one for one in known if one == name] or [one for one in known if one.endswith(f"/{name}")]
    if len(found) != 1:
        raise UnknownName("setup", name, known, field="setup")
    return found[0]


def _paired(pairs: Sequence[tuple[Record, Record]]) -> Paired:
    both = sum(one.is_right and two.is_right for one, two in pairs)
    first = sum(one.is_right and not two.is_right for one, two in pairs)
    second = sum(two.is_right and not one.is_right for one, two in pairs)
    return Paired(both, first, second, len(pairs) - both - first - second)


def _paired_json(paired: Paired) -> dict[str, Any]:
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
