"""The benchmark itself, which is fetched: its own checker takes its own answers."""

import ast
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.evals.bfcl.checker import Checker
from callsmith.evals.bfcl.fetch import fetch
from callsmith.evals.bfcl.load import LIVE, MULTI_TURN, NON_LIVE, load_cases
from callsmith.evals.cases.case import Case

pytestmark = pytest.mark.slow  # by its own make target: the benchmark is fetched

RIGHT = {
    "simple_python": 400,
    "multiple": 200,
    "parallel": 200,
    "parallel_multiple": 200,
    "live_simple": 256,  # of 258: two have no right answer
    "live_multiple": 1051,  # of 1053
    "live_parallel": 16,
    "live_parallel_multiple": 24,
}


@pytest.fixture
async def checker() -> AsyncIterator[Checker]:
    checker = Checker(fetch())
    yield checker
    await checker.close()


def first(values: list[Any]) -> Any:
    """The first acceptable value. In an object each key has a list of them in its turn, but no further down."""
    value = next((value for value in values if value != ""), "")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: next((value for value in values if value != ""), "") for key, values in value.items() if values != [""]}


def gold(case: Case) -> list[Call]:
    """The right calls, without what may be left out."""
    needed: dict[str, Any] = {tool.name: tool.parameters["required"] for tool in case.tools}
    return [
        Call(name, {key: first(list(values)) for key, values in arguments.items() if "" not in values or key in needed[name]})
        for answer in case.answers
        for name, arguments in ((name.replace(".", "_"), arguments) for name, arguments in answer.items())
    ]


async def test_the_benchmarks_own_answers_are_right(checker: Checker):
    right = Counter[str]()
    for case in load_cases(fetch(), [*NON_LIVE, *LIVE]):
        right[case.category] += (await checker.check_calls(case, gold(case))).is_right
    assert dict(right) == RIGHT


async def test_an_argument_that_is_left_out_is_wrong(checker: Checker):
    wrong = 0
    cases = load_cases(fetch(), ["simple_python"])
    for case in cases:
        (call,) = gold(case)
        needed: Any = case.tools[0].parameters["required"]
        kept = {key: value for key, value in call.arguments.items() if key != needed[0]}
        wrong += not (await checker.check_calls(case, [Call(call.name, kept)])).is_right
    assert wrong == len(cases)


def spelled(case: Case, text: str) -> Call:
    """A call that is written in Python."""
    call: Any = ast.parse(text, mode="eval").body
    tools = {tool.name: tool for turn in case.turns for tool in turn.tools}
    names: Any = list(tools[call.func.id].parameters["properties"])  # type: ignore[call-overload]
    values = dict(zip(names, call.args, strict=False)) | {keyword.arg: keyword.value for keyword in call.keywords}
    return Call(call.func.id, {key: ast.literal_eval(value) for key, value in values.items()})


@pytest.mark.parametrize("category", MULTI_TURN)
async def test_conversations_of_the_right_calls_are_right_and_wrong_without_one_of_them(checker: Checker, category: str):
    right, wrong = 0, 0
    cases = load_cases(fetch(), [category])
    for number, case in enumerate(cases):
        assert case.world is not None
        turns = [[[spelled(case, text)] for text in turn] for turn in case.world.gold]
        for turn in turns:
            for step in turn:
                assert await checker.run_calls(f"m{number}", case.world, step)
        right += (await checker.check_conversation(f"m{number}", case.world, turns)).is_right
        del next(turn for turn in turns if turn)[0]
        wrong += not (await checker.check_conversation(f"m{number}", case.world, turns)).is_right
    assert right == len(cases) == 200
    assert wrong > 190  # some first calls only look around
