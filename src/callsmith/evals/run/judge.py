"""Judges answers: by the benchmark's checker where acceptable values are listed, else by strict equality."""

from collections.abc import Sequence

from callsmith.core.schema import validate
from callsmith.core.values import Call
from callsmith.evals.bfcl.checker import Checker, Verdict
from callsmith.evals.cases.case import Case
from callsmith.evals.cases.equality import ast_eq, ast_eq_any


async def judge(case: Case, calls: Sequence[Call], checker: Checker | None) -> tuple[Verdict, str]:
    """The verdict on the calls that were made, and whose it is."""
    if case.expect == "no_call":
        return Verdict(not calls, "" if not calls else "called"), "expect"
    if case.expect == "any_call":
        return Verdict(bool(calls), "" if calls else "no_call"), "expect"
    if not calls:
        return Verdict(False, "no_call"), "expect"
    if case.answers and checker is not None:
        return await checker.check_calls(case, calls), "bfcl"
    is_equal = is_strictly_equal(case, calls)
    return Verdict(bool(is_equal), "" if is_equal else "not_equal"), "ast_eq"


def is_strictly_equal(case: Case, calls: Sequence[Call]) -> bool | None:
    """Whether the calls equal the right ones; None where none are known."""
    if case.calls:
        return ast_eq(calls, case.calls)
    return ast_eq_any(calls, case.answers) if case.answers else None


def count_valid(case: Case, calls: Sequence[Call]) -> int:
    """How many of the calls are of tools that there are, with arguments that fit their schemas."""
    schemas = {tool.name: tool.parameters for turn in case.turns for tool in turn.tools}
    return sum(call.name in schemas and not validate(schemas[call.name], dict(call.arguments)) for call in calls)
