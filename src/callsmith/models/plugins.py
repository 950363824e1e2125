"""Formats and presets that do not come with callsmith: from installed packages, and from TOML files of the user's.

A package offers them as entry points in the groups `callsmith.formats` and `callsmith.presets`: a `Format` or `Preset`, several,
or a callable that gives them. A user puts files into `formats` and `presets` in `$CALLSMITH_CONFIG` (else in `callsmith` in the
user's configuration folder).
"""

import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from callsmith.core.errors import UsageError
from callsmith.formats import register
from callsmith.formats.algebra import Format
from callsmith.formats.huggingface.read import format_from_tokenizer_config
from callsmith.formats.toml.read import format_from_toml
from callsmith.models.presets import Preset, presets_in, register_presets

T = TypeVar("T")

GROUP = "callsmith.formats"
PRESETS_GROUP = "callsmith.presets"


@cache
def load_formats() -> tuple[Format, ...]:
    """Register every format of plug-ins and of the user, once. An error names the plug-in or file it comes from."""
    offered = _of_packages(GROUP, lambda several: [register(item) for item in several])
    return (*chain(*offered), *(register_file(path) for path in _of_user("formats")))


@cache
def load_presets() -> None:
    """Register every preset of plug-ins and of the user, once; the user's are tried first. They may name formats of plug-ins."""
    load_formats()
    _of_packages(PRESETS_GROUP, register_presets)
    for path in reversed(_of_user("presets")):
        register_presets(_presets_of(path))


def register_presets_file(path: Path) -> None:
    """Have the presets in a TOML file tried before all others."""
    load_presets()
    register_presets(_presets_of(path))


def register_file(path: Path) -> Format:
    """Register the format in a file."""
    format = format_in(path)
    try:
        return register(format)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def format_in(path: Path) -> Format:
    """The format in a TOML file, or of the response template in a `tokenizer_config.json`."""
    text = _text_of(path)
    try:
        return format_from_tokenizer_config(text) if path.suffix == ".json" else format_from_toml(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}", field=error.field) from error


def config_folder() -> Path:
    """The folder of the user's settings: `$CALLSMITH_CONFIG`, else as the platform has it."""
    if chosen := os.environ.get("CALLSMITH_CONFIG"):
        return Path(chosen).expanduser()
    if xdg := os.environ.get("XDG_CONFIG_HOME"):
        return Path(xdg) / "callsmith"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / "callsmith"
    return Path.home() / ".config" / "callsmith"


def _presets_of(path: Path) -> tuple[Preset, ...]:
    text = _text_of(path)
    try:
        return presets_in(text, path.parent)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def user_files(folder: str) -> list[tuple[Path, str]]:
    """The TOML files in a folder of the user's settings, each with its text."""
    return [(path, _text_of(path)) for path in _of_user(folder)]


def _of_user(folder: str) -> list[Path]:
    return sorted((config_folder() / folder).glob("*.toml"))


def _of_packages(group: str, register: Callable[[list[Any]], T]) -> list[T]:
    """Register what packages offer in a group; an error names the plug-in."""
    registered: list[T] = []
    for entry in entry_points(group=group):
        offered = entry.load()
        plugin = cast("Callable[[], object]", offered)() if callable(offered) else offered
        try:
            registered.append(register(list(cast("Iterable[object]", plugin)) if isinstance(plugin, Iterable) else [plugin]))
        except UsageError as error:
            raise UsageError(f"the plug-in {entry.name!r} ({entry.value}): {error}") from error
    return registered
