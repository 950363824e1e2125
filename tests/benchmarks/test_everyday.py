"""Everyday questions as cases for `callsmith eval`: they are read, and what they call right fits their tools."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.journeys import World
from callsmith.core.values import Call
from callsmith.evals.cases.case import Case, read_cases
from callsmith.evals.cases.sample import half_of
from callsmith.evals.run.runner import count_valid, judge

CASES = read_cases(Path(__file__).parents[2] / "benchmarks" / "everyday.jsonl")
CALLING = [case for case in CASES if case.expect == "calls"]


def right_calls(case: Case, place: int, *, whole: bool) -> list[Call]:
    """Calls of acceptable values, the first or the last of each; `whole`: with what may be left out."""
    made: list[Call] = []
    for answer in case.answers:
        for name, values in answer.items():
            given = {key: [item for item in some if item != ""] for key, some in values.items() if whole or "" not in some}
            made.append(Call(name, {key: some[place] for key, some in given.items() if some}))
    return made


def test_there_are_cases_of_each_kind_in_both_halves():
    counts = Counter((case.category, half_of(case.id)) for case in CASES)
    assert {category for category, _ in counts} == {
        "everyday_none",
        "everyday_one",
        "everyday_several",
        "everyday_history_none",
        "everyday_history_call",
    }
    assert len(counts) == 10 and min(counts.values()) >= 3
    assert len(CASES) >= 120


@pytest.mark.parametrize("case", CALLING, ids=lambda case: case.id)
async def test_all_acceptable_values_fit_the_tools_and_are_right(case: Case):
    for made in (right_calls(case, 0, whole=False), right_calls(case, -1, whole=True)):
        assert count_valid(case, made) == len(made)
        assert (await judge(case, made, None))[0].is_right
        assert not (await judge(case, made[1:], None))[0].is_right


def test_a_category_says_what_is_expected():
    for case in CASES:
        assert (case.expect == "no_call") == case.category.endswith("none"), case.id
        assert (len(case.answers) > 1) == (case.category == "everyday_several"), case.id
        assert ("history" in case.category) == (len(case.messages) > 1), case.id
        assert case.messages[-1].role == "user" and 1 <= len(case.tools) <= 6, case.id


def test_the_tools_are_not_those_of_other_benchmarks_here():
    assert not [tool.name for case in CASES for tool in case.tools if hasattr(World, tool.name)]
