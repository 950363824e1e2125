"""Checks the fields of the public values against their annotations, when a value is built.

    >>> Sampling(temperature="hot")
    Traceback (most recent call last):
    callsmith.core.errors.UsageError: Sampling.temperature: expected a number or None, got the str 'hot'

Values are built on hot paths. Each pays for one expression, which is compiled once a class and knows the exact types; what that
does not recognise is looked at closely: subclasses are fine, a list becomes a tuple, and the rest is a UsageError. The compiled
`__init__` sets slots by their descriptors, which more than pays for the checks.
"""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from functools import cache
from inspect import isclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from callsmith.core.errors import UnknownName, UsageError

T = TypeVar("T")

_SIMPLE: Mapping[Any, str] = {str: "a str", bool: "True or False", int: "an int", float: "a number", NoneType: "None"}


def check_fields(kind: type[T]) -> type[T]:
    """Give a frozen dataclass with slots an `__init__` that checks the fields; `__post_init__` runs afterwards.

    `field(metadata={"advice": ...})` is added to the complaint about that field.
    """
    known: dict[str, Any] = {"examine": examine_fields, "LATER": object()}
    parameters, body, tests = ["self"], list[str](), list[str]()
    for field in fields(kind):  # pyright: ignore[reportArgumentType]
        name = field.name
        default = field.default
        if field.default_factory is not MISSING:
            known[f"make_{name}"], default = field.default_factory, known["LATER"]
            body.append(f"if {name} is LATER: {name} = make_{name}()")
        known |= {f"set_{name}": getattr(kind, name).__set__, f"default_{name}": default}
        parameters.append(name if default is MISSING else f"{name}=default_{name}")
        body.append(f"set_{name}(self, {name})")
        tests.append(_exact_test(name, field.type, known))
    body.append(f"if not ({' and '.join(filter(None, tests))}): examine(self)")
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body), known)
    known["__init__"].__annotations__ = kind.__init__.__annotations__
    kind.__init__ = known["__init__"]
    return kind


def replace(value: T, **changes: Any) -> T:
    """`dataclasses.replace`, in half the time, for hot paths: compiled once a class as well."""
    return replacer(type(value))(value, **changes)


@cache
def replacer(kind: Any) -> Callable[..., Any]:
    """What `replace` does for values of one class, for the hottest paths."""
    known: dict[str, Any] = {"KEPT": object()}
    parameters = ", ".join(f"{field.name}=KEPT" for field in fields(kind))
    values = ", ".join(
        f"{f'{field.name}=' if field.kw_only is True else ''}self.{field.name} if {field.name} is KEPT else {field.name}"
        for field in fields(kind)
    )
    exec(f"def replaced(self, {parameters}): return self.__class__({values})", known)
    return known["replaced"]


