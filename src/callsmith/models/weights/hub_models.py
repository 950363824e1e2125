"""Small models of the hub that are known to call tools, by short names (`hub_models.toml`): what was published, nothing tried."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from callsmith.core.serialize import load
from callsmith.core.types.tables import parse_toml

_OPEN_LICENCES: Final = frozenset({"Apache-2.0", "MIT", "BSD-3-Clause"})


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the hub. `hub` is its name there, `size` about how large it is, `bfcl` its published score, `offered` whether it
    may become the default."""

    name: str
    title: str
    licence: str
    hub: str
    size: int
    format: str = ""
    bfcl: str = ""
    offered: bool = False

    @property
    def is_open(self) -> bool:
        """Whether everybody may use it for everything."""
        return self.licence in _OPEN_LICENCES


@cache
def hub_models() -> Mapping[str, HubModel]:
    """Every model by its short name."""
    table = parse_toml((files("callsmith.models.weights") / "hub_models.toml").read_text(encoding="utf-8"))
    return MappingProxyType({name: load(HubModel, {"name": name, **row}, name) for name, row in table.items()})
