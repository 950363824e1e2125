"""The benchmark's figures in docs/evaluation.md follow from one another: shares, means, counts and differences."""

import re

import pytest

from callsmith.evals.scores.statistics import Paired
from tests.docs.blocks import DOCS

SECTION = (DOCS / "evaluation.md").read_text("utf-8").partition("## The benchmark: all single questions")[2].partition("\n## ")[0]
SHARE = r" \**([\d.]+) %\** \|"
ROWS = re.findall(rf"^\| (\w+) \| ([\d,]+) \|{SHARE * 4}$", SECTION, re.MULTILINE)
CASES = {name: int(cases.replace(",", "")) for name, cases, *_ in ROWS}
MODELS = {"1.5B": 2, "0.5B": 4}  # the column of the template's way; as asked now is the next one
NON_LIVE = ("simple_python", "multiple", "parallel", "parallel_multiple")
LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
IRRELEVANCE = ("irrelevance", "live_irrelevance")


def right(column: int) -> dict[str, int]:
    """How many cases of each category were right."""
    counts = {row[0]: round(CASES[row[0]] * float(row[column]) / 100) for row in ROWS}
    assert {row[0]: f"{100 * counts[row[0]] / CASES[row[0]]:.1f}" for row in ROWS} == {row[0]: row[column] for row in ROWS}
    return counts


def test_all_cases_of_the_benchmark_were_asked() -> None:
    assert len(ROWS) == 11
    assert f"all of the benchmark's {sum(CASES.values()):,} single questions" in SECTION


@pytest.mark.parametrize("model", MODELS)
def test_the_summary_beside_the_leaderboard_follows_from_the_rows(model: str) -> None:
    counts = right(MODELS[model] + 1)
    non_live = sum(counts[name] / CASES[name] for name in NON_LIVE) / len(NON_LIVE)
    by_cases = (sum(counts[name] for name in names) / sum(CASES[name] for name in names) for names in (LIVE, IRRELEVANCE))
    (stated,) = re.findall(
        rf"^\| \*\*[^|]+ {re.escape(model)} [^|]+, by callsmith\*\* \|{SHARE * 3} [^|]+ \|$", SECTION, re.MULTILINE
    )
    assert stated == tuple(f"{100 * share:.1f}" for share in (non_live, *by_cases))


@pytest.mark.parametrize("model", MODELS)
def test_the_difference_and_its_interval_follow_from_the_rows(model: str) -> None:
    before, now = (sum(right(MODELS[model] + way).values()) for way in (0, 1))
    points = r"\+([\d.]+)(?: points)? \(([\d.]+) to ([\d.]+); (\d+)(?: cases)? gained, (\d+) lost\)"
    found = re.search(rf"{re.escape(model)} {points}", SECTION)
    assert found
    gained, lost = int(found[4]), int(found[5])
    assert now - before == gained - lost
    paired = Paired(before - lost, lost, gained, sum(CASES.values()) - before - gained)
    stated = tuple(map(float, found.groups()[:3]))
    assert (100 * paired.difference, *(100 * bound for bound in paired.interval)) == pytest.approx(stated, abs=0.05)


def test_what_is_lost_by_category_follows_from_the_rows() -> None:
    stated = re.findall(r"`(\w+)` −([\d.]+)", SECTION)
    assert [name for name, _ in stated] == ["live_multiple", "multiple"]
    for name, points in stated:
        assert f"{100 * (right(2)[name] - right(3)[name]) / CASES[name]:.1f}" == points, name
