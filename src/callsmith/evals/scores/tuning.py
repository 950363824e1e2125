"""Which tool prompt suits a model, and from which threshold on it calls: chosen on one half of the cases, reported on the other.

Every case was asked once with each tool prompt, so that calls were made whatever the model would have decided, and the score of
that decision was kept. The outcome of a case at another threshold follows: below it nothing is called, else what was.

The rule: the mean of two shares, how many cases with right calls are right and how many others are left alone, each as the mean
of its groups. Of thresholds that do nearly as well as the best, within a point, the one that calls most often counts: by chance
alone the best one would move about. Of tool prompts it is the template's own way, then the one with the shorter prompt.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from callsmith.core.errors import UsageError
from callsmith.core.types.escaped_text import in_json
from callsmith.evals.bfcl.load import ANY_CALL, GROUPS, LIVE
from callsmith.evals.cases.case import Case, Expect
from callsmith.evals.cases.sample import half_of
from callsmith.evals.run.record import PLAN, CaseRecord
from callsmith.evals.scores.report import PAIRED_NOTE, Section, Table, comparison_table, markdown, show_share
from callsmith.evals.scores.scores import Comparison, Scores, compare, score, share_json
from callsmith.evals.scores.statistics import Share

TEMPLATE: Final = "template"  # the tool prompt that leaves all to the chat template, with which the others are compared
_NEARLY: Final = Fraction(1, 100)
_BEYOND: Final = 1.0  # log odds: how far beyond all scores a threshold is where every case is called, or none
_NOTE = (
    "The held-out half, each way with the threshold that was best on the other half. Shares with Wilson's 95 % interval in "
    "brackets. Tokens (mean) and seconds (median) are those of answers with calls."
)
Expects = Mapping[str, Expect]  # what is right in a case, by its id


@dataclass(frozen=True, slots=True)
class Way:
    """One tool prompt with its best threshold, which is None where nothing was decided.

    `value` is how well it does on the tuning half, `records` are the outcomes of the held-out half.
    """

    prompt: str
    threshold: float | None
    value: float
    records: tuple[CaseRecord, ...]

    @property
    def scores(self) -> Scores:
        """The scores on the held-out half. Tokens and seconds are those of answers with calls: an answer in words was not written
        where one with calls was asked for."""
        called = score(self.prompt, [record for record in self.records if record.calls])
        costs = {key: getattr(called, key) for key in ("prompt_tokens", "completion_tokens", "cached_tokens", "seconds")}
        return replace(score(self.prompt, self.records), **costs)


@dataclass(frozen=True, slots=True)
class Tuning:
    """All ways, the one that was chosen, and how many cases that rests on."""

    ways: tuple[Way, ...]
    best: Way
    expects: Expects
    tuned_on: int
    held_out: int

    @property
    def template(self) -> Way | None:
        """The template's own way, where it was asked."""
        return next((way for way in self.ways if way.prompt == TEMPLATE), None)

    def shares(self, way: Way) -> dict[str, Share]:
        """Of the held-out half: how many cases with right calls are right, how many others are left alone, and each group."""
        return shares(way.records, self.expects)

    def as_json(self) -> dict[str, Any]:
        """The tuning as JSON."""
        return {
            "tool_prompt": self.best.prompt,
            "threshold": self.best.threshold,
            "tuned_on": self.tuned_on,
            "held_out": self.held_out,
            "ways": {way.prompt: self._way_json(way) for way in self.ways},
        }

    def _way_json(self, way: Way) -> dict[str, Any]:
        share_documents = {name: share_json(share) for name, share in self.shares(way).items()}
        return {
            "threshold": way.threshold,
            "tuning": round(way.value, 5),
            "held_out": {**way.scores.as_json(), "shares": share_documents},
        }


def list_expected(cases: Iterable[Case]) -> dict[str, Expect]:
    """What is right in each case."""
    return {case.id: case.expect for case in cases}


