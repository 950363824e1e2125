"""Imports point inward and go round in no circle, codecs are pure, modules and folders stay small.

The table is that of docs/design.md. Every import counts, also one inside a function or under TYPE_CHECKING. For each rule there
is a test that plants a violation and sees it reported.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from textwrap import dedent

import pytest

ROOT = Path(__file__).parent.parent / "src" / "callsmith"

CODECS = frozenset({"formats", "grammar", "wire"})
EFFECTS = frozenset({"engines", "models", "tools", "bus", "runtime", "code"})
INWARD = frozenset({"core", "files"}) | CODECS


@dataclass(frozen=True)
class Rule:
    """What a package may import besides itself and the standard library."""

    packages: frozenset[str]
    outside: frozenset[str] = frozenset()
    pure: bool = False  # nothing of the standard library that does I/O, waits, or asks for the time
    sync: bool = False  # no `async`


RULES = {
    "core": Rule(frozenset(), frozenset({"pydantic", "pydantic_core", "jsonschema_rs", "griffe"}), pure=True),
    "formats": Rule(frozenset({"core"}), frozenset({"jinja2"}), pure=True, sync=True),
    "grammar": Rule(frozenset({"core", "formats"}), pure=True, sync=True),
    "wire": Rule(frozenset({"core"}), frozenset({"msgspec"}), pure=True, sync=True),
    "files": Rule(frozenset()),
    "engines": Rule(
        INWARD, frozenset({"numpy", "llguidance", "xllamacpp", "transformers", "torch", "triton", "tokenizers", "aiohttp"})
    ),
    "models": Rule(INWARD | {"engines"}, frozenset({"huggingface_hub"})),
    "tools": Rule(INWARD, frozenset({"pydantic", "pydantic_core", "griffe", "mcp", "mcp_types", "httpx2", "anyio"})),
    "bus": Rule(INWARD, frozenset({"msgspec", "nats", "cryptography", "jwt", "aiohttp"})),
    "runtime": Rule(frozenset({"core", "files", "tools.define", "tools.functions"}), frozenset({"opentelemetry"})),
    "code": Rule(INWARD | {"runtime", "tools.functions"}, frozenset({"pydantic_monty"})),
    "capabilities": Rule(INWARD | EFFECTS),
    "server": Rule(
        INWARD | EFFECTS | {"capabilities"}, frozenset({"starlette", "msgspec", "uvicorn", "prometheus_client", "asyncpg"})
    ),
    "adapters": Rule(INWARD | EFFECTS, frozenset({"langchain_core", "langgraph", "llama_index", "llm", "crewai", "pydantic"})),
    "compat": Rule(INWARD | EFFECTS | {"capabilities"}),
    "evals": Rule(INWARD | EFFECTS, frozenset({"aiohttp"})),
    "cli": Rule(
        INWARD | EFFECTS | {"capabilities", "server", "evals"},
        frozenset({"typer", "rich", "markdown_it", "prompt_toolkit", "uvicorn", "starlette"}),
    ),
    "__init__": Rule(INWARD | EFFECTS),
    "__main__": Rule(frozenset({"cli"})),
}

IMPURE = frozenset(
    {
        "asyncio", "concurrent", "contextvars", "ctypes", "fcntl", "fileinput", "ftplib", "getpass", "glob", "http", "io",
        "linecache", "locale", "logging", "mmap", "multiprocessing", "os", "pathlib", "platform", "queue", "random", "sched",
        "secrets", "select", "selectors", "shelve", "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl",
        "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid", "warnings", "webbrowser",
    }
)  # fmt: skip
# What pure packages may still have of those: pydantic warns about defaults that are no JSON; each rendering counts its own steps.
EXCUSED = {("core", "warnings"), ("formats", "contextvars")}
CLOCKS = frozenset({"now", "today", "utcnow"})
SIDE_DOORS = frozenset({"open", "print", "input"})


def violations(root: Path) -> list[str]:
    """Everything under this package that the table forbids."""
    broken: list[str] = []
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        package = place.parts[0] if len(place.parts) > 1 else place.stem
        tree = ast.parse(path.read_text("utf-8"))
        if package not in RULES:
            broken.append(f"{place}: {package} is not in the table")
            continue
        broken += [f"{place}:{line}: {what}" for line, what in _complaints(tree, package, place, root)]
    return broken


def _complaints(tree: ast.AST, package: str, place: Path, root: Path) -> Iterator[tuple[int, str]]:
    rule = RULES[package]
    for line, module in _imports(tree, place, root):
        top, _, rest = module.partition(".")
        inner = rest.partition(".")[0]
        if top == "callsmith":
            if inner != package and inner not in rule.packages and rest not in rule.packages:
                yield line, f"{package} may not import {inner or 'callsmith itself'}"
        elif top in sys.stdlib_module_names:
            if rule.pure and top in IMPURE and (package, top) not in EXCUSED:
                yield line, f"{package} is pure and may not import {top}"
        elif top not in rule.outside:
            yield line, f"{package} may not import {top}"
    for node in ast.walk(tree):
        match node:
            case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await() if rule.sync:
                yield node.lineno, f"{package} has no async"
            case ast.Call(func=ast.Name(id=name)) if rule.pure and name in SIDE_DOORS:
                yield node.lineno, f"{package} is pure and may not call {name}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="datetime" | "date"), attr=name)) if rule.pure and name in CLOCKS:
                yield node.lineno, f"{package} is pure and may not ask for the time"


def _imports(tree: ast.AST, place: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Every import with its line; relative ones made absolute, and a name that is a module of the package given as that."""
    parents = ("callsmith", *place.parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parents[: len(parents) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            names = [alias.name for alias in node.names]
            modules = [
                f"{module}.{name}" if module == "callsmith" or _is_module(module, name, root) else module for name in names
            ]
            yield from ((node.lineno, fromkey) for fromkey in dict.fromkeys(modules))


def _is_module(package: str, name: str, root: Path) -> bool:
    """Whether a name imported from one of our packages is a module or a package in it."""
    top, *names = package.split(".")
    path = root.joinpath(*names, name)
    return top == "callsmith" and (path.is_dir() or path.with_suffix(".py").is_file())


# --- import cycles ------------------------------------------------------------------------------------------------------------

Imports = dict[str, set[str]]  # of one package: a sub-folder or module in it → those beside it that it imports


def cycles(root: Path) -> list[str]:
    """The import cycles inside each package under this one, at every level of nesting.

    What counts within a package are its sub-folders and the modules directly in it, its `__init__` among them. An `__init__` that
    re-exports from its own modules is no cycle, as long as none of them imports the `__init__`.
    """
    packages: dict[str, Imports] = {}
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        importer = place.with_suffix("").parts
        for imported in _imported_modules(ast.parse(path.read_text("utf-8")), place, root):
            shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(importer, imported, strict=False))))
            if shared < len(importer) and shared < len(imported):
                imports = packages.setdefault("/".join(importer[:shared]) or ".", {})
                imports.setdefault(importer[shared], set()).add(imported[shared])
    return [f"{package}: {cycle}" for package, imports in sorted(packages.items()) for cycle in _cycles(imports)]


