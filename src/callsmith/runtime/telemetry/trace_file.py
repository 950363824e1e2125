"""The trace as a file: one turn a line, as JSON, for `callsmith tools report`."""

import json
import logging
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from threading import Lock

from callsmith.core.errors import Unavailable, UsageError
from callsmith.core.serialize import dump, load
from callsmith.core.values import Json
from callsmith.runtime.telemetry.turns import TurnRecord

_LOG = logging.getLogger(__name__)


class TraceFile:
    """A recorder that appends to a file. Several processes may share the file: each line is one write.

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
    """A turn as JSON, with times to the microsecond; fields with their default value are left out."""
    document = dump(turn)
    inside: dict[str, Json] = {"usage": document.get("usage", {}), "calls": list(map(_round_numbers, document.get("calls", ())))}
    if turn.decision is not None:
        inside["decision"] = _round_numbers(document["decision"])
    return _round_numbers(document) | inside


def _round_numbers(record: dict[str, Json]) -> dict[str, Json]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in record.items()}


def _read_line(line: str) -> TurnRecord | None:
    """The turn, if it is one. Fields of later versions are passed over."""
    try:
        return load(TurnRecord, json.loads(line), ignore_unknown=True)
    except (UsageError, ValueError, RecursionError):
        return None