def choose(records: Mapping[str, Sequence[CaseRecord]], expects: Expects) -> Tuning:
    """Choose among tool prompts, by their names, each with the records of the same cases."""
    every = {name: [record for record in way_records if record.case in expects] for name, way_records in records.items()}
    shared = set[str].intersection(*({record.case for record in way_records} for way_records in every.values()))
    tuning, held_out = split({case: expects[case] for case in shared})
    ways: list[Way] = []
    for name, way_records in every.items():
        threshold, value = best_threshold([record for record in way_records if record.case in tuning], expects)
        kept = [record for record in way_records if record.case in held_out]
        ways.append(Way(name, threshold, float(value), tuple(at_threshold(kept, threshold, expects))))
    best = max(ways, key=lambda way: (way.value, way.prompt == TEMPLATE, -_prompt_tokens(every[way.prompt])))
    return Tuning(tuple(ways), best, expects, len(tuning), len(held_out))


def split(expects: Expects) -> tuple[set[str], set[str]]:
    """The tuning half and the held-out half of the cases; a UsageError if nothing can follow from them."""
    tuning = {case for case in expects if half_of(case) == "tuning"}
    held_out = expects.keys() - tuning
    for name, half in (("tuning", tuning), ("held-out", held_out)):
        if len({expects[case] == "no_call" for case in half}) < 2:
            raise UsageError(
                f"the {name} half ({len(half)} cases) must have cases in which something is to be called, and others in which "
                "nothing is: ask more, or add some of both",
                field="cases",
            )
    return tuning, held_out


def best_threshold(records: Sequence[CaseRecord], expects: Expects) -> tuple[float | None, Fraction]:
    """The threshold that does best, and how well that is, from 0 to 1. None where nothing was decided."""
    weights = _weights(records, expects)
    value = sum((weights[record.case] for record in records if record.is_right), Fraction(0))  # everything is called
    decided = sorted((record for record in records if record.score is not None), key=_score)
    if not decided:
        return None, value
    below, stretches = _score(decided[0]) - _BEYOND, list[tuple[Fraction, float, float]]()
    for number, group in groupby(decided, key=_score):
        _extend(stretches, value, below, number)
        for record in group:
            value += weights[record.case] * ((expects[record.case] == "no_call") - record.is_right)
        below = number
    _extend(stretches, value, below, below + _BEYOND)
    best = max(value for value, _, _ in stretches)
    value, low, high = next(stretch for stretch in stretches if stretch[0] >= best - _NEARLY)
    middle = round((low + high) / 2, 2) + 0.0  # which makes -0.0 plain
    return (middle if low < middle <= high else (low + high) / 2), value


def _extend(stretches: list[tuple[Fraction, float, float]], value: Fraction, low: float, high: float) -> None:
    """Add a stretch of thresholds to those before it; one that does as well as the one before goes on with it."""
    if stretches and stretches[-1][0] == value:
        low = stretches.pop()[1]
    stretches.append((value, low, high))


def at_threshold(records: Iterable[CaseRecord], threshold: float | None, expects: Expects) -> list[CaseRecord]:
    """The outcomes of the cases at this threshold."""
    return [_at_threshold(record, threshold, expects[record.case]) for record in records]


def _at_threshold(record: CaseRecord, threshold: float | None, expect: Expect) -> CaseRecord:
    if threshold is None or record.score is None or record.score >= threshold:
        return record
    is_right, is_equal = expect == "no_call", None if record.is_equal is None else False
    wrong = "" if is_right else "no_call"
    return replace(
        record, is_right=is_right, is_equal=is_equal, judge="expect", error_type=wrong, calls=(), valid=0, finish="stop"
    )


def shares(records: Sequence[CaseRecord], expects: Expects) -> dict[str, Share]:
    """How many cases with right calls are right, how many others are left alone, and the groups of both."""
    totals: dict[str, Share] = {"right calls": Share(0, 0), "left alone": Share(0, 0)}
    for record in records:
        share = Share(int(record.is_right), 1)
        for name in ("left alone" if expects[record.case] == "no_call" else "right calls", _group(record, expects)):
            totals[name] = totals.get(name, Share(0, 0)) + share
    return totals


