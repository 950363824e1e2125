"""The sandbox in which chat templates run: only lists can be changed, and steps and sizes are limited.

A template is a program out of a file that anybody may have made, and it runs wherever a prompt is made. It has no clock: what is
counted are the items of loops, calls, filters and the text that they go over. A limit that is reached is a `TooManySteps`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from types import BuiltinMethodType, FunctionType
from typing import Any, Final, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range

MAX_STEPS: Final = 2_000_000  # of one rendering; the templates in use need some thousand
MAX_TEXT: Final = 32 * 1024 * 1024  # characters of any text in a template, its output too
_CHARACTERS_PER_STEP: Final = 512
_MACRO_STEPS: Final = 8
_SMALL: Final = 64  # what is no longer is not counted by itself: only so much of it fits into a step
_MAX_POWER: Final = 64
_WIDE: Final = re.compile(r"\d{5}|\*")  # a width in a format


class TooManySteps(jinja2.TemplateError):
    """The template exceeds its steps, or makes a text that is too large."""


_used: ContextVar[list[int]] = ContextVar("_used")  # the steps of this rendering: other threads render too


def restart() -> None:
    """A new rendering begins."""
    _used.set([0])


def _spend(steps: int) -> None:
    used = _used.get()
    used[0] += steps
    if used[0] > MAX_STEPS:
        raise TooManySteps(f"the template exceeds its {MAX_STEPS:,} steps")


def _spend_text(size: int) -> None:
    if size > MAX_TEXT:
        raise TooManySteps(f"the template makes a text of more than {MAX_TEXT:,} characters")
    _spend(1 + size // _CHARACTERS_PER_STEP)


def _spend_on(value: Any) -> Any:
    """Count a value that is made, or gone over; and return it."""
    try:
        if len(value) > _SMALL:
            _spend_text(len(value)) if type(value) is str else _spend(len(value))
    except TypeError:  # a number, or nothing
        pass
    return value


def _spend_on_tree(value: Any) -> Any:
    """Count a list or mapping that the template makes, with all that is in it: what is in it twice is there twice."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += cast(dict[Any, Any], one).values()
        elif isinstance(one, list | tuple):
            waiting += cast(list[Any], one)
        _spend(1)
    return value


def _spend_on_loop(items: Any) -> Any:
    """Count the items of a loop: all at once where their number is known."""
    try:
        size = len(items)
    except TypeError:
        if hasattr(items, "__next__"):
            return _counted(items)
        return items
    _spend(1 + size)
    return items


