"""`ast_eq`: whether calls are the right ones by strict equality: the same names and the same arguments, in any order of calls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from callsmith.core.values import Call, Json
from callsmith.evals.cases.case import Answers

_Wanted = TypeVar("_Wanted")


def ast_eq(calls: Sequence[Call], right: Sequence[Call]) -> bool:
    """Whether the calls are equal: names and arguments, whatever the order of calls and of keys.

    >>> ast_eq([Call("add", {"b": 2, "a": 1})], [Call("add", {"a": 1, "b": 2})])
    True
    """
    return _is_matching(calls, right, lambda call, other: call.name == other.name and _is_same(call.arguments, other.arguments))


def ast_eq_any(calls: Sequence[Call], answers: Answers) -> bool:
    """The same where several values are acceptable: each argument equals one of them, or is left out where "" is among them."""
    return _is_matching(calls, answers, _is_acceptable)


def _is_matching(calls: Sequence[Call], wanted: Sequence[_Wanted], fits: Callable[[Call, _Wanted], bool]) -> bool:
    """Whether each call has a wanted one of its own. A call may fit several: it leaves one to another if it finds one in turn."""
    takers: dict[int, int] = {}  # the number of the call that has it, by the place of a wanted one

    def finds(number: int, tried: set[int]) -> bool:
        for place, candidate in enumerate(wanted):
            if place not in tried and fits(calls[number], candidate):
                tried.add(place)
                if place not in takers or finds(takers[place], tried):
                    takers[place] = number
                    return True
        return False

    return len(calls) == len(wanted) and all(finds(number, set()) for number in range(len(calls)))


def _is_acceptable(call: Call, answer: Mapping[str, Mapping[str, Sequence[Json]]]) -> bool:
    for name, arguments in answer.items():
        if call.name == name.replace(".", "_") or call.name == name:
            return call.arguments.keys() <= arguments.keys() and all(
                any(_fits(call.arguments[key], value) for value in values) if key in call.arguments else "" in values
                for key, values in arguments.items()
            )
    return False


def _fits(value: Json, acceptable: Json) -> bool:
    """Whether a value is an acceptable one. In an object, each key has a list of acceptable values in its turn."""
    if isinstance(value, Mapping) and isinstance(acceptable, Mapping):
        arguments, wanted = cast("Mapping[str, Json]", value), cast("Mapping[str, Json]", acceptable)
        lists = {key: cast("list[Json]", choices) if isinstance(choices, list) else [choices] for key, choices in wanted.items()}
        return arguments.keys() <= lists.keys() and all(
            any(_fits(arguments[key], value) for value in values) if key in arguments else "" in values
            for key, values in lists.items()
        )
    if isinstance(value, list) and isinstance(acceptable, list):
        ours, theirs = cast("list[Json]", value), cast("list[Json]", acceptable)
        return len(ours) == len(theirs) and all(map(_fits, ours, theirs))
    return _is_same(value, acceptable)


def _is_same(one: Any, other: Any) -> bool:
    """Equality of JSON: 1 and 1.0 are the same number, but neither of them is true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        ours, theirs = cast("Mapping[str, Any]", one), cast("Mapping[str, Any]", other)
        return ours.keys() == theirs.keys() and all(_is_same(ours[key], theirs[key]) for key in ours)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        left, right = cast("Sequence[Any]", one), cast("Sequence[Any]", other)
        return len(left) == len(right) and all(map(_is_same, left, right))
    return one == other
