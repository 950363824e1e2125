"""Values that are held against each other: whether they are the same, and where they are not."""

import json
from collections.abc import Iterator
from typing import Any, Final, cast

from callsmith.core.types.escaped_text import one_line
from callsmith.core.values import Json
from callsmith.evals.check.exchange import ReceivedCall

_LONGEST_QUOTE: Final = 80  # characters


def arguments_of(call: ReceivedCall) -> Json:
    """The arguments as a value; as they are written, where they are no JSON object."""
    return call.text if call.arguments is None else call.arguments


def canonical(value: Json) -> str:
    """The JSON by which equal values are known: 1 and 1.0 are the same number, and keys have no order."""
    try:
        return json.dumps(_normal(value), sort_keys=True)
    except RecursionError:
        return "nested too deeply"


def _normal(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in cast("dict[str, Json]", value).items()}
    if isinstance(value, list):
        return [_normal(item) for item in cast("list[Json]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def find_swap(one: Json, other: Json) -> str:
    """Which keys that both have come in another order, in whatever depth."""
    try:
        return next(_swaps(one, other), "")
    except RecursionError:
        return ""


def _swaps(one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        ours, theirs = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        here, there = [key for key in ours if key in theirs], [key for key in theirs if key in ours]
        if here != there:
            yield f"the keys are {', '.join(map(quote, here))}, and the reference's {', '.join(map(quote, there))}"
        for key in here:
            yield from _swaps(ours[key], theirs[key])
    elif isinstance(one, list) and isinstance(other, list):
        for left, right in zip(cast("list[Any]", one), cast("list[Any]", other), strict=False):
            yield from _swaps(left, right)


def explain_difference(one: Json, other: Json, path: str = "") -> str:
    """Where two values are not the same, and what stands there."""
    if isinstance(one, dict) and isinstance(other, dict) and path.count(".") < 8:
        ours, theirs = cast("dict[str, Json]", one), cast("dict[str, Json]", other)
        for key in dict.fromkeys((*ours, *theirs)):
            where = f"{path}.{one_line(key, 40)}" if path else one_line(key, 40)
            if key not in theirs:
                return f"{where} is {_show(ours[key])}, and the reference has none"
            if key not in ours:
                return f"{where} is missing, and the reference has {_show(theirs[key])}"
            if canonical(ours[key]) != canonical(theirs[key]):
                return explain_difference(ours[key], theirs[key], where)
    return f"{path or 'the arguments'}: {_show(one)}, and the reference has {_show(other)}"


def strings_in(value: Json) -> list[str]:
    """All texts in a value, names of properties too."""
    texts, left = list[str](), [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict):
            left += [part for pair in cast("dict[str, Json]", item).items() for part in pair]
        elif isinstance(item, list):
            left += cast("list[Json]", item)
    return texts


def quote(text: str) -> str:
    """The beginning of a text, in quotation marks."""
    return f'"{one_line(text.strip(), _LONGEST_QUOTE)}"'


def _show(value: Json) -> str:
    return one_line(canonical(value), _LONGEST_QUOTE)
