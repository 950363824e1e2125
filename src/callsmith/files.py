"""Files that are written whole or not at all: a reader, or a crash, finds the old file or the new one."""

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4


def write_file(path: Path, content: str | bytes, *, is_private: bool = False, keeps_existing: bool = False) -> Path:
    """Write a file and return when it is on disk. `is_private`: only its owner may read it.

    With `keeps_existing`, a file that is there already stays, also if another process has created it just now.
    """
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
    try:
        mode = 0o600 if is_private else 0o666
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if keeps_existing:
            with suppress(FileExistsError):
                os.link(fresh, target)
        else:
            fresh.replace(target)
        _sync_folder(target.parent)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
    return path


def _sync_folder(folder: Path) -> None:
    """A new name is on disk only when its folder is."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
