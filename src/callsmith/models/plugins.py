"""Formats that do not come with callsmith: from installed packages, and from TOML files of the user's.

A package offers them as entry points in the group `callsmith.formats`: a `Format`, several, or a callable that gives them. A user
puts files into `$CALLSMITH_CONFIG/formats` (else `callsmith/formats` in the user's configuration folder).
"""

import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from callsmith.core.errors import UsageError
from callsmith.formats import register
from callsmith.formats.algebra import Format
from callsmith.formats.toml.read import format_from_toml

GROUP = "callsmith.formats"


@cache
def load_formats() -> tuple[Format, ...]:
    """Register every format of plug-ins and of the user, once. An error names the plug-in or file it comes from."""
    return (*_of_packages(), *_of_user())


def register_file(path: Path) -> Format:
    """Register the format in a TOML file."""
    format = format_in(path)
    try:
        return register(format)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def format_in(path: Path) -> Format:
    """The format in a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    try:
        return format_from_toml(text)
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


def _of_user() -> list[Format]:
    return [register_file(path) for path in sorted((config_folder() / "formats").glob("*.toml"))]


def _of_packages() -> list[Format]:
    found: list[Format] = []
    for entry in entry_points(group=GROUP):
        offered = entry.load()
        made = cast("Callable[[], object]", offered)() if callable(offered) else offered
        several = [made] if isinstance(made, Format) or not isinstance(made, Iterable) else list(cast("Iterable[object]", made))
        try:
            found += [register(cast(Format, one)) for one in several]
        except UsageError as error:
            raise UsageError(f"the plug-in {entry.name!r} ({entry.value}): {error}") from error
    return found
