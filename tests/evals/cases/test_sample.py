"""Samples of cases: the same for whoever asks for the same."""

import pytest

from callsmith.core.errors import UnknownName
from callsmith.core.values import Message
from callsmith.evals.cases.case import Case, Turn
from callsmith.evals.cases.sample import sample

CASES = [
    Case(f"{category}_{number}", category, (Turn((Message.user("Hi"),)),)) for category in ("a", "b") for number in range(40)
]


def ids(cases: list[Case]) -> list[str]:
    return [case.id for case in cases]


def test_a_sample_has_as_many_of_each_category_and_is_the_same_again():
    first = sample(CASES, per_category=5)
    assert [case.category for case in first].count("a") == 5
    assert len(first) == 10
    assert ids(sample(CASES[::-1], per_category=5)) == ids(first)
    assert ids(sample(CASES, per_category=5, seed=1)) != ids(first)


def test_a_larger_sample_holds_the_smaller_one():
    assert set(ids(sample(CASES, per_category=5))) < set(ids(sample(CASES, per_category=20)))


def test_the_beginning_of_a_run_has_cases_of_every_category():
    assert {case.category for case in sample(CASES)[:10]} == {"a", "b"}


def test_cases_are_found_by_their_ids():
    assert set(ids(sample(CASES, ids=["a_3", "b_7"]))) == {"a_3", "b_7"}
    with pytest.raises(UnknownName):
        sample(CASES, ids=["a_99"])
