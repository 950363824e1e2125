"""The folder for what is fetched: model weights, and libraries of engines."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """`$CALLSMITH_CACHE`, else the user's cache folder as the platform has it."""
    if chosen := os.environ.get("CALLSMITH_CACHE"):
        return Path(chosen).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "callsmith"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "callsmith" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "callsmith"
    return Path.home() / ".cache" / "callsmith"