def _imported_modules(tree: ast.AST, place: Path, root: Path) -> Iterator[tuple[str, ...]]:
    """Every module of ours that is imported, by its place below `root`; a package stands for its `__init__`."""
    for _, module in _imports(tree, place, root):
        top, *names = module.split(".")
        if top == "callsmith":
            yield (*names, "__init__") if root.joinpath(*names).is_dir() else tuple(names)


def _cycles(imports: Imports) -> Iterator[str]:
    """Each cycle once, from the name in it that sorts first."""
    reached = {name: _reachable(imports, name) for name in imports}
    in_cycles: set[str] = set()
    for name in sorted(imports):
        if name in reached[name] and name not in in_cycles:
            cycle = sorted(other for other in reached[name] if name in reached.get(other, ()))
            in_cycles.update(cycle)
            yield " <-> ".join(cycle)


def _reachable(imports: Imports, name: str) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        more = imports.get(waiting.pop(), set()) - reached
        reached |= more
        waiting += more
    return reached


# --- sizes --------------------------------------------------------------------------------------------------------------------

MOST_LINES = 400
MOST_FILES = 13
# A family is one file, and there are as many files as families.
LARGE_FOLDERS = frozenset({"formats/families"})


def sizes(root: Path) -> list[str]:
    """The modules with too many lines, and the folders with too many modules."""
    modules = {path.relative_to(root).as_posix(): len(path.read_text("utf-8").splitlines()) for path in root.rglob("*.py")}
    folders = Counter(PurePosixPath(module).parent.as_posix() for module in modules)
    long = [f"{module}: {n} lines" for module, n in modules.items() if n > MOST_LINES]
    large = [f"{folder}: {n} modules" for folder, n in folders.items() if n > MOST_FILES and folder not in LARGE_FOLDERS]
    return sorted(long + large)


# --- tests --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def plant(tmp_path: Path):
    """Writes modules into a package of its own, and returns its folder."""

    def write(sources: Mapping[str, str]) -> Path:
        for place, source in sources.items():
            path = tmp_path / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(source), "utf-8")
        return tmp_path

    return write


@pytest.fixture
def planted(plant):
    """What is wrong with a package of one module of our choosing."""

    def report(place: str, source: str) -> list[str]:
        return violations(plant({place: source}))

    return report


def test_every_module_keeps_to_its_ring():
    assert violations(ROOT) == []


def test_there_is_something_to_check():
    packages = {path.relative_to(ROOT).parts[0] for path in ROOT.rglob("*.py")}
    assert {"core", "formats", "grammar", "wire", "engines", "models", "tools", "runtime", "server", "cli"} <= packages