def _exact_test(value: str, hint: Any, known: dict[str, Any]) -> str:
    """An expression that is true only for values that surely fit; empty where everything does."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return ""
    if origin in (Union, UnionType):
        ordered = sorted(inner, key=lambda member: member is not NoneType)
        return "(" + " or ".join(_exact_test(value, item, known) for item in ordered) + ")"
    if origin is Literal:
        return f"{value} in {inner!r}"
    if origin is tuple and isclass(inner[0]):  # mostly of none or one
        kind = _add_name(inner[0], known)
        many = f"[*map(type, {value})].count({kind}) == len({value})"
        return f"type({value}) is tuple and (not {value} or type({value}[0]) is {kind} and (len({value}) == 1 or {many}))"
    if origin is tuple or origin is frozenset:
        kinds = _add_name(frozenset(get_args(inner[0]) or inner), known)
        return f"type({value}) is {origin.__name__} and {kinds}.issuperset(map(type, {value}))"
    if origin is Mapping:
        return f"type({value}) is dict" + ("" if inner[1] is Any else f" and not {value}")
    if origin is Callable:
        return f"callable({value})"
    if hint is NoneType:
        return f"{value} is None"
    if hint is float:
        return f"(type({value}) is float or type({value}) is int)"
    return f"type({value}) is {_add_name(hint, known)}"


def _add_name(thing: Any, known: dict[str, Any]) -> str:
    """A name for a class in the compiled expression; a class that is only quoted yet matches nothing."""
    name = f"kind_{len(known)}"
    known[name] = thing
    return name


class _Mismatch(Exception):
    """A value that does not fit; the message is added to the complaint."""


def examine_fields(value: Any) -> None:
    """Look at every field of a value: make tuples of lists, and raise a UsageError for the first that does not fit."""
    hints, name = _hints(value.__class__), str(value.__class__.__name__)
    for field in fields(value):
        advice = field.metadata.get("advice", "")
        fitted = check_argument(f"{name}.{field.name}", getattr(value, field.name), hints[field.name], advice, field=field.name)
        object.__setattr__(value, field.name, fitted)


def check_argument(name: str, value: Any, hint: Any, advice: str = "", *, field: str = "") -> Any:
    """The argument as the annotation wants it; one that does not fit is a UsageError that says what was expected."""
    if type(value) is hint:
        return value
    try:
        return _fit(value, hint)
    except _Mismatch as mismatch:
        got = "None" if value is None else f"the {type(value).__name__} {reprlib.repr(value)}"
        complaint = f"{name}: expected {_describe(hint)}, got {got}"
        raise UsageError("; ".join(filter(None, (complaint, str(mismatch), advice))), field=field or name) from None


def check_items(name: str, items: Iterable[T], kind: type[T]) -> tuple[T, ...]:
    """The items as a tuple; a UsageError if they are not all of this class."""
    value: Any = items
    checked = tuple(items) if isinstance(value, Iterable) and not isinstance(value, str) else None
    if checked is None or [*map(type, checked)].count(kind) != len(checked):
        check_argument(name, value if checked is None else checked, tuple[kind, ...])
    return checked or ()


def check_keywords(kind: Any, keywords: Mapping[str, Any]) -> None:
    """Hold keyword arguments to a TypedDict: no unknown names, no wrong types."""
    hints = _hints(kind)
    for name, value in keywords.items():
        if name not in hints:
            raise UnknownName("setting", name, hints, field=name)
        check_argument(name, value, hints[name])


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _fit(value: Any, hint: Any) -> Any:
    """The value as the annotation wants it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _fit_any(value, inner)
    if origin is Literal:
        if value not in inner:
            close = get_close_matches(value, inner, 1) if isinstance(value, str) else []
            raise _Mismatch(f"did you mean {close[0]!r}?" if close else "")
        return value
    if origin is tuple or origin is frozenset:
        if not isinstance(value, (tuple, list) if origin is tuple else (frozenset, set)):
            raise _Mismatch
        items = [_fit(item, inner[0]) for item in cast("list[Any]", value)]
        return tuple(items) if origin is tuple else frozenset(items)
    if origin is Sequence:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise _Mismatch
        for item in cast("Sequence[Any]", value):
            _fit(item, inner[0])
        return cast("Sequence[Any]", value)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise _Mismatch
        for item in cast("Mapping[Any, Any]", value).values():
            _fit(item, inner[1])
        return cast("Mapping[Any, Any]", value)
    if not _is_a(value, hint):
        raise _Mismatch
    return value


def _fit_any(value: Any, hints: tuple[Any, ...]) -> Any:
    reason = ""
    for hint in hints:
        try:
            return _fit(value, hint)
        except _Mismatch as mismatch:
            reason = reason or str(mismatch)
    raise _Mismatch(reason)


def _is_a(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) is Callable:
        return callable(value)
    if get_origin(kind) is type:
        return isclass(value) and issubclass(value, get_args(kind)[0])
    if getattr(kind, "_is_protocol", False):
        return not isclass(value) and all(hasattr(value, name) for name in _members(kind))
    if kind is int or kind is float:  # True is an int to Python, and a mistake here
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, kind)


@cache
def _members(protocol: Any) -> tuple[str, ...]:
    return tuple(name for name in cast("dict[str, Any]", vars(protocol)) if not name.startswith("_"))


def _describe(hint: Any) -> str:
    """The annotation in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_describe, inner))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, inner))
    if origin in (tuple, frozenset, Sequence):
        kinds = get_args(inner[0]) if get_origin(inner[0]) in (Union, UnionType) else inner[:1]
        return f"a {origin.__name__.lower()} of {' or '.join(getattr(kind, '__name__', str(kind)) for kind in kinds)}"
    if origin is Mapping:
        return "a mapping"
    if origin is Callable:
        return "a function"
    return _SIMPLE.get(hint) or f"{'an' if hint.__name__[0] in 'AEIOU' else 'a'} {hint.__name__}"
