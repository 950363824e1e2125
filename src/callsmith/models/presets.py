"""Presets by model name: formats and a template for weights that show none, policy and guards for all.

Ours are in `presets.toml`. Those that are registered, from files and packages of others, are tried first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.serialize import load
from callsmith.core.types.tables import parse_toml
from callsmith.core.values import Json
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.models.templates import template_named
from callsmith.models.traits import Habits


@dataclass(frozen=True, slots=True)
class Preset(Habits):
    """A family of models. `models` are patterns of their names; of `formats` the first is written and the others also read.

    `template` is the chat template of weights that have none. `parallel` and `formats` count where the weights' own template
    shows nothing, the other habits always.
    """

    name: str
    models: tuple[str, ...]
    formats: tuple[Format, ...]
    template: str = ""

    def knows(self, model: str) -> bool:
        """Whether a model's name matches; case does not matter, and `-`, `_` and a space are the same."""
        spelled = model.lower().replace(" ", "-").replace("_", "-")
        return any(fnmatchcase(spelled, pattern.lower()) for pattern in self.models)


_registered: list[Preset] = []


def presets() -> tuple[Preset, ...]:
    """Every preset, in the order they are tried: the one that was registered last first, ours at the end."""
    return (*_registered, *_built_in())


def register_presets(presets: Iterable[Preset]) -> None:
    """Have presets tried before all others; registering the same ones again moves them to the front."""
    added = list(presets)
    for item in added:
        if not isinstance(item, Preset):  # pyright: ignore[reportUnnecessaryIsInstance] (plug-ins are not type-checked)
            raise UsageError(f"a preset must be a `Preset`, and {item!r} is a {type(item).__name__}")
    _registered[:] = [*added, *(item for item in _registered if item not in added)]


def preset_for(*names: str) -> Preset | None:
    """The first preset that knows one of a model's names."""
    return next((preset for preset in presets() if any(preset.knows(name) for name in names if name)), None)


def presets_in(text: str, folder: Path | None = None) -> tuple[Preset, ...]:
    """The presets of a TOML text, with templates from its folder. What does not exist is an error here, not when it is needed."""
    return tuple(_preset(name, row, folder) for name, row in parse_toml(text).items())


@cache
def _built_in() -> tuple[Preset, ...]:
    return presets_in((files("callsmith.models") / "presets.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class _PresetRow(Habits):
    """A preset as it is written: what it names is not looked up yet."""

    models: tuple[str, ...]
    formats: tuple[str, ...]
    template: str = ""


def _preset(name: str, table: Json, folder: Path | None) -> Preset:
    row = load(_PresetRow, table, f"preset {name}")
    if not row.models or not row.formats:
        raise UsageError(f"preset {name} needs `models` and `formats`")
    if row.threshold is not None and not isfinite(row.threshold):
        raise UsageError(f"preset {name}.threshold: expected a number")
    habits = {field.name: getattr(row, field.name) for field in fields(Habits)}
    formats = tuple(_find_format(format_name, name) for format_name in row.formats)
    template = _template(row.template, folder, name) if row.template else ""
    return Preset(name, row.models, formats, template, **habits)


def _find_format(format: str, preset: str) -> Format:
    try:
        return format_named(format)
    except UnknownName as error:
        raise UnknownName(f"format (in the preset {preset!r})", format, error.known) from error


def _template(template: str, folder: Path | None, preset: str) -> str:
    if folder is None or not template.endswith(".jinja"):
        try:
            return template_named(template)
        except UnknownName as error:
            raise UnknownName(f"chat template (in the preset {preset!r})", template, error.known) from error
    try:
        return (folder / template).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"preset {preset!r}: cannot read the chat template {template}: {error}") from error
