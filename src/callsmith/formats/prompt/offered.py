"""What chat templates are offered: filters, tests, functions and methods, each of which pays for what it does before it does it.

They are those that the templates in use know. What is not here does not exist: the error of a template that needs it names it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Final, TypeAlias, cast

from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.runtime import Undefined
from jinja2.sandbox import safe_range
from jinja2.tests import TESTS
from jinja2.utils import Namespace

from callsmith.formats.prompt.meter import WITH_ITEMS, TooManySteps, gone_over, pay_for, pay_for_all, pay_for_text, reserve, spend

Pay: TypeAlias = Callable[..., None]
_WIDEST: Final = 100  # columns of an indent, places of a number
_LONGEST_NAME: Final = 256  # of an attribute
_LONGEST_FORMAT: Final = 4096
_WIDE_PERCENT: Final = re.compile(r"%[^%a-zA-Z(]*(?:\*|\d{3}|\()")
_WIDE_BRACE: Final = re.compile(r"\{[^{}]*(?:\{|\d{3})")
_SMALL_NEEDLE, _SMALL_TEXT = 100, 30_000  # up to these sizes Python searches with nested loops


def offer_filters(own: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The filters, with `own` ones among them."""
    known = {**FILTERS, **own}
    return {name: _paying(known[name], pay) for name, pay in _FILTERS.items()}


def offer_tests() -> dict[str, Callable[..., Any]]:
    """The tests."""
    known: dict[str, Callable[..., Any]] = {**TESTS, "in": is_in}
    return {name: _paying(known[name], pay) for name, pay in _TESTS.items()}


