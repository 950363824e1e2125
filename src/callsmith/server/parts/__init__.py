"""Parts that are built on the server. A module or package put into this folder is one: there is no list to edit.

A module has a `PART`, a subclass of `Part`; in a package, its module `part` has it. A package that has settings of its own has
a module `settings` with a `SECTION`: a dataclass of fields with defaults, which is the section of the package's name in files,
the environment and options, and has a `heading` for the help. Routes are in `server/routes`, and commands in `cli`, which are
listed in the same way.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:  # settings are listed here, long before there is a server
    from prometheus_client.core import Metric

    from callsmith.core.ports import Toolset
    from callsmith.server.service import Service
    from callsmith.server.settings import Settings


class Part:
    """A part of the server. What a subclass does not define, it does not add."""

    name: ClassVar[str] = ""

    @classmethod
    def open(cls, settings: "Settings") -> Self:
        """The part that the settings describe."""
        return cls()

    def tools(self, settings: "Settings") -> "Toolset | None":
        """Tools that it adds to the server's own."""
        return None

    def attach(self, service: "Service") -> None:
        """Take up work, before the routes are made."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """What it holds while the server runs."""
        return nullcontext()

    async def close(self) -> None:
        """End what it has begun, when the server ends; jobs and the audit log are still there."""

    def metrics(self) -> "Iterable[Metric]":
        """What `/metrics` says of it to the caller."""
        return ()


def section_types() -> dict[str, type[Any]]:
    """The settings of the parts, by the names of their sections."""
    packages = sorted(module.name for module in iter_modules(__path__) if module.ispkg)
    modules = {name: f"{__name__}.{name}.settings" for name in packages}
    return {name: import_module(module).SECTION for name, module in modules.items() if find_spec(module)}


def open_parts(settings: "Settings", parts: Sequence[Part] = ()) -> tuple[Part, ...]:
    """Every part, as the settings describe it; one that is given takes the place of its like."""
    names = sorted(f"{module.name}.part" if module.ispkg else module.name for module in iter_modules(__path__))
    kinds: list[type[Part]] = [import_module(f"{__name__}.{name}").PART for name in names]
    by_kind = {type(part): part for part in parts}
    listed = tuple(by_kind.pop(kind, None) or kind.open(settings) for kind in kinds)
    return (*listed, *by_kind.values())