def _weights(records: Sequence[CaseRecord], expects: Expects) -> dict[str, Fraction]:
    """How much a case counts: both kinds alike, of a kind all groups alike, of a group all cases alike."""
    groups = {record.case: (expects[record.case] == "no_call", _tuning_group(record, expects)) for record in records}
    sizes = Counter(groups.values())
    kinds = Counter(kind for kind, _ in sizes)
    return {case: Fraction(1, len(kinds) * kinds[group[0]] * sizes[group]) for case, group in groups.items()}


def _tuning_group(record: CaseRecord, expects: Expects) -> str:
    """The few cases of relevance would weigh as much as hundreds: they count with the others of their kind."""
    return _group(record, expects) if record.category not in ANY_CALL else _BENCHMARK[LIVE[0]]


def _group(record: CaseRecord, expects: Expects) -> str:
    """The benchmark's group of a case; of one's own, its category."""
    nothing = ", nothing to call" if expects[record.case] == "no_call" else ""
    return _BENCHMARK.get(record.category, f"{record.category}{nothing}")


_BENCHMARK: Final = {category: group for group, members in GROUPS.items() for category in members}


def _score(record: CaseRecord) -> float:
    return record.score or 0.0


def _prompt_tokens(records: Sequence[CaseRecord]) -> float:
    return fmean(record.prompt_tokens for record in records)


def ways_table(tuning: Tuning) -> Table:
    """Each way on the held-out half."""
    shares = [tuning.shares(way) for way in tuning.ways]
    names = list(dict.fromkeys(name for way_shares in shares for name in way_shares))
    heads = ["tool prompt", "threshold", *names, "schema-valid calls", "errors", "prompt tokens", "tokens", "seconds"]
    return heads, [
        [
            way.prompt,
            "–" if way.threshold is None else f"{way.threshold:g}",
            *(show_share(way_shares.get(name)) for name in names),
            *_costs(way),
        ]
        for way, way_shares in zip(tuning.ways, shares, strict=True)
    ]


def _costs(way: Way) -> list[str]:
    scores = way.scores
    costs = [f"{scores.prompt_tokens:.0f}", f"{scores.completion_tokens:.0f}", f"{scores.seconds:.2f}"]
    return [show_share(scores.valid), str(scores.errors), *(costs if scores.valid.n else ["–"] * 3)]


def against_template(tuning: Tuning) -> list[Comparison]:
    """Each other way against the template's own, on the held-out half; the one that was chosen first."""
    first = tuning.template
    others = sorted((way for way in tuning.ways if way is not first), key=lambda way: (way is not tuning.best, -way.value))
    if first is None:
        return []
    return [compare([*first.records, *way.records], first.records[0].setup, way.records[0].setup) for way in others]


def preset_lines(tuning: Tuning) -> Sequence[str]:
    """The lines of a preset that follow."""
    threshold = [] if tuning.best.threshold is None else [f"threshold = {tuning.best.threshold}"]
    return [f'tool_prompt = "{tuning.best.prompt}"', *threshold, "auto_guarded = true"]


def write_tuning(folder: Path, name: str, tuning: Tuning) -> Path:
    """Write the report of a model, as Markdown and as JSON beside it; returns where it is."""
    comparisons = against_template(tuning)
    sections: list[Section] = [("Ways", _NOTE, ways_table(tuning))]
    sections += [
        (f"{comparison.second} against {comparison.first}", PAIRED_NOTE, comparison_table(comparison))
        for comparison in comparisons
    ]
    document = {**tuning.as_json(), "comparisons": [comparison.as_json() for comparison in comparisons]}
    file = name.replace("/", "_")  # of a model on a hub
    path = folder / (f"{file}.md" if f"{file}.json" != PLAN else f"{file}_.md")
    path.with_suffix(".json").write_text(in_json(document, 2) + "\n", "utf-8")
    chosen = "\n".join(["", "```toml", *preset_lines(tuning), "```", ""])
    path.write_text(markdown(f"Tuning of {name}", sections) + chosen, "utf-8")
    return path
