"""Checks of what stands in a response template; errors name the place."""

from collections.abc import Mapping
from typing import Any, cast

from callsmith.core.errors import UsageError

Table = Mapping[str, Any]


def error_at(where: str, what: str) -> UsageError:
    """The error of something wrong at a place."""
    return UsageError(f"{where}: {what}", field=where)


def read_table(value: Any, where: str, allowed: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object, with none but the allowed keys, if any are given."""
    if not isinstance(value, dict):
        raise error_at(where, "an object is expected")
    table = cast("dict[str, Any]", value)
    if unknown := [key for key in table if allowed and key not in allowed]:
        raise error_at(where, f"unknown key `{unknown[0]}`; allowed: {', '.join(allowed)}")
    return table


def read_list(value: Any, where: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise error_at(where, "a list is expected")
    return cast("list[Any]", value)
