"""Scores, comparisons and reports of results that were made by hand."""

import json
from pathlib import Path

import pytest

from callsmith.core.errors import UnknownName, UsageError
from callsmith.evals.run.record import CaseRecord
from callsmith.evals.scores.report import comparison_table, write_reports
from callsmith.evals.scores.scores import compare, score

CALL = {"name": "add", "arguments": {}}


def records(setup: str, category: str, verdicts: str, **fields: object) -> list[CaseRecord]:
    """A record a letter: `+` is right, `-` wrong, `!` an error."""
    return [
        CaseRecord(f"{category}_{number}", category, setup, "d", letter == "+", error="gone" if letter == "!" else "", **fields)  # type: ignore[arg-type]
        for number, letter in enumerate(verdicts)
    ]


RESULTS = [
    *records("m/free", "simple_python", "++--", calls=(CALL,), valid=0, completion_tokens=10, seconds=2.0),
    *records("m/free", "irrelevance", "+++!"),
    *records("m/required", "simple_python", "+++-", calls=(CALL,), valid=1, completion_tokens=20),
    *records("m/required", "irrelevance", "----"),
]


def test_scores_are_told_by_group_and_an_error_is_never_right():
    scores = score("m/free", [item for item in RESULTS if item.setup == "m/free"])
    assert {name: (share.right, share.n) for name, share in scores.groups.items()} == {
        "non-live AST": (2, 4),
        "irrelevance": (3, 4),
    }
    assert scores.errors == 1
    assert (scores.valid.right, scores.valid.n) == (0, 4)
    assert (scores.calls.n, scores.no_call.n, scores.overall.n) == (4, 4, 8)
    assert scores.completion_tokens == 5.0


def test_two_setups_are_compared_on_the_same_cases_only():
    comparison = compare([*RESULTS, *records("m/required", "multiple", "++")], "free", "required")
    assert comparison.overall.n == 8
    assert comparison.gains == ("simple_python_2",)
    assert comparison.losses == ("irrelevance_0", "irrelevance_1", "irrelevance_2")
    assert comparison.groups["irrelevance"].difference == -0.75
    assert comparison.categories["simple_python"].p == 1.0


def test_a_case_that_was_changed_is_another_case():
    changed = [CaseRecord("simple_python_0", "simple_python", "m/other", "e", True)]
    with pytest.raises(UsageError, match="no case in common"):
        compare([*RESULTS, *changed], "free", "other")


def test_a_setup_that_is_not_there_or_not_the_only_one_is_named():
    with pytest.raises(UnknownName):
        compare(RESULTS, "free", "guarded")
    with pytest.raises(UnknownName):
        compare([*RESULTS, *records("n/free", "multiple", "+")], "free", "required")


def test_reports_hold_the_scores_the_comparison_and_a_plot(tmp_path: Path):
    write_reports(tmp_path, RESULTS, {"version": 1})
    page, html = (tmp_path / "report.md").read_text(), (tmp_path / "report.html").read_text()
    assert "| m/free | 50.0 % (15.0–85.0) of 4 | 75.0 % (30.1–95.4) of 4 |" in page
    assert "| simple_python | 4 | +25.0 |" in page
    assert "m/required against m/free" in page
    assert "<svg" in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")  # nothing is loaded
    body = json.loads((tmp_path / "results.json").read_text())
    assert [item["setup"] for item in body["scores"]] == ["m/free", "m/required"]
    assert body["comparisons"][0]["losses"] == ["irrelevance_0", "irrelevance_1", "irrelevance_2"]


def test_a_group_and_a_category_of_the_same_name_are_both_told():
    rows = [
        record
        for setup in ("m/a", "m/b")
        for name in ("irrelevance", "live_irrelevance")
        for record in records(setup, name, "+-")
    ]
    rows_shown = [(row[0], row[1]) for row in comparison_table(compare(rows, "a", "b"))[1]]
    assert rows_shown == [("all", "4"), ("irrelevance (group)", "4"), ("irrelevance", "2"), ("live_irrelevance", "2")]
