"""The folders for what is fetched: our own, for weights and libraries, and the one that all clients of a model hub share."""

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


def hub_cache_folder() -> Path:
    """The cache of the Hugging Face hub, where its own client has it."""
    if chosen := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expandvars(chosen)).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(os.path.expandvars(home)).expanduser() / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface" / "hub"
