"""Finding names of another program that move between its modules from release to release."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from callsmith.core.errors import Unavailable


def find(package: str, name: str, *modules: str) -> Any:
    """The object of this name in the first of the modules that has it; an `Unavailable` that names them all if none has."""
    problems: list[str] = []
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            problems.append(f"{module}: {error}")
    raise Unavailable(
        f"callsmith cannot be used inside {package} {installed_version(package)}: {name} is not where it is expected "
        f"({'; '.join(problems)})",
        hint=f"update callsmith, or install a release of {package} that it knows (see docs/servers.md)",
    )


def installed_version(package: str) -> str:
    """The version of an installed package, as far as it says one."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "(unknown version)"
