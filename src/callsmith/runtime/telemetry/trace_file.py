"""The trace as a file: one turn a line, as JSON, for a report on many runs of a program."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, get_args, get_type_hints

from callsmith.core.errors import Unavailable, UsageError
from callsmith.core.values import Json, Mode, Usage
from callsmith.runtime.telemetry.turns import CallRecord, Ending, Outcome, TurnRecord

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class TraceFile:
    """A recorder that appends to a file. Programs may share one: each line is written at once, behind whatever is there.

    When the file cannot be written any more, that is logged once and turns are no longer recorded.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = Lock()
        try:
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror or error}") from error

    def add(self, turn: TurnRecord) -> None:
        line = json.dumps(write_turn(turn), separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file.closed:
                return
            try:
                self._file.write(line)
            except OSError as error:
                self._file.close()
                _LOG.warning("turns are no longer recorded in %s: %s", self._path, error.strerror or error)

    def close(self) -> None:
        with self._lock:
            self._file.close()


def read_trace(path: str | PathLike[str]) -> Iterator[TurnRecord | None]:
    """The turns of a file; None for a line that is none, as when a program was killed while it wrote."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.strip():
                    yield _read_line(line)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", field="trace") from error


def write_turn(turn: TurnRecord) -> dict[str, Json]:
    """A turn as JSON; what has its default value is left out."""
    return _written(turn) | {"usage": _written(turn.usage), "calls": [_written(call) for call in turn.calls]}


def _read_line(line: str) -> TurnRecord | None:
    """The turn, if it is one. Fields of later versions are passed over."""
    try:
        return _read(TurnRecord, json.loads(line))
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None


def _written(record: TurnRecord | CallRecord | Usage) -> dict[str, Json]:
    values = {one.name: (getattr(record, one.name), one.default) for one in fields(record)}
    return {name: _short(value) for name, (value, default) in values.items() if value != default}


def _short(value: Any) -> Json:
    return round(value, 6) if isinstance(value, float) else value


def _read(kind: type[T], value: Any) -> T:
    return kind(**{name: read(value[name]) for name, read in _readers(kind).items() if name in value})


@cache
def _readers(kind: type) -> Mapping[str, Callable[[Any], Any]]:
    """How each field is read, by its type."""
    return {name: _BY_TYPE[hint] for name, hint in get_type_hints(kind).items()}


def _one_of(*known: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in known:
            raise ValueError(f"{value!r} is not known")
        return value

    return read


_BY_TYPE: Mapping[Any, Callable[[Any], Any]] = {
    **{kind: kind for kind in (str, int, float, bool)},
    str | None: str,
    float | None: float,
    tuple[str, ...]: lambda value: tuple(map(str, value)),
    Outcome: _one_of(*get_args(Outcome)),
    Mode: _one_of(*get_args(Mode)),
    Ending: str,
    Usage: lambda value: _read(Usage, value),
    tuple[CallRecord, ...]: lambda value: tuple(_read(CallRecord, call) for call in value),
}