@pytest.mark.parametrize(
    ("place", "source", "complaint"),
    [
        ("core/values.py", "from callsmith.formats.algebra import Format", "core may not import formats"),
        ("core/values.py", "import numpy", "core may not import numpy"),
        ("core/values.py", "import os.path", "core is pure and may not import os"),
        ("formats/read.py", "import asyncio", "formats is pure and may not import asyncio"),
        ("formats/read.py", "from time import monotonic", "formats is pure and may not import time"),
        ("formats/read.py", "import logging", "formats is pure and may not import logging"),
        ("formats/read.py", "from pathlib import Path", "formats is pure and may not import pathlib"),
        ("formats/read.py", "text = open('x').read()", "formats is pure and may not call open()"),
        ("formats/read.py", "from datetime import date\nday = date.today()", "formats is pure and may not ask for the time"),
        ("formats/read.py", "from callsmith.grammar.nodes import Grammar", "formats may not import grammar"),
        ("grammar/calls.py", "async def grammar(): ...", "grammar has no async"),
        ("wire/sse.py", "from callsmith.formats.algebra import Format", "wire may not import formats"),
        ("engines/llama.py", "from callsmith.models.local import LocalModel", "engines may not import models"),
        ("models/local.py", "from callsmith.tools.functions import tool", "models may not import tools"),
        ("tools/mcp.py", "from callsmith.runtime.loop import run", "tools may not import runtime"),
        ("runtime/loop.py", "from callsmith.formats.reader.reader import Reader", "runtime may not import formats"),
        ("runtime/loop.py", "from callsmith.tools.wrap import Confirmed", "runtime may not import tools"),
        ("server/app.py", "from callsmith.cli.main import app", "server may not import cli"),
        ("server/app.py", "import requests", "server may not import requests"),
        ("core/values.py", "from callsmith import Tool", "core may not import Tool"),
        ("core/values.py", "import callsmith", "core may not import callsmith itself"),
        ("gossip/news.py", "", "gossip is not in the table"),
    ],
)  # fmt: skip
def test_a_planted_violation_is_reported(planted, place: str, source: str, complaint: str):
    assert any(violation.endswith(complaint) for violation in planted(place, source))


@pytest.mark.parametrize(
    "source",
    [
        "def later():\n    from callsmith.server.app import create_app",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from callsmith.server.app import create_app",
        "from ..server import app",
        "from callsmith import server",
        "try:\n    import callsmith.server.app\nexcept ImportError:\n    pass",
    ],
)
def test_no_way_of_importing_escapes_notice(planted, source: str):
    assert len(planted("formats/read.py", source)) == 1


def test_what_the_table_allows_is_not_reported(planted):
    allowed = """
        import json
        from . import layout
        from .layout import Format
        from callsmith.core.values import Tool
        from jinja2 import nodes
    """
    assert planted("formats/read.py", allowed) == []


def test_no_package_has_an_import_cycle_in_it():
    assert cycles(ROOT) == []


@pytest.mark.parametrize(
    ("sources", "cycle"),
    [
        (
            {"core/a.py": "from callsmith.core.b import x", "core/b.py": "from callsmith.core.a import y"},
            "core: a <-> b",
        ),
        (
            {"core/a.py": "def later():\n    from .b import x", "core/b.py": "if TYPE_CHECKING:\n    from . import a"},
            "core: a <-> b",
        ),
        (
            {
                "wire/openai/chat.py": "from callsmith.wire.fields import x",
                "wire/fields.py": "from callsmith.wire.sse import x",
                "wire/sse.py": "import callsmith.wire.openai.items",
            },
            "wire: fields <-> openai <-> sse",
        ),
        (
            {
                "formats/reader/__init__.py": "from callsmith.formats.reader.markers import x",
                "formats/reader/markers.py": "from callsmith.formats.reader import x",
            },
            "formats/reader: __init__ <-> markers",
        ),
        (
            {
                "server/routes/responses/a.py": "from callsmith.server.routes.responses.b import x",
                "server/routes/responses/b.py": "from ..responses import a",
            },
            "server/routes/responses: a <-> b",
        ),
        (
            {"bus/local.py": "from callsmith.tools.wrap import x", "tools/wrap/__init__.py": "import callsmith.bus.nats"},
            ".: bus <-> tools",
        ),
    ],
)
def test_a_planted_import_cycle_is_reported(plant, sources: dict[str, str], cycle: str):
    assert cycles(plant(sources)) == [cycle]


def test_a_package_that_re_exports_its_own_modules_is_no_cycle(plant):
    sources = {
        "tools/wrap/__init__.py": "from callsmith.tools.wrap.caching import x\nfrom callsmith.tools.wrap.naming import y",
        "tools/wrap/caching.py": "from callsmith.tools.wrap.naming import y\nfrom callsmith.tools.define import z",
        "tools/wrap/naming.py": "",
        "tools/define.py": "",
        "tools/functions.py": "from callsmith.tools.wrap import x",
    }
    assert cycles(plant(sources)) == []


def test_modules_and_folders_stay_small():
    assert sizes(ROOT) == []


def test_a_long_module_and_a_large_folder_are_reported(plant):
    sources = {f"wire/openai/m{number}.py": "" for number in range(MOST_FILES + 1)}
    sources |= {f"wire/m{number}.py": "" for number in range(MOST_FILES)}
    sources |= {"core/values.py": "x = 1\n" * (MOST_LINES + 1), "core/events.py": "x = 1\n" * MOST_LINES}
    assert sizes(plant(sources)) == ["core/values.py: 401 lines", "wire/openai: 14 modules"]
