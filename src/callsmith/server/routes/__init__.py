"""The routes of the server. A module or package put into this folder is served: there is no list to edit.

Each has `routes(service)`. One that speaks an API dialect can also have a `DIALECT`, which says how its clients read errors.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Protocol, cast

from starlette.routing import BaseRoute

if TYPE_CHECKING:  # the service is made of modules that have to know the dialects
    from callsmith.server.service import Service


class RouteModule(Protocol):
    """A module or package of this folder."""

    __name__: str

    def routes(self, service: "Service") -> Sequence[BaseRoute]:
        """What it serves."""
        ...


def route_modules() -> tuple[RouteModule, ...]:
    """Every module and package of this folder, sorted by name."""
    return _import_all(tuple(__path__))


@cache  # for each search path, which changes only where somebody adds a folder to it
def _import_all(folders: tuple[str, ...]) -> tuple[RouteModule, ...]:
    names = sorted(module.name for module in iter_modules(folders))
    return tuple(cast("RouteModule", import_module(f"{__name__}.{name}")) for name in names)
