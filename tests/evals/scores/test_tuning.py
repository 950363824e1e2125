"""Choosing a threshold and a tool prompt, from records that were made by hand."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from callsmith.core.errors import UsageError
from callsmith.evals.cases.case import Expect
from callsmith.evals.cases.sample import Half, half_of
from callsmith.evals.run.record import CaseRecord, Records, read_plan
from callsmith.evals.scores.tuning import (
    against_template,
    at_threshold,
    best_threshold,
    choose,
    preset_lines,
    shares,
    split,
    write_tuning,
)

CALL = {"name": "add", "arguments": {}}
EXPECTS: dict[str, Expect] = {
    "simple_python": "calls",
    "live_simple": "calls",
    "live_relevance": "any_call",
    "irrelevance": "no_call",
}


def record(case: str, category: str, score: float | None, is_right: bool = True, way: str = "json") -> CaseRecord:
    """A case that was called whatever its score: right, unless nothing is to be called or the call is wrong."""
    is_right = is_right and EXPECTS.get(category) != "no_call"
    return CaseRecord(case, category, f"m/{way}", "d", is_right, calls=(CALL,), valid=1, score=score, is_equal=is_right)


def expects(records: Iterable[CaseRecord]) -> dict[str, Expect]:
    return {item.case: EXPECTS[item.category] for item in records}


def threshold(*rows: tuple[str, float, bool]) -> tuple[float | None, float]:
    records = [record(str(number), category, score, is_right) for number, (category, score, is_right) in enumerate(rows)]
    best, value = best_threshold(records, expects(records))
    return best, float(value)


def test_the_threshold_is_in_the_middle_between_what_is_to_be_called_and_what_is_not():
    rows = [("simple_python", 3.0, True), ("simple_python", 1.0, True), ("irrelevance", -1.0, True), ("irrelevance", -4.0, True)]
    assert threshold(*rows) == (0.0, 1.0)


def test_cases_that_make_no_difference_do_not_narrow_the_stretch():
    # The call at 0 is wrong in either way: the best thresholds are all those between -1 and 1.
    rows = [("simple_python", 1.0, True), ("simple_python", 0.0, False), ("irrelevance", -1.0, True)]
    assert threshold(*rows) == (0.0, 0.75)


def test_of_thresholds_that_do_equally_well_or_nearly_so_the_one_that_calls_most_counts():
    rows = [("simple_python", 8.0, True), ("irrelevance", 4.0, True), ("simple_python", 1.0, True), ("irrelevance", 0.5, True)]
    assert threshold(*rows) == (0.75, 0.75)
    crowd = [("simple_python", 3.0, True)] * 2 + [("irrelevance", 0.0, True)] * 60
    assert threshold(*crowd, ("irrelevance", 1.0, True)) == (0.5, pytest.approx(1 - 0.5 / 61))


@pytest.mark.parametrize(("category", "expected"), [("simple_python", 1.5), ("irrelevance", 4.5)])
def test_a_model_that_is_best_always_calling_or_never_gets_a_threshold_beyond_its_scores(category: str, expected: float):
    assert threshold((category, 2.0, True), (category, 4.0, True)) == (expected, 1.0)


def test_both_kinds_weigh_alike_and_so_do_the_groups_of_a_kind():
    # One irrelevant case against four right calls: calls alone would win by number, and do not by share.
    crowd = [("simple_python", -2.0, True)] + [("simple_python", 3.0, True)] * 3
    assert threshold(*crowd, ("irrelevance", 0.0, True)) == (1.5, 0.875)
    # Of the calls the live one counts as much as the four others; relevance counts with the live ones.
    _, value = threshold(*[("simple_python", 3.0, True)] * 4, ("live_simple", 3.0, False), ("irrelevance", 0.0, True))
    assert value == 0.75
    live = [("live_simple", 3.0, False), ("live_relevance", 3.0, True)]
    assert threshold(*[("simple_python", 3.0, True)] * 4, *live, ("irrelevance", 0.0, True))[1] == pytest.approx(0.875)


def test_where_nothing_was_decided_there_is_no_threshold():
    records = [record("a", "simple_python", None), record("b", "irrelevance", None)]
    assert best_threshold(records, expects(records)) == (None, 0.5)
    assert at_threshold(records, None, expects(records)) == records


def test_below_the_threshold_nothing_is_called_and_what_failed_stays_wrong():
    low, high, silent = record("a", "simple_python", -1.0), record("b", "simple_python", 0.0), record("c", "irrelevance", -1.0)
    failed = CaseRecord("d", "irrelevance", "m/json", "d", error="gone", error_type="error")
    records = [low, high, silent, failed]
    by_case = {item.case: item for item in at_threshold(records, 0.0, expects(records))}
    assert (by_case["a"].is_right, by_case["a"].calls, by_case["a"].error_type, by_case["a"].is_equal) == (
        False,
        (),
        "no_call",
        False,
    )
    assert by_case["b"] == high
    assert (by_case["c"].is_right, by_case["c"].valid, by_case["c"].error_type) == (True, 0, "")
    assert not by_case["d"].is_right


def ids(half: Half) -> Iterator[str]:
    return (name for name in map(str, count()) if half_of(name) == half)


def way(
    name: str, *, tuning: Iterable[tuple[str, float | None]], held_out: Iterable[tuple[str, float | None]]
) -> list[CaseRecord]:
    """Records whose ids are in these halves: the same ones for every way."""
    rows = [*zip(ids("tuning"), tuning, strict=False), *zip(ids("held-out"), held_out, strict=False)]
    return [record(case, category, score, way=name) for case, (category, score) in rows]


TEMPLATE = way(
    "template", tuning=[("simple_python", None), ("irrelevance", None)], held_out=[("simple_python", None), ("irrelevance", None)]
)


@pytest.mark.req("R222", "R228")
def test_the_way_is_chosen_on_one_half_and_reported_on_the_other(tmp_path: Path):
    # In the tuning half 0 parts the two kinds. In the held-out half it does not, and that is what is told.
    found_in = [("simple_python", 1.0), ("irrelevance", -1.0)]
    output = [("simple_python", -0.5), ("irrelevance", -2.0)]
    records = {"template": TEMPLATE, "json": way("json", tuning=found_in, held_out=output)}
    tuning = choose(records, expects(TEMPLATE))
    assert (tuning.best.prompt, tuning.best.threshold, tuning.best.value) == ("json", 0.0, 1.0)
    assert (tuning.tuned_on, tuning.held_out) == (2, 2)
    best_shares = tuning.shares(tuning.best)
    assert (best_shares["right calls"].right, best_shares["left alone"].right, best_shares["irrelevance"].n) == (0, 1, 1)
    (compared,) = against_template(tuning)
    assert (compared.first, compared.second, len(compared.gains), len(compared.losses)) == ("m/template", "m/json", 1, 1)
    assert list(preset_lines(tuning)) == ['tool_prompt = "json"', "threshold = 0.0", "auto_guarded = true"]
    text = write_tuning(tmp_path, "m", tuning).read_text()
    assert "0.0 % (0.0–79.3) of 1" in text
    assert "m/json against m/template" in text
    assert (tmp_path / "m.json").is_file()


@pytest.mark.parametrize("name", ["org/model", "run", "records"])
def test_a_report_has_a_file_of_its_own_whatever_the_model_is_called(tmp_path: Path, name: str):
    results = Records(tmp_path)
    results.describe("m/template", {"model": name}, {})
    for item in TEMPLATE:
        results.add(item)
    path = write_tuning(tmp_path, name, choose({"template": TEMPLATE}, expects(TEMPLATE)))
    assert path.parent == tmp_path
    assert path.read_text().startswith(f"# Tuning of {name}")
    assert path.with_suffix(".json").is_file()
    results.close()
    assert len(Records(tmp_path).all()) == len(TEMPLATE)
    assert list(read_plan(tmp_path)["setups"]) == ["m/template"]


def test_of_equal_ways_the_template_s_own_counts_then_the_shorter_prompt():
    same = [("simple_python", None), ("irrelevance", None)]
    records = {"json": way("json", tuning=same, held_out=same), "template": TEMPLATE}
    assert choose(records, expects(TEMPLATE)).best.prompt == "template"
    assert list(preset_lines(choose(records, expects(TEMPLATE)))) == ['tool_prompt = "template"', "auto_guarded = true"]
    long = [replace(item, prompt_tokens=90) for item in records["json"]]
    short = [replace(item, prompt_tokens=60) for item in records["json"]]
    assert choose({"json": long, "short": short}, expects(TEMPLATE)).best.prompt == "short"


def test_each_half_needs_both_kinds():
    tuning = list(zip(ids("tuning"), range(2), strict=False))
    rows: dict[str, Expect] = {tuning[0][0]: "calls", tuning[1][0]: "no_call"}
    with pytest.raises(UsageError, match="held-out half"):
        split(rows)


def test_cases_of_ones_own_are_grouped_by_their_category_and_kind():
    by_name = shares([record("a", "mine", 1.0), record("b", "mine", 1.0)], {"a": "calls", "b": "no_call"})
    assert list(by_name) == ["right calls", "left alone", "mine", "mine, nothing to call"]