def _counted(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _spend(1)
        yield item


def _concat(pieces: Iterable[str]) -> str:
    """The output of a template, a macro or a block."""
    said = list(pieces)
    _spend_text(sum(map(len, said)))
    return "".join(said)


def _range(*given: int) -> range:
    return _spend_on(safe_range(*given))


class Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox. Lists can be changed, since some templates use one as a queue; all input is copied."""

    intercepted_binops = frozenset({"*", "**", "%"})
    concat = staticmethod(_concat)

    def __init__(self, extensions: list[type[Extension]], filters: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self.filters |= filters
        self.filters = {name: _limited_filter(name, filter) for name, filter in self.filters.items()}
        self.filters |= {_LOOP: _spend_on_loop, _VALUE: _spend_on, _TREE: _spend_on_tree}
        cast(dict[str, Any], self.globals)["range"] = _range
        self.globals.pop("lipsum", None)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return (type(obj) is list and attr in ("append", "pop")) or super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        kind = cast(object, type(__obj))
        if kind is Macro:
            _spend(_MACRO_STEPS)
            for one in args:
                _spend_on(one)
        elif kind is BuiltinMethodType or kind is FunctionType:
            target = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)  # jinja2 wraps `format`
            if type(target) is str:
                _check_method(target, __obj.__name__, args)
            elif type(target) is list:
                for one in args:
                    _spend_on_tree(one)
        elif kind is LoopContext:
            _spend(_MACRO_STEPS)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        match operator:
            case "**" if isinstance(right, int) and right > _MAX_POWER:
                raise TooManySteps("the template raises a number to too high a power")
            case "*" if isinstance(left, int) and isinstance(right, int):
                _spend((left.bit_length() + right.bit_length()) // 64)
            case "*":
                text, times = (left, right) if isinstance(right, int) else (right, left)
                if isinstance(text, str | list | tuple) and isinstance(times, int):
                    (_spend_text if isinstance(text, str) else _spend)(len(cast(str, text)) * max(times, 0))
            case "%" if isinstance(left, str):
                _check_format(left, right)
            case _:
                pass
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if type(argument) is slice:
            _spend_on(obj)
        return super().getitem(obj, argument)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _count(tree)
        return tree


_LOOP, _VALUE, _TREE = "callsmith loop", "callsmith value", "callsmith tree"  # names that no template can write


def _count(tree: nodes.Template) -> None:
    """Have everything counted that makes or goes over values without a call."""
    for loop in tree.find_all(nodes.For):
        loop.iter = _filtered(loop.iter, _LOOP)
    for made in tree.find_all(nodes.Assign):
        if isinstance(made.node, nodes.Concat | nodes.Add | nodes.CondExpr | nodes.Filter | nodes.Getitem):
            made.node = _filtered(made.node, _VALUE)
    for compared in tree.find_all(nodes.Compare):
        for one in compared.ops:
            if one.op in ("in", "notin") and not isinstance(one.expr, nodes.List | nodes.Tuple):
                one.expr = _filtered(one.expr, _VALUE)
    for call in tree.find_all(nodes.Call):
        call.args = [_filtered(one, _TREE) if isinstance(one, nodes.List | nodes.Dict) else one for one in call.args]
        for keyword in call.kwargs:
            keyword.value = _filtered(keyword.value, _TREE if isinstance(keyword.value, nodes.List | nodes.Dict) else _VALUE)
    for made in tree.find_all(nodes.Assign):
        if any(made.node.find_all((nodes.List, nodes.Dict))) or isinstance(made.node, nodes.List | nodes.Dict):
            made.node = _filtered(made.node, _TREE)


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _limited_filter(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, with what it goes over counted, and what it would make checked."""
    check = _FILTER_CHECKS.get(name)
    if name in _CHEAP_FILTERS:
        return filter
    if hasattr(filter, "jinja_pass_arg"):

        @wraps(filter)
        def passed(context: Any, value: Any = None, *args: Any, **kwargs: Any) -> Any:
            _spend_on(value)
            if check:
                check(value, *args, **kwargs)
            return filter(context, value, *args, **kwargs)

        return passed

    @wraps(filter)
    def limited(value: Any, *args: Any, **kwargs: Any) -> Any:
        _spend_on(value)
        if check:
            check(value, *args, **kwargs)
        return filter(value, *args, **kwargs)

    return limited


def _check_method(text: str, name: str, args: tuple[Any, ...]) -> None:
    if len(text) > _SMALL:
        _spend_text(len(text))
    if name in ("center", "ljust", "rjust", "zfill", "expandtabs"):
        _check_width(text, *args)
    elif name == "replace":
        _check_replace(text, *args)
    elif name == "join" and args:
        _check_join(args[0], text)
    elif name in ("format", "format_map"):
        _check_format(text, args)
    elif name == "translate":
        raise TooManySteps("templates may not translate texts")


def _check_width(text: Any, width: Any = 80, *_: Any, **__: Any) -> None:
    if isinstance(width, int):
        _spend_text(width * (1 + str(text).count("\t") + str(text).count("\n")))


def _check_replace(text: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> None:
    times = str(text).count(str(old))
    _spend_text(len(str(text)) + times * len(str(new)))


def _check_join(items: Any, separator: Any = "", *_: Any, **__: Any) -> None:
    if isinstance(items, list | tuple):
        found = cast(list[Any], items)
        size = sum(len(one) if isinstance(one, str) else 16 for one in found)
        _spend_text(size + len(found) * len(str(separator)))


def _check_format(text: Any, values: Any = (), *_: Any, **__: Any) -> None:
    if _WIDE.search(str(text)) or str(text).count("{") > 1000:
        raise TooManySteps("the template formats a text that is too wide")
    given = cast(tuple[Any, ...], values if isinstance(values, tuple) else (values,))
    largest = max((len(one) for one in given if isinstance(one, str)), default=0)
    _spend_text(len(str(text)) + largest * max(1, str(text).count("%") + str(text).count("{")))


def _check_indent(text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    size = len(width) if isinstance(width, str) else width if isinstance(width, int) else 4
    _spend_text(len(str(text)) + size * (1 + str(text).count("\n")))


def _check_batch(_items: Any, count: Any = 1, *_: Any, **__: Any) -> None:
    if isinstance(count, int):
        _spend(count)


_CHEAP_FILTERS: Final = frozenset(
    {"abs", "attr", "count", "d", "default", "first", "float", "int", "items", "last", "length", "round", "safe", "string"}
)
_FILTER_CHECKS: Mapping[str, Callable[..., None]] = {
    "center": _check_width,
    "replace": _check_replace,
    "join": _check_join,
    "format": _check_format,
    "indent": _check_indent,
    "batch": _check_batch,
    "slice": _check_batch,
}
