"""Tables that others wrote, JSON objects and TOML: exact about what is wrong and where, lenient about what is absent or null.

>>> Table({"top_p": "high"}).number("top_p")
UsageError: top_p: expected a number, got a string
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar, cast

from callsmith.core.errors import UnknownName, UsageError, shorten
from callsmith.core.types.json_types import Json

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


def kind(value: Json) -> str:
    """The kind of a JSON value, for an error message: "an object"."""
    return next((name for known, name in _KINDS.items() if isinstance(value, known)), "something that is not JSON")


def error_at(path: str, why: str) -> UsageError:
    """The error about what is at a path."""
    return UsageError(f"{path}: {why}", field=path)


def parse_toml(text: str) -> dict[str, Json]:
    """The table of a TOML text."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"not TOML: {error}") from error


class Table:
    """An object being read. `None` comes back for what is absent or null; every error names its field."""

    separator: ClassVar[str] = "."

    def __init__(self, data: Mapping[str, Json], path: "str | tuple[Table, str, int | None]" = "") -> None:
        self.data = data
        self._path = path  # or what it is made of: few tables ever have to say where they are

    @property
    def path(self) -> str:
        """Where this is, for an error message."""
        if not isinstance(self._path, str):
            parent, key, index = self._path
            self._path = parent.at(key) if index is None else f"{parent.at(key)}.{index}"
        return self._path

    @classmethod
    def of(cls, value: Json, path: "str | tuple[Table, str, int | None]") -> Self:
        """The object at this path, or an error that it is none."""
        # A dict is known as one at once, a Mapping after a search.
        table = cls(cast(Mapping[str, Json], value), path)
        if not isinstance(value, dict) and not isinstance(value, Mapping):
            where = table.path
            raise UsageError(f"{where or 'the body'}: expected an object, got {kind(value)}", field=where or None)
        return table

    def check_keys(self, known: Iterable[str]) -> Self:
        """The table itself, or an error that it has a key that is not known."""
        for key in self.data:
            if key not in known:
                raise self.error(key, str(UnknownName("key", key, known)))
        return self

    def at(self, key: str) -> str:
        """The path of a field in here."""
        return f"{self.path}{self.separator}{key}" if self.path else key

    def error(self, key: str, why: str) -> UsageError:
        """The error about a field."""
        return error_at(self.at(key), why)

    def get(self, key: str) -> Json:
        return self.data.get(key)

    def text(self, key: str) -> str | None:
        return self._read_typed(key, str)

    def required_text(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise self.error(key, "is required and may not be empty")
        return value

    def one_of(self, key: str, known: tuple[T, ...], default: T) -> T:
        value: Any = default if self.get(key) is None else self.get(key)
        if value not in known:
            raise self.error(key, f"expected one of {', '.join(map(str, known))}, got {shorten(repr(value))}")
        return value

    def flag(self, key: str) -> bool | None:
        return self._read_typed(key, bool)

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
        """A number from `least` to `most`; by default from 0 to about as much as a float holds."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"expected a number, got {kind(value)}")
        if not least <= value <= most:
            bounds = f"at least {least:g}" if value < least else f"at most {most:g}"
            raise self.error(key, f"must be {bounds}, got {value}")
        return float(value)

    def object(self, key: str) -> Self | None:
        value = self.data.get(key)
        return None if value is None else self.of(value, (self, key, None))

    def required_object(self, key: str) -> Self:
        return self.of(self.data.get(key), (self, key, None))

    def array(self, key: str) -> list[Json] | None:
        return self._read_typed(key, cast(type[list[Json]], list))

    def objects(self, key: str) -> Iterator[Self]:
        """The objects of an array."""
        values = self.array(key)
        return (self.of(value, (self, key, index)) for index, value in enumerate(values)) if values else iter(())

    def texts(self, key: str) -> tuple[str, ...]:
        """The strings of an array; one string alone counts as an array of one."""
        value: Any = self.get(key)
        if isinstance(value, str):
            return (value,)
        for index, item in enumerate(self.array(key) or ()):
            if not isinstance(item, str):
                raise self.error(f"{key}.{index}", f"expected a string, got {kind(item)}")
        return tuple(value or ())

    def _read_typed(self, key: str, wanted: type[T]) -> T | None:
        value = self.data.get(key)
        if value is not None and not isinstance(value, wanted):
            raise self.error(key, f"expected {_KINDS[wanted]}, got {kind(value)}")
        return value


# --- what other programs say, of which nothing has to be so -----------------------------------------------------------------


def as_object(value: Json) -> Mapping[str, Json]:
    """The value, if it is an object; else an empty one."""
    if type(value) is dict:  # known sooner
        return value  # pyright: ignore[reportUnknownVariableType]
    return cast(Mapping[str, Json], value) if isinstance(value, Mapping) else {}


def as_list(value: Json) -> list[Json]:
    return cast(list[Json], value) if isinstance(value, list) else []


def as_objects(value: Json) -> list[Mapping[str, Json]]:
    """The objects of what should be an array of them."""
    return [cast(Mapping[str, Json], item) for item in as_list(value) if isinstance(item, Mapping)]


def as_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def as_ids(value: Json) -> tuple[int, ...]:
    """The ids in a list; what is none is left out."""
    return tuple(item for item in as_list(value) if isinstance(item, int) and not isinstance(item, bool))
