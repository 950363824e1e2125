"""Engines continue text under a grammar. They know tokens and nothing of tools.

An engine is one module or package in this folder, or an entry point in the group `callsmith.engines`. Its name is the scheme of
its specs (`llama:/models/qwen.gguf`), and its function `open(rest, **options)` opens the part behind the colon. Nothing else has
to be edited: `open_engine` and `open_model` find engines by listing the folder. What an engine must offer is in `port.py`.
"""

from ast import get_docstring, parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeAlias

from callsmith.core.errors import MissingExtra, UnknownName
from callsmith.engines.port import Engine, EngineInfo

OpenFunction: TypeAlias = Callable[..., Engine]
DescribeFunction: TypeAlias = Callable[..., EngineInfo]


def open_engine(spec: str, **options: Any) -> Engine:
    """`open_engine("llama:/models/qwen.gguf", context=4096)`: the engine of that scheme, opened on the rest."""
    scheme, _, rest = spec.partition(":")
    return find_engine(scheme)(rest, **options)


def find_engine(scheme: str) -> OpenFunction:
    """The `open` function of an engine: of a module in this folder, else of an entry point."""
    if open := _function_in(scheme, "open"):
        return open
    for entry in entry_points(group="callsmith.engines"):
        if entry.name == scheme:
            return entry.load()
    raise UnknownName("engine", scheme, engine_schemes())


def find_description(scheme: str) -> DescribeFunction | None:
    """The `describe` function of an engine in this folder, if it has one."""
    return _function_in(scheme, "describe")


def engine_schemes() -> list[str]:
    """The schemes of all engines there are, also of those whose extra is not installed."""
    schemes = {entry.name for entry in entry_points(group="callsmith.engines")}
    for name in _modules():
        try:
            if _function_in(name, "open"):
                schemes.add(name)
        except MissingExtra:
            schemes.add(name)
    return sorted(schemes)


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """An engine: the scheme of its specs, what it is for, and what has to be installed before it can be used."""

    scheme: str
    purpose: str
    missing: str = ""


def describe_engines() -> Iterator[EngineDescription]:
    """All engines there are."""
    for scheme in engine_schemes():
        spec = find_spec(f"{__name__}.{scheme}") if scheme in _modules() else None
        doc = get_docstring(parse(Path(spec.origin).read_text("utf-8"))) if spec and spec.origin else ""
        purpose = (doc or "an engine of another package").splitlines()[0].partition(": `")[0].removesuffix(".")
        try:
            find_engine(scheme)
        except (MissingExtra, ImportError) as error:
            yield EngineDescription(scheme, purpose, str(error))
        else:
            yield EngineDescription(scheme, purpose)


def accepted_options(open: OpenFunction | DescribeFunction, options: Mapping[str, object]) -> dict[str, object]:
    """Those of the options that are set and that this function has a parameter for."""
    parameters = signature(open).parameters.values()
    any_name = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
    names = {parameter.name for parameter in list(parameters)[1:]}
    return {name: value for name, value in options.items() if value is not None and (any_name or name in names)}


def _modules() -> list[str]:
    return [module.name for module in iter_modules(__path__)]


def _function_in(module: str, name: str) -> Callable[..., Any] | None:
    """A function of a module in this folder, if there are both."""
    return vars(import_module(f"{__name__}.{module}")).get(name) if module in _modules() else None
