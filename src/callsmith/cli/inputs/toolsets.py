"""`--tools`: loads the toolset that a name on the command line stands for.

demo                 the demonstration tools
mytools              every function in mytools that is marked with @tool
mytools.py           the same, of a file
mytools:toolset      a toolset, a function, or a list of functions
"""

import sys
import traceback
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.ports import Toolset
from callsmith.tools.functions import MARK, Functions


def load_toolset(spec: str) -> Toolset:
    """Load the toolset that the name stands for."""
    if spec == "demo":
        from callsmith.cli.inputs import demo_tools as demo

        return Functions(*demo.TOOLS)
    name, _, attribute = spec.partition(":") if not spec.endswith(".py") else (spec, "", "")
    module = _of_file(Path(name)) if name.endswith(".py") else _module(name, Path.cwd())
    if not attribute:
        return _of_module(module)
    if not hasattr(module, attribute):
        public = [known for known in vars(module) if not known.startswith("_")]
        raise UnknownName(f"attribute of {name}", attribute, public, field="tools")
    return _of_value(spec, getattr(module, attribute))


def _of_file(path: Path) -> ModuleType:
    """The module that a file is, which finds what is beside it."""
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r} here", field="tools")
    module = _module(path.stem, path.parent.absolute())
    if not (module.__file__ and path.samefile(module.__file__)):
        raise UsageError(f"{str(path)!r} cannot be imported: there is another module {path.stem!r}. Rename it.", field="tools")
    return module


def _module(name: str, folder: Path) -> ModuleType:
    here = str(folder)
    if here not in sys.path:  # a module beside the user, as `python -m` would find it
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:  # whatever the user's module does when it is imported
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"there is no Python module {name!r} here", field="tools") from error
        place = _place(error)
        if not place:
            raise UsageError(f"{name!r} does not name a Python module", field="tools") from error
        what = traceback.format_exception_only(error)[-1].strip()
        raise UsageError(f"the tools module {name!r} cannot be imported\n  {place}\n  {what}", field="tools") from error


def _place(error: BaseException) -> str:
    """The file and the line at which an import failed; empty if no file had been opened yet."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {(error.text or '').strip()}"
    frames = [item for item in traceback.extract_tb(error.__traceback__) if not item.filename.startswith("<frozen ")]
    inside = frames[2:]  # behind ours and importlib's
    return f"{inside[-1].filename}, line {inside[-1].lineno}: {inside[-1].line}" if inside else ""


def _of_module(module: ModuleType) -> Toolset:
    marked = [value for value in vars(module).values() if callable(value) and hasattr(value, MARK)]
    if not marked:
        raise UsageError(f"no function in {module.__name__} is marked with @tool", field="tools")
    return Functions(*marked)


def _of_value(spec: str, value: Any) -> Toolset:
    if isinstance(value, ModuleType):
        return _of_module(value)
    if hasattr(value, "tools") and hasattr(value, "call"):
        return cast("Toolset", value)
    if callable(value):
        return Functions(value)
    if isinstance(value, Iterable):
        functions = list(cast("Iterable[Any]", value))
        if functions and all(callable(function) for function in functions):
            return Functions(*cast("list[Callable[..., Any]]", functions))
    raise UsageError(f"{spec} is neither a toolset nor a list of functions", field="tools")
