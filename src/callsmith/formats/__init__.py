"""How model families write calls: one declarative value each, and the interpreters that walk it."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from callsmith.core.errors import UnknownName
from callsmith.formats import families
from callsmith.formats.layout import Format

NONE = Format(name="none", parts=())  # a model that has no format: all it writes is text


@cache
def formats() -> dict[str, Format]:
    """Every known format by its name."""
    modules = (import_module(f"{families.__name__}.{module.name}") for module in iter_modules(families.__path__))
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Format)]
    return {format.name: format for format in found}


def format_named(name: str) -> Format:
    """A format by its name or by what other servers call it; `_` and `-` are the same."""
    known = formats()
    if name == NONE.name:
        return NONE
    spelled = name.lower().replace("_", "-")
    for format in known.values():
        if spelled == format.name or spelled in format.aliases:
            return format
    raise UnknownName("format", name, {*known, *(alias for format in known.values() for alias in format.aliases)})
