"""Presets by model name (`presets.toml`): formats for weights whose template shows no calls, policy and guards for all."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from callsmith.core.choice import policy_named
from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.values import ChoicePolicy
from callsmith.formats import format_named
from callsmith.formats.algebra import Format

_KEYS = ("models", "formats", "parallel", "policy", "guards", "auto_guarded")


@dataclass(frozen=True, slots=True)
class Preset:
    """A family of models. `models` are patterns of their names; of `formats` the first is written and the others also read.

    `parallel` and `formats` count where the template shows nothing, `policy`, `guards` and `auto_guarded` always.
    """

    name: str
    models: tuple[str, ...]
    formats: tuple[Format, ...]
    parallel: bool = True
    policy: ChoicePolicy | None = None
    guards: tuple[str, ...] = ()
    auto_guarded: bool = False

    def knows(self, model: str) -> bool:
        """Whether a model's name matches; case does not matter, and `-`, `_` and a space are the same."""
        spelled = model.lower().replace(" ", "-").replace("_", "-")
        return any(fnmatchcase(spelled, pattern.lower()) for pattern in self.models)


@cache
def presets() -> tuple[Preset, ...]:
    """Every preset, in the order they are tried."""
    return presets_in((files("callsmith.models") / "presets.toml").read_text(encoding="utf-8"))


def preset_for(*names: str) -> Preset | None:
    """The first preset that knows one of a model's names."""
    return next((preset for preset in presets() if any(preset.knows(name) for name in names if name)), None)


def presets_in(text: str) -> tuple[Preset, ...]:
    """The presets of a TOML text. A format that does not exist is an error here, not when it is first needed."""
    return tuple(_preset(name, row) for name, row in tomllib.loads(text).items())


def _preset(name: str, row: Mapping[str, Any]) -> Preset:
    for key in row:
        if key not in _KEYS:
            raise UsageError(f"preset {name!r}: unknown key {key!r}; allowed: {', '.join(_KEYS)}")
    if not row.get("models") or not row.get("formats"):
        raise UsageError(f"preset {name!r} needs `models` and `formats`")
    return Preset(
        name,
        tuple(row["models"]),
        tuple(_named(one, name) for one in row["formats"]),
        parallel=row.get("parallel", True),
        policy=policy_named(row["policy"]) if "policy" in row else None,
        guards=tuple(row.get("guards", ())),
        auto_guarded=row.get("auto_guarded", False),
    )


def _named(format: str, preset: str) -> Format:
    try:
        return format_named(format)
    except UnknownName as error:
        raise UnknownName(f"format (in the preset {preset!r})", format, error.known) from error
