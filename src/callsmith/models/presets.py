"""Presets by model name: formats and a template for weights that show none, policy and guards for all.

Ours are in `presets.toml`. Those that are registered, from files and packages of others, are tried first.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any, cast, get_args

from callsmith.core.choice import policy_named
from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.values import ChoicePolicy, InReasoning
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.models.templates import template_named

_KINDS = {
    **dict.fromkeys(("models", "formats", "guards"), "a list of texts"),
    **dict.fromkeys(("template", "policy", "in_reasoning", "tool_prompt"), "a text"),
    **dict.fromkeys(("parallel", "auto_guarded"), "true or false"),
    "threshold": "a number",
}


@dataclass(frozen=True, slots=True)
class Preset:
    """A family of models. `models` are patterns of their names; of `formats` the first is written and the others also read.

    `template` is the chat template of weights that have none. `parallel` and `formats` count where the weights' own template
    shows nothing, `policy`, `guards`, `auto_guarded`, `in_reasoning` and `tool_prompt` always: that is how tools are put to them,
    with the `threshold` from which on they call.
    """

    name: str
    models: tuple[str, ...]
    formats: tuple[Format, ...]
    template: str = ""
    parallel: bool = True
    policy: ChoicePolicy | None = None
    guards: tuple[str, ...] = ()
    auto_guarded: bool = False
    in_reasoning: InReasoning = "recover"
    tool_prompt: str = ""
    threshold: float | None = None

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
    for one in added:
        if not isinstance(one, Preset):  # pyright: ignore[reportUnnecessaryIsInstance] (plug-ins are not type-checked)
            raise UsageError(f"a preset must be a `Preset`, and {one!r} is a {type(one).__name__}")
    _registered[:] = [*added, *(one for one in _registered if one not in added)]


def preset_for(*names: str) -> Preset | None:
    """The first preset that knows one of a model's names."""
    return next((preset for preset in presets() if any(preset.knows(name) for name in names if name)), None)


def presets_in(text: str, folder: Path | None = None) -> tuple[Preset, ...]:
    """The presets of a TOML text, with templates from its folder. What does not exist is an error here, not when it is needed."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"not TOML: {error}") from error
    return tuple(_preset(name, row, folder) for name, row in table.items())


@cache
def _built_in() -> tuple[Preset, ...]:
    return presets_in((files("callsmith.models") / "presets.toml").read_text(encoding="utf-8"))


def _preset(name: str, table: Any, folder: Path | None) -> Preset:
    if not isinstance(table, dict):
        raise UsageError(f"expected tables of presets, and {name!r} is none: [{name}]")
    row = cast("Mapping[str, Any]", table)
    for key, value in row.items():
        if key not in _KINDS:
            raise UsageError(f"preset {name!r}: unknown key {key!r}; allowed: {', '.join(_KINDS)}")
        if not _is_of(_KINDS[key], value):
            raise UsageError(f"preset {name!r}: `{key}` must be {_KINDS[key]}")
    if not row.get("models") or not row.get("formats"):
        raise UsageError(f"preset {name!r} needs `models` and `formats`")
    return Preset(
        name,
        tuple(row["models"]),
        tuple(_named(one, name) for one in row["formats"]),
        template=_template(row["template"], folder, name) if "template" in row else "",
        parallel=row.get("parallel", True),
        policy=policy_named(row["policy"]) if "policy" in row else None,
        guards=tuple(row.get("guards", ())),
        auto_guarded=row.get("auto_guarded", False),
        in_reasoning=_in_reasoning(row.get("in_reasoning", "recover"), name),
        tool_prompt=row.get("tool_prompt", ""),
        threshold=row.get("threshold"),
    )


def _is_of(kind: str, value: Any) -> bool:
    match kind:
        case "a list of texts":
            return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value))
        case "a text":
            return isinstance(value, str)
        case "a number":
            return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        case _:
            return isinstance(value, bool)


def _named(format: str, preset: str) -> Format:
    try:
        return format_named(format)
    except UnknownName as error:
        raise UnknownName(f"format (in the preset {preset!r})", format, error.known) from error


def _in_reasoning(value: Any, preset: str) -> InReasoning:
    if value not in get_args(InReasoning):
        raise UsageError(f'preset {preset!r}: `in_reasoning` must be "recover" or "ignore"')
    return value


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
