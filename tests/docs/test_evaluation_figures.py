"""The benchmark's figures in docs/evaluation.md follow from one another: shares, means, counts and differences."""

import re

import pytest

from callsmith.evals.scores.statistics import Paired
from tests.docs.blocks import DOCS

SECTION = (DOCS / "evaluation.md").read_text("utf-8").partition("## The benchmark, nearly whole")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (\w+) \| (\d+) \| \**([\d.]+) %\** \| \**([\d.]+) %\** \|$", SECTION, re.MULTILINE)
CASES = {name: int(cases) for name, cases, *_ in ROWS}
WHOLE = CASES | {"live_multiple": 1053, "live_irrelevance": 884}
NON_LIVE = ("simple_python", "multiple", "parallel", "parallel_multiple")
LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
IRRELEVANCE = ("irrelevance", "live_irrelevance")


def right(column: int) -> dict[str, int]:
    """How many cases of each category were right: 2 the template's way, 3 as asked now."""
    counts = {row[0]: round(CASES[row[0]] * float(row[column]) / 100) for row in ROWS}
    assert {row[0]: f"{100 * counts[row[0]] / CASES[row[0]]:.1f}" for row in ROWS} == {row[0]: row[column] for row in ROWS}
    return counts


def mean(names: tuple[str, ...], weights: dict[str, int]) -> str:
    """The mean of some categories as asked now, with these weights, in percent."""
    counts = right(3)
    shares = sum(weights[name] * counts[name] / CASES[name] for name in names)
    return f"{100 * shares / sum(weights[name] for name in names):.1f}"


def test_the_cases_that_were_asked_and_those_that_are_missing_add_up() -> None:
    asked, whole = sum(CASES.values()), sum(WHOLE.values())
    assert len(ROWS) == 11
    assert f"{asked:,} of the benchmark's {whole:,} single questions" in SECTION
    missing = [f"{WHOLE[name] - CASES[name]} of `{name}`" for name in ("live_multiple", "live_irrelevance")]
    assert missing[0].replace(" of", " cases of") in SECTION and missing[1] in SECTION


def test_the_summary_beside_the_leaderboard_follows_from_the_rows() -> None:
    (stated,) = re.findall(
        r"^\| \*\*[^|]+, by callsmith\*\* \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", SECTION, re.MULTILINE
    )
    assert stated == (mean(NON_LIVE, dict.fromkeys(NON_LIVE, 1)), mean(LIVE, CASES), mean(IRRELEVANCE, CASES))
    assert f"they would be {mean(LIVE, WHOLE)} and {mean(IRRELEVANCE, WHOLE)} %" in SECTION


def test_the_difference_and_its_interval_follow_from_the_rows() -> None:
    before, now = sum(right(2).values()), sum(right(3).values())
    found = re.search(r"\+([\d.]+) points \(([\d.]+) to ([\d.]+)\): (\d+) cases gained, (\d+) lost", SECTION)
    assert found
    difference, low, high = map(float, found.groups()[:3])
    gained, lost = int(found[4]), int(found[5])
    assert now - before == gained - lost
    paired = Paired(before - lost, lost, gained, sum(CASES.values()) - before - gained)
    assert (100 * paired.difference, *(100 * bound for bound in paired.interval)) == pytest.approx(
        (difference, low, high), abs=0.05
    )


def test_what_is_lost_by_category_follows_from_the_rows() -> None:
    for name, points in re.findall(r"`(\w+)` −([\d.]+)", SECTION):
        assert f"{100 * (right(2)[name] - right(3)[name]) / CASES[name]:.1f}" == points, name