def pay_for_method(owner: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Pay for the call of a method."""
    kind = "str" if isinstance(owner, str) else type(owner).__name__
    pay = _METHODS.get(kind, {}).get(name)
    if pay is None:
        raise SecurityError(f"chat templates are not offered the method {name} of {kind}")
    pay(owner, *args, **kwargs)


def is_in(item: Any, values: Any) -> bool:
    """`item in values`."""
    if type(values) is dict:
        _get(values, item)
    elif isinstance(values, str):
        _search(values, item)
    else:
        pay_for_all(item)
        pay_for_all(values)
    return item in values


def pay_for_operator(operator: str, left: Any, right: Any) -> None:
    """Pay for `left + right`, and the like, apart from what it makes."""
    if operator == "+":
        if hasattr(left, "__html__") or hasattr(right, "__html__"):  # the other one is escaped
            reserve(20 * (len(left) + len(right)))
    elif operator == "*":
        many, times = (right, left) if isinstance(left, int) else (left, right)
        if isinstance(many, str | list | tuple) and isinstance(times, int):
            size = len(cast("list[Any]", many)) * max(times, 0)
            spend(size >> 3, 8 * size)
    elif operator == "%" and isinstance(left, str):
        _percent(left, right)
    elif operator == "**" and isinstance(right, int) and right > _WIDEST:
        raise TooManySteps("the template raises a number to too high a power")
    elif operator == "-" and not isinstance(left, int | float | Undefined):
        raise TypeError(f"nothing can be taken from a {type(left).__name__}")


def key(value: Any) -> Any:
    """A key of a mapping that the template writes."""
    if not isinstance(value, str | int | float | None):
        raise TypeError(f"{type(value).__name__} is not a key")
    return gone_over(value)


def joined(values: list[Any]) -> str:
    """`a ~ b ~ c`."""
    _join(values)
    return pay_for("".join(map(str, values)))


def counted(items: Any, steps: int) -> Any:
    """What a loop with a test goes over: so many steps each."""
    spend(steps * len(items))
    return items


def spread(values: Any) -> Any:
    """`*values` and `**values` of a call."""
    _items(values)
    return values


def printed(value: Any) -> Any:
    """What is written out. A text is paid for where the output is put together."""
    if type(value) in WITH_ITEMS:
        pay_for_text(value)
    return value


def _dict(*mappings: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
    if not all(isinstance(item, dict) for item in mappings):
        raise TypeError("a mapping is made of a mapping")
    return pay_for(dict(*map(pay_for, mappings), **kwargs))


def _namespace(*mappings: Mapping[str, Any], **kwargs: Any) -> Namespace:
    return Namespace(_dict(*mappings, **kwargs))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {"range": safe_range, "dict": _dict, "namespace": _namespace}


def _paying(function: Callable[..., Any], pay: Pay) -> Callable[..., Any]:
    """The function, with what it does and makes paid for; it makes lists, where jinja2's own would make generators."""
    if pay is _nothing:
        return function
    passed = 1 if hasattr(function, "jinja_pass_arg") else 0  # the environment, or the like, comes first

    @wraps(function)
    def paying(*args: Any, **kwargs: Any) -> Any:
        pay(*args[passed:], **kwargs)
        result = function(*args, **kwargs)
        return pay_for(list(cast("Iterator[Any]", result)) if isinstance(result, Iterator) else result)

    return paying


def _nothing(*_: Any, **__: Any) -> None:
    """It takes no longer for larger values."""


def _all(*args: Any, **kwargs: Any) -> None:
    for item in (*args, *kwargs.values()):
        pay_for_all(item)


def _as_text(value: Any, *args: Any, **kwargs: Any) -> None:
    pay_for_text(value)
    _all(*args, **kwargs)


def _letter_by_letter(value: Any, *_: Any, **__: Any) -> None:
    spend(pay_for_text(value) >> 3)


def _title(value: Any) -> None:
    spend(4 * pay_for_text(value))


def _items(values: Any, *args: Any, **kwargs: Any) -> None:
    """An item at a time, by the names of attributes."""
    names = sum(len(item) for item in (*args, *kwargs.values()) if isinstance(item, str))
    if names > _LONGEST_NAME:
        raise TooManySteps("the template names an attribute that is too long")
    if hasattr(values, "__len__"):
        spend(len(values) * (1 + names))
    if isinstance(values, str):
        spend(0, 96 * len(values))  # every character is a text of its own


def _sort(values: Any, *args: Any, **kwargs: Any) -> None:
    _items(values, *args, **kwargs)
    spend((pay_for_text(values) + len(values)) * len(values).bit_length() >> 2)


def _unique(values: Any, *args: Any, **kwargs: Any) -> None:
    _sort(values, *args, **kwargs)
    spend(len(values) ** 2 >> 4)  # all of them may have one hash


def _join(values: Any, between: Any = "", *args: Any, **kwargs: Any) -> None:
    _items(values, *args, **kwargs)
    (pay_for_all if all(isinstance(value, str) for value in values) else pay_for_text)(values)
    pay_for_text(between)
    size = len(values) * len(str(between))
    spend(size >> 3, 4 * size)


def _trim(text: Any, characters: Any = None) -> None:
    pay_for_text(text)
    if characters is not None:
        spend(len(str(text)) * len(characters) >> 4)


def _replace(text: Any, old: Any, new: Any, *_: Any, **__: Any) -> None:
    _as_text(text, old, new)
    text, old, new = str(text), str(old), str(new)
    _search(text, old)
    size = text.count(old) * len(new)
    spend(size >> 3, 4 * size)


def _search(text: str, part: Any, *_: Any, **__: Any) -> None:
    pay_for_all(text)
    pay_for_all(part)
    if isinstance(part, str) and len(text) <= _SMALL_TEXT:
        spend(len(text) * min(len(part), _SMALL_NEEDLE) >> 6)


def _search_back(text: str, part: str, *_: Any, **__: Any) -> None:
    spend(len(text) * len(part) >> 6)  # Python knows no better way from the end


def _split(text: str, separator: str | None = None, maxsplit: int = -1) -> None:
    if separator is None:
        spend(len(text) >> 2)
        reserve(32 * len(text))
    else:
        _search(text, separator)
        separators = text.count(separator) if separator else 0
        spend(separators, 64 * (separators if maxsplit < 0 else min(separators, maxsplit)))


def _split_back(text: str, separator: str | None = None, maxsplit: int = -1) -> None:
    _search_back(text, separator or " ")
    _split(text, separator, maxsplit)


def _split_lines(text: str, *_: Any) -> None:
    spend(len(text) >> 2)
    reserve(64 * len(text))


def _ends(text: str, part: Any, *_: Any) -> None:
    pay_for_all(part)


def _indent(text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    size = width if isinstance(width, int) else len(width)
    if size > _WIDEST:
        raise TooManySteps("the template indents a text too far")
    reserve(64 * pay_for_text(text))
    lines = len(str(text).splitlines())
    spend(lines, 4 * lines * size)


def _to_json(value: Any, ensure_ascii: Any = False, indent: Any = None, separators: Any = None, sort_keys: Any = False) -> None:
    width = indent if isinstance(indent, int) else len(indent or "")
    if width > _WIDEST or (separators and any(len(separator) > _WIDEST for separator in separators)):
        raise TooManySteps("the template indents JSON too far")
    extra = sum(map(len, separators)) if separators else 0
    spend(pay_for_text(value, max(width, 0) + extra) >> 3)
    if sort_keys:
        spend(pay_for_all(value))


def _percent(text: str, values: Any) -> None:
    if len(text) > _LONGEST_FORMAT or _WIDE_PERCENT.search(text):
        raise TooManySteps("the template formats a text that is too wide")
    reserve(48 * text.count("%") * pay_for_text(values))


def _format_filter(text: Any, *args: Any, **kwargs: Any) -> None:
    pay_for_text(text)
    _percent(str(text), kwargs or args)


def _format_method(text: str, *args: Any, **kwargs: Any) -> None:
    if len(text) > _LONGEST_FORMAT or _WIDE_BRACE.search(text.replace("{{", "").replace("}}", "")):
        raise TooManySteps("the template formats a text that is too wide")
    spend(4 * len(text))
    reserve(48 * text.count("{") * pay_for_text([args, kwargs]))


def _join_method(between: str, values: Any) -> None:
    _join(values, between)


def _get(_mapping: Any, key: Any, *_: Any) -> None:
    if type(key) is not str:
        pay_for_all(key)


def _changed(_loop: Any, *values: Any) -> None:
    _all(*values)


def _pop(values: list[Any], *_: Any) -> None:
    spend(len(values) >> 6)


def _numbers(*values: Any) -> None:
    for value in values:
        if not isinstance(value, int | float):
            raise TypeError(f"{type(value).__name__} is not a number")


def _round(value: Any, precision: Any = 0, *_: Any) -> None:
    _numbers(value, precision)
    if abs(precision) > _WIDEST:
        raise TooManySteps("the template rounds a number to too many places")


_FILTERS: Mapping[str, Pay] = {
    **dict.fromkeys(("abs", "count", "d", "default", "first", "last", "length"), _nothing),
    **dict.fromkeys(("capitalize", "e", "escape", "float", "int", "lower", "upper"), _letter_by_letter),
    **dict.fromkeys(("safe", "string"), _as_text),
    **dict.fromkeys(("items", "list", "map", "reject", "rejectattr", "reverse", "select", "selectattr"), _items),
    **dict.fromkeys(("dictsort", "max", "min", "sort"), _sort),
    "format": _format_filter,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "title": _title,
    "tojson": _to_json,
    "trim": _trim,
    "unique": _unique,
}
_TESTS: Mapping[str, Pay] = {
    **dict.fromkeys(
        ("boolean", "callable", "defined", "escaped", "false", "filter", "float", "in", "integer", "iterable"), _nothing
    ),
    **dict.fromkeys(("mapping", "none", "number", "sameas", "sequence", "string", "test", "true", "undefined"), _nothing),
    **dict.fromkeys(
        ("!=", "<", "<=", "==", ">", ">=", "eq", "equalto", "ge", "greaterthan", "gt", "le", "lessthan", "lt", "ne"), _all
    ),
    **dict.fromkeys(("divisibleby", "even", "odd"), _numbers),
    **dict.fromkeys(("lower", "upper"), _letter_by_letter),
}
_METHODS: Mapping[str, Mapping[str, Pay]] = {
    "str": {
        **dict.fromkeys(("capitalize", "lower", "title", "upper"), _letter_by_letter),
        **dict.fromkeys(("isalnum", "isalpha", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "isupper"), _all),
        **dict.fromkeys(("count", "find", "index", "partition"), _search),
        **dict.fromkeys(("rfind", "rindex", "rpartition"), _search_back),
        **dict.fromkeys(("endswith", "removeprefix", "removesuffix", "startswith"), _ends),
        **dict.fromkeys(("lstrip", "rstrip", "strip"), _trim),
        "format": _format_method,
        "join": _join_method,
        "replace": _replace,
        "rsplit": _split_back,
        "split": _split,
        "splitlines": _split_lines,
    },
    "list": {"append": _nothing, "count": _all, "index": _all, "pop": _pop},
    "tuple": {"count": _all, "index": _all},
    "dict": {"get": _get, "items": _nothing, "keys": _nothing, "values": _nothing},
    "LoopContext": {"changed": _changed, "cycle": _nothing},
}
