"""Requests and answers being read, and what is cached of those that come again."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from callsmith.core.types.tables import Table
from callsmith.core.types.tables import kind as kind
from callsmith.core.values import Json, Usage

T = TypeVar("T")

_MOST_TOKENS: Final = 10**9  # that an answer may be said to have


def without_none(data: Mapping[str, Json]) -> dict[str, Json]:
    """The fields that have a value: in a request, a field that is null might as well be absent."""
    return {key: value for key, value in data.items() if value is not None}


class ReusedArray(list[Json]):
    """An array that several request bodies share. Nobody changes it; what was parsed from it is cached with it."""

    def __init__(self, items: Iterable[Json]) -> None:
        super().__init__(items)
        self.cache: dict[object, Any] = {}


class Fields(Table):
    """The fields of a request or an answer."""

    def get_or_parse(self, key: str, make: "Callable[[Fields, str], T]") -> T:
        """What `make` parses from a field; from the cache, where the same array came before."""
        value = self.get(key)
        if not isinstance(value, ReusedArray):
            return make(self, key)
        if make not in value.cache:
            value.cache[make] = make(self, key)
        return value.cache[make]


def as_count(value: Json) -> int:
    """The value, if it may be a number of tokens; else 0: nothing that another server says of itself has to be so."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS else 0


def make_usage(prompt: Json, completion: Json, cached: Json = 0, reasoning: Json = 0) -> Usage:
    """Counts of tokens as another server sends them; a part is no more than the whole."""
    whole = as_count(prompt), as_count(completion)
    return Usage(*whole, min(whole[0], as_count(cached)), min(whole[1], as_count(reasoning)))
