"""A journal in a file: one JSON document, replaced whole at every step."""

import json
from collections.abc import Sequence
from pathlib import Path

from callsmith.core.errors import UsageError
from callsmith.core.serialize import Saved, read_conversation, write_conversation
from callsmith.core.values import Call, Result
from callsmith.files import write_file


class FileStorage:
    """Writes a journal to a file, if there is anything new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = ""

    async def write(self, saved: Saved, *, starting: Call | None = None, results: Sequence[Result] = ()) -> None:
        text = _text(saved)
        if text != self._written:
            _write(self._path, text)
            self._written = text


def read_journal(path: Path) -> Saved:
    """The conversation in a file."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    try:
        return read_conversation(document)
    except UsageError as error:
        raise UsageError(f"{path} is not a saved conversation: {error}", field=error.field) from error


def write_journal(path: Path, saved: Saved) -> None:
    """Write the conversation into a file, whole or not at all."""
    _write(path, _text(saved))


def _text(saved: Saved) -> str:
    return json.dumps(write_conversation(saved), indent=1) + "\n"  # ASCII: half a surrogate pair must not stop it


def _write(path: Path, text: str) -> None:
    try:
        write_file(path, text, is_private=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
