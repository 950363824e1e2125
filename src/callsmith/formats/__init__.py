"""The formats in which model families write calls: one declarative value each, and the interpreters that walk it."""

from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.types.field_checks import check_argument
from callsmith.formats import families
from callsmith.formats.algebra import Format
from callsmith.formats.detector import BaseFormatDetector

NONE = Format(name="none", parts=())  # for a model that calls no tools: its whole answer is text
_registered: dict[str, Format] = {}


def formats() -> dict[str, Format]:
    """All known formats by name: those of the families, and those that were registered."""
    return {**_built_in(), **_registered}


@cache
def _built_in() -> dict[str, Format]:
    modules = (import_module(f"{families.__name__}.{module.name}") for module in iter_modules(families.__path__))
    built_in = [value for module in modules for value in vars(module).values() if isinstance(value, Format)]
    return {format.name: format for format in built_in}


def register(format: Format) -> Format:
    """Register a format, whose name and aliases must not be in use; registering the same one again changes nothing."""
    if not isinstance(format, Format):  # pyright: ignore[reportUnnecessaryIsInstance] (plug-ins are not type-checked)
        raise UsageError(f"a format must be a `Format`, and {format!r} is a {type(format).__name__}")
    names_in_use = {name for known in (NONE, *formats().values()) if known != format for name in (known.name, *known.aliases)}
    for name in (format.name, *format.aliases):
        if _normalize(name) != name:
            raise UsageError(f"the format name {name!r} must be in lower case, with '-' instead of '_': {_normalize(name)!r}")
        if name in names_in_use:
            raise UsageError(f"the format name {name!r} is taken; give the format {format.name!r} another")
    _registered.setdefault(format.name, format)
    return format


def register_detector(name: str, cls: type[BaseFormatDetector], *, writes: str = "hermes") -> Format:
    """Register code that finds calls as a format; calls that are forced, and those of the history, are written as in `writes`."""
    if not (isinstance(cls, type) and issubclass(cls, BaseFormatDetector)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"a detector must be a subclass of `BaseFormatDetector`, and {cls!r} is none")
    return register(replace(format_named(writes), name=name, aliases=(), detectors=(cls,)))


def format_named(name: str) -> Format:
    """The format of a name or an alias that other servers use; `_` and `-` are the same."""
    check_argument("name", name, str)
    known = formats()
    normalized = _normalize(name)
    for format in (NONE, *known.values()):
        if normalized == format.name or normalized in format.aliases:
            return format
    raise UnknownName("format", name, {*known, *(alias for format in known.values() for alias in format.aliases)})


def _normalize(name: str) -> str:
    return name.lower().replace("_", "-")
