"""Bounds on grammars, checked before anything is compiled; and which texts are certainly cheap to compile."""

import json
import re
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.values import Schema

P = ParamSpec("P")
T = TypeVar("T")

MAX_BYTES: Final = 64 * 1024  # of a grammar that a user wrote
MAX_RULES: Final = 1000
MAX_DEPTH: Final = 50  # of brackets
MAX_PATTERN: Final = 16 * 1024  # characters of a regular expression
MAX_LARK: Final = 2 * 1024 * 1024  # characters of a text that was written from schemas

_RULE: Final = re.compile(r"^[ \t]*[?!]?[A-Za-z_]\w*(?:::\w+|\[[^\]\n]*\])?[ \t]*:", re.MULTILINE)
_TOKENS: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|/(?:[^/\\\n]|\\.)*/|[(\[{]|[)\]}]')

_SIMPLE_BYTES: Final = 8 * 1024
# What a text of a few kilobytes needs to be costly: a user's grammar or patterns, intersections, long expressions, high counts.
_COSTLY: Final = re.compile(r'%lark|& ?/|"pattern|"(?:min|max)\w+": ?\d{4}|/(?:[^/\\\n]|\\.){256}|[^x]\{\d*,?\d{3}')


def check_pattern(pattern: str, field: str) -> None:
    """Refuse a regular expression that is too long or nested too deeply."""
    if len(pattern) > MAX_PATTERN:
        raise UsageError(f"{field}: has {len(pattern)} characters, at most {MAX_PATTERN} are allowed", field=field)
    _check_depth(re.findall(r"\\.|[(\[{)\]}]", pattern), field)


def check_lark(text: str, field: str = "grammar") -> None:
    """Refuse a grammar written in Lark that is too large or nested too deeply."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise UsageError(f"{field}: has {size} bytes, at most {MAX_BYTES} are allowed", field=field)
    rules = len(_RULE.findall(text))
    if rules > MAX_RULES:
        raise UsageError(f"{field}: has {rules} rules, at most {MAX_RULES} are allowed", field=field)
    _check_depth(_TOKENS.findall(text), field)


def refusing_depth(make: Callable[P, T]) -> Callable[P, T]:
    """The function, which refuses a schema that is nested deeper than Python can follow."""

    @wraps(make)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return make(*args, **kwargs)
        except RecursionError:
            raise UnsupportedSchema("#", "", "it is nested too deeply, or its references are") from None

    return refusing


def is_simple(lark: str) -> bool:
    """Whether a Lark text is so small and plain that compiling it takes milliseconds."""
    return len(lark) <= _SIMPLE_BYTES and not _COSTLY.search(lark)


def is_simple_schema(schema: Schema) -> bool:
    """Whether the Lark text of a schema is certainly simple, too: it is small, and nothing in it multiplies."""
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError):
        return False
    return is_simple(text) and '"$' not in text and '"allOf"' not in text


def _check_depth(tokens: list[str], field: str) -> None:
    depth = 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        if depth > MAX_DEPTH:
            raise UsageError(f"{field}: brackets are nested more than {MAX_DEPTH} deep", field=field)
