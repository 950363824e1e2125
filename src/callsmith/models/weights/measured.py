"""What evaluations have found of models: the choice policy and the constraint that suit them best, kept for when they are opened.

In `measured.json` in the config folder, by what the weights call themselves and how large they are: the same file counts as the
same model, however it is named.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from callsmith.core.errors import UsageError
from callsmith.core.serialize import dump, load
from callsmith.core.values import ChoicePolicy, Json
from callsmith.files import write_file
from callsmith.models.plugins import config_folder


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found of a model. `model` is what it was called, `scores` are its scores by setup."""

    model: str
    policy: ChoicePolicy = "auto"
    auto_guarded: bool = False
    tool_prompt: str = ""
    threshold: float | None = None
    scores: Mapping[str, Json] = field(default_factory=dict[str, Json])


def find_measured(name: str, size: int) -> Measured | None:
    """What was found of the weights of this name and size, if anything was."""
    return load_measured().get(_key(name, size)) if size else None


def load_measured() -> dict[str, Measured]:
    path = _path()
    if not path.is_file():
        return {}
    try:
        rows: dict[str, Json] = json.loads(path.read_text("utf-8"))
        return {key: load(Measured, row, ignore_unknown=True) for key, row in rows.items()}
    except (OSError, ValueError, AttributeError, UsageError) as error:
        raise UsageError(f"{path} cannot be read: {error}; remove it, and evaluate again") from error


def store_measured(name: str, size: int, measured: Measured) -> Path:
    """Keep what was found of the weights of this name and size."""
    if not size:
        raise UsageError(f"{measured.model} is no file of weights: what was found of it cannot be kept for when it is opened")
    path = _path()
    known = {**load_measured(), _key(name, size): measured}
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_file(path, json.dumps({key: dump(entry) for key, entry in known.items()}, indent=2) + "\n")


def _key(name: str, size: int) -> str:
    return f"{name} ({size} bytes)"


def _path() -> Path:
    return config_folder() / "measured.json"
