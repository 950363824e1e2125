"""Imports point inward, and codecs are pure: the table of docs/design.md, held against every module.

Every import counts, also one inside a function or under TYPE_CHECKING. The last tests plant violations and see them reported.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parent.parent / "src" / "callsmith"

CODECS = frozenset({"formats", "grammar", "wire"})
EFFECTS = frozenset({"engines", "models", "tools", "bus", "runtime"})
INWARD = frozenset({"core"}) | CODECS


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
    "engines": Rule(INWARD, frozenset({"numpy", "llguidance", "xllamacpp", "transformers", "torch", "tokenizers", "httpx2"})),
    "models": Rule(INWARD | {"engines"}, frozenset({"httpx2"})),
    "tools": Rule(INWARD, frozenset({"pydantic", "pydantic_core", "griffe", "mcp", "mcp_types", "httpx2"})),
    "bus": Rule(INWARD, frozenset({"nats", "cryptography"})),
    "runtime": Rule(frozenset({"core"}), frozenset({"opentelemetry"})),
    "server": Rule(INWARD | EFFECTS, frozenset({"starlette", "msgspec", "uvicorn", "prometheus_client"})),
    "adapters": Rule(INWARD | EFFECTS, frozenset({"langchain_core", "llama_index", "crewai"})),
    "evals": Rule(INWARD | EFFECTS),
    "cli": Rule(INWARD | EFFECTS | {"server", "evals"}, frozenset({"typer", "rich", "uvicorn", "starlette"})),
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
# What pure packages may still have of those, and why.
EXCUSED = {("core", "warnings")}  # silencing pydantic, which warns about defaults that are no JSON
CLOCKS = frozenset({"now", "today", "utcnow"})
SIDE_DOORS = frozenset({"open", "print", "input"})


def violations(root: Path) -> list[str]:
    """Everything under this package that the table forbids."""
    found: list[str] = []
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        package = place.parts[0] if len(place.parts) > 1 else place.stem
        tree = ast.parse(path.read_text("utf-8"))
        if package not in RULES:
            found.append(f"{place}: {package} is not in the table")
            continue
        found += [f"{place}:{line}: {what}" for line, what in _complaints(tree, package, place, RULES[package])]
    return found


def _complaints(tree: ast.AST, package: str, place: Path, rule: Rule) -> Iterator[tuple[int, str]]:
    for line, module in _imports(tree, place):
        top, _, rest = module.partition(".")
        inner = rest.partition(".")[0]
        if top == "callsmith":
            if inner != package and inner not in rule.packages:
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


def _imports(tree: ast.AST, place: Path) -> Iterator[tuple[int, str]]:
    """Every import with its line; relative ones made absolute, and names that may be modules followed."""
    parents = ("callsmith", *place.parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parents[: len(parents) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            if module == "callsmith":
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


@pytest.fixture
def planted(tmp_path: Path):
    """A package with one module of our choosing."""

    def plant(place: str, source: str) -> list[str]:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source), "utf-8")
        return violations(tmp_path)

    return plant


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
        ("server/app.py", "from callsmith.cli.main import app", "server may not import cli"),
        ("server/app.py", "import requests", "server may not import requests"),
        ("core/values.py", "from callsmith import Tool", "core may not import Tool"),
        ("core/values.py", "import callsmith", "core may not import callsmith itself"),
        ("gossip/news.py", "", "gossip is not in the table"),
    ],
)  # fmt: skip
def test_a_planted_violation_is_reported(planted, place: str, source: str, complaint: str):
    assert any(found.endswith(complaint) for found in planted(place, source))


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
