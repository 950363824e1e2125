"""`ast_eq`: strict equality of calls."""

from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.evals.cases.equality import ast_eq, ast_eq_any


@pytest.mark.req("R198")
@pytest.mark.parametrize(
    ("rows", "is_equal"),
    [
        ([("add", {"a": 1, "b": 2}), ("neg", {"x": 3})], True),
        ([("neg", {"x": 3}), ("add", {"b": 2, "a": 1})], True),  # neither calls nor keys have an order
        ([("add", {"a": 1, "b": 2})], False),
        ([("add", {"a": 1, "b": 2}), ("neg", {"x": 3}), ("neg", {"x": 3})], False),
        ([("add", {"a": 1}), ("neg", {"x": 3})], False),
        ([("add", {"a": 1, "b": 2, "c": 0}), ("neg", {"x": 3})], False),
        ([("add", {"a": "1", "b": 2}), ("neg", {"x": 3})], False),
        ([("add", {"a": 1, "b": 2}), ("neg", {"x": True})], False),
        ([("sum", {"a": 1, "b": 2}), ("neg", {"x": 3})], False),
    ],
)
def test_calls_are_equal_if_names_and_arguments_are(rows: list[tuple[str, Any]], is_equal: bool):
    right = [Call("add", {"a": 1, "b": 2}), Call("neg", {"x": 3})]
    assert ast_eq([Call(*item) for item in rows], right) is is_equal


def test_truth_is_no_number_and_a_whole_number_is_the_same_with_a_point():
    assert not ast_eq([Call("f", {"x": [True]})], [Call("f", {"x": [1]})])
    assert ast_eq([Call("f", {"x": {"y": [1.0]}})], [Call("f", {"x": {"y": [1]}})])


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({"city": "Oslo"}, True),
        ({"city": "Oslo", "unit": "c"}, True),
        ({"city": "oslo"}, False),  # unlike the benchmark's checker, which does not look at case
        ({"unit": "c"}, False),
        ({"city": "Oslo", "day": 1}, False),
        ({"city": "Oslo", "unit": {"name": "c"}}, True),
        ({"city": "Oslo", "unit": {"name": "k"}}, False),
    ],
)
def test_where_values_are_listed_one_of_them_must_be_there(arguments: Any, fits: bool):
    answers: Any = [{"get.weather": {"city": ["Oslo", "Oslo, Norway"], "unit": ["c", {"name": ["c", "f"]}, ""]}}]
    assert ast_eq_any([Call("get_weather", arguments)], answers) is fits


def test_a_call_that_fits_two_leaves_the_other_to_whom_it_alone_fits():
    answers: Any = [{"f": {"x": [1, 2]}}, {"f": {"x": [1]}}]
    assert ast_eq_any([Call("f", {"x": 1}), Call("f", {"x": 2})], answers)
    assert not ast_eq_any([Call("f", {"x": 2}), Call("f", {"x": 2})], answers)


def test_many_equal_calls_are_compared_at_once():
    calls, right = ([*[Call("roll", {"sides": 6})] * 60, Call(last, {})] for last in ("stop", "end"))
    assert not ast_eq(calls, right)
    assert ast_eq(calls, calls[::-1])
