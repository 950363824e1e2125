"""Pinned definitions: which tools of a server were accepted, by their digests, in a JSON file.

What a server lists first is accepted. From then on a tool that is new or defined otherwise is held back until it is accepted.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from callsmith.core.errors import UsageError
from callsmith.core.values import Json, Tool
from callsmith.files import write_file


class Pins:
    """The pins of one server in a file, which those of other servers share."""

    def __init__(self, path: Path, server: str) -> None:
        self._path = path
        self._server = server

    def held_back(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        """Why tools are not offered, by name. If nothing is pinned yet, all are accepted."""
        pinned = self._read().get(self._server)
        if pinned is None:
            self._write({**self._read(), self._server: {name: tool.digest for name, tool in tools.items()}})
            return {}
        changed = [name for name, tool in tools.items() if pinned.get(name) != tool.digest]
        what = {name: "its definition has changed" if name in pinned else "it is new" for name in changed}
        hint = "since the server was pinned (callsmith tools list --accept)"
        return {name: f"{name} is not offered: {what[name]} {hint}" for name in changed}

    def forget(self) -> None:
        """Accept what the server lists next."""
        self._write({name: pinned for name, pinned in self._read().items() if name != self._server})

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            pins: Json = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UsageError(f"the pins in {self._path} cannot be read: {error}") from error
        if not isinstance(pins, dict) or not all(isinstance(digests, dict) for digests in cast("dict[str, Json]", pins).values()):
            raise UsageError(f"{self._path} is not a file of pins: expected an object of objects")
        return cast("dict[str, dict[str, str]]", pins)

    def _write(self, pins: Mapping[str, Mapping[str, str]]) -> None:
        try:
            write_file(self._path, json.dumps(pins, indent=1, sort_keys=True) + "\n")
        except OSError as error:
            raise UsageError(f"the pins cannot be written to {self._path}: {error}") from error
