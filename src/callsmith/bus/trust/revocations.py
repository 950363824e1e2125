"""Revocations: tokens and issuers that count no longer, in memory or in a file that several processes share."""

import json
import os
from pathlib import Path
from threading import Lock
from typing import Literal, Protocol, TypeAlias, cast

from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.wire.capability.errors import BusError

Kind: TypeAlias = Literal["token", "issuer"]


class Revocations(Protocol):
    """Which tokens (by their `jti`) and issuers (by their ids) are revoked. Asked before every call that has a token."""

    def is_revoked(self, kind: Kind, id: str) -> bool: ...

    def revoke(self, kind: Kind, id: str) -> None:
        """Revoke it from now on, for good."""
        ...


class MemoryRevocations:
    """Revocations that last as long as the process."""

    def __init__(self) -> None:
        self._revoked: set[tuple[str, str]] = set()

    def is_revoked(self, kind: Kind, id: str) -> bool:
        return (kind, id) in self._revoked

    def revoke(self, kind: Kind, id: str) -> None:
        self._revoked.add((kind, id))


class RevocationFile:
    """Revocations as JSON lines, `{"token": "01J…"}` or `{"issuer": "ed25519:…"}`; read again when the file has changed.

    A file that cannot be read refuses every call: nobody knows then what is revoked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: tuple[int, ...] | None = None  # of the file that was read last
        self._revoked: frozenset[tuple[str, str]] = frozenset()
        self._lock = Lock()

    def is_revoked(self, kind: Kind, id: str) -> bool:
        return (kind, id) in self._read()

    def revoke(self, kind: Kind, id: str) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "r+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 1))
                was_interrupted = file.read(1) not in (b"", b"\n")
                file.write(b"\n" * was_interrupted + json.dumps({kind: id}).encode() + b"\n")
                os.fsync(handle)
        except OSError as error:
            raise UsageError(f"the revocations in {self._path} cannot be written: {error.strerror or error}") from error

    def _read(self) -> frozenset[tuple[str, str]]:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return self._revoked  # what was once revoked stays so
        except OSError as error:
            raise BusError("internal_error", f"the revocations cannot be read: {error.strerror or error}") from error
        state = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if state != self._state:
            with self._lock:
                self._revoked, self._state = self._parse(), state
        return self._revoked

    def _parse(self) -> frozenset[tuple[str, str]]:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise BusError("internal_error", f"the revocations cannot be read: {error.strerror or error}") from error
        revoked: set[tuple[str, str]] = set()
        for number, line in enumerate(lines, 1):
            if not line.strip() or number == len(lines):  # the last line is being written, and read when it is complete
                continue
            match _entry(line):
                case ("token" | "issuer") as kind, str(id):
                    revoked.add((kind, id))
                case _:
                    raise BusError(
                        "internal_error", f"line {number} of the revocations is broken; no token is valid until it is fixed"
                    )
        return frozenset(revoked)


def _entry(line: bytes) -> tuple[str, Json] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    entries = list(cast(dict[str, Json], value).items()) if isinstance(value, dict) else []
    return entries[0] if len(entries) == 1 else None
