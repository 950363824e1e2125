"""Reading JSON that others wrote: lenient about what is absent or null, exact about what is wrong and where.

>>> Fields({"top_p": "high"}).number("top_p")
UsageError: top_p: expected a number, got a string
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Self, TypeVar, cast

from callsmith.core.errors import UsageError
from callsmith.core.values import Json, Usage

T = TypeVar("T")

_KINDS: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",  # before int, whose subclass it is
    int: "an integer",
    float: "a number",
    type(None): "null",
}

_MOST_TOKENS: Final = 10**9  # that an answer may be said to have


def kind(value: Json) -> str:
    """The kind of a JSON value, for an error message: "an object"."""
    return next((name for known, name in _KINDS.items() if isinstance(value, known)), "something that is not JSON")


def without_none(data: Mapping[str, Json]) -> dict[str, Json]:
    """The fields that have a value: in a request, a field that is null might as well be absent."""
    return {key: value for key, value in data.items() if value is not None}


class ReusedArray(list[Json]):
    """An array that several request bodies share. Nobody changes it; what was parsed from it is cached with it."""

    def __init__(self, items: Iterable[Json]) -> None:
        super().__init__(items)
        self.cache: dict[object, Any] = {}


class Fields:
    """A JSON object being read. `None` comes back for what is absent or null; every error names its field."""

    def __init__(self, data: Mapping[str, Json], path: str = "") -> None:
        self.data = data
        self.path = path

    @classmethod
    def of(cls, value: Json, path: str) -> Self:
        """The object at this path, or an error that it is none."""
        if not isinstance(value, dict | Mapping):  # a dict is known as one at once, a Mapping after a search
            raise UsageError(f"{path or 'the body'}: expected an object, got {kind(value)}", field=path or None)
        return cls(cast(Mapping[str, Json], value), path)

    def at(self, key: str) -> str:
        """The path of a field in here."""
        return f"{self.path}.{key}" if self.path else key

    def error(self, key: str, why: str) -> UsageError:
        """The error about a field."""
        return UsageError(f"{self.at(key)}: {why}", field=self.at(key))

    def get(self, key: str) -> Json:
        return self.data.get(key)

    def text(self, key: str) -> str | None:
        return self._typed(key, str, "a string")

    def required_text(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise self.error(key, "is required and may not be empty")
        return value

    def flag(self, key: str) -> bool | None:
        return self._typed(key, bool, "a boolean")

    def integer(self, key: str, least: int | None = None, most: int | None = None) -> int | None:
        value = self.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self.error(key, f"expected an integer, got {kind(value)}")
        if value is not None and least is not None and value < least:
            raise self.error(key, f"must be at least {least}, got {value}")
        if value is not None and most is not None and value > most:
            raise self.error(key, f"must be at most {most}, got {value}")
        return value

    def number(self, key: str, most: float = 1e308, *, least: float = 0) -> float | None:
        """A number from `least` to `most`; as it stands, from 0 to about as much as a float holds."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"expected a number, got {kind(value)}")
        if not least <= value <= most:
            bounds = f"at least {least:g}" if value < least else f"at most {most:g}"
            raise self.error(key, f"must be {bounds}, got {value}")
        return float(value)

    def object(self, key: str) -> "Fields | None":
        value = self.get(key)
        return None if value is None else Fields.of(value, self.at(key))

    def required_object(self, key: str) -> "Fields":
        return Fields.of(self.get(key), self.at(key))

    def array(self, key: str) -> list[Json] | None:
        return self._typed(key, cast(type[list[Json]], list), "an array")

    def objects(self, key: str) -> "Iterator[Fields]":
        """The objects of an array."""
        for index, value in enumerate(self.array(key) or ()):
            yield Fields.of(value, f"{self.at(key)}.{index}")

    def cached(self, key: str, make: "Callable[[Fields, str], T]") -> T:
        """What `make` parses from a field; from the cache, where the same array came before."""
        value = self.get(key)
        if not isinstance(value, ReusedArray):
            return make(self, key)
        if make not in value.cache:
            value.cache[make] = make(self, key)
        return value.cache[make]

    def texts(self, key: str) -> tuple[str, ...]:
        """The strings of an array; one string alone counts as an array of one."""
        value: Any = self.get(key)
        if isinstance(value, str):
            return (value,)
        for index, one in enumerate(self.array(key) or ()):
            if not isinstance(one, str):
                raise self.error(f"{key}.{index}", f"expected a string, got {kind(one)}")
        return tuple(value or ())

    def _typed(self, key: str, wanted: type[T], name: str) -> T | None:
        value = self.get(key)
        if value is not None and not isinstance(value, wanted):
            raise self.error(key, f"expected {name}, got {kind(value)}")
        return value


def as_count(value: Json) -> int:
    """The value, if it may be a number of tokens; else 0: nothing that another server says of itself has to be so."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS else 0


def as_object(value: Json) -> Mapping[str, Json]:
    """The value, if it is an object; else an empty one."""
    return cast("Mapping[str, Json]", value) if isinstance(value, Mapping) else {}


def as_list(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def as_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def as_ids(value: Json) -> tuple[int, ...]:
    """The ids in a list; what is none is left out."""
    return tuple(one for one in as_list(value) if isinstance(one, int) and not isinstance(one, bool))


def counted(prompt: Json, completion: Json, cached: Json = 0, reasoning: Json = 0) -> Usage:
    """Counts of tokens as another server sends them; a part is no more than the whole."""
    whole = as_count(prompt), as_count(completion)
    return Usage(*whole, min(whole[0], as_count(cached)), min(whole[1], as_count(reasoning)))
