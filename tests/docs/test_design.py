"""docs/design.md names every package; what it and CONTRIBUTING.md name exists: folders, modules, classes, functions."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, ROOT

PACKAGE = ROOT / "src" / "callsmith"
PAGES = (DOCS / "design.md", ROOT / "CONTRIBUTING.md")
NOT_THERE = {"engines/toy.py", "site/", "site/versions.json", "site/0.1"}  # what somebody adds, and what `make docs` makes
OTHERS_NAMES = {"TYPE_CHECKING", "assert_never", "delete_file", "mcp_approval_request", "mcp_approval_response", "job_result"}
TREE = (DOCS / "design.md").read_text("utf-8").split("src/callsmith/\n")[1].split("\ntests/ ")[0]


def entries() -> dict[str, str]:
    """The folders and modules of the tree, by their paths, with what stands beside and below them."""
    described: dict[str, str] = {}
    folders: list[tuple[int, str]] = []
    names: list[str] = []
    for line in TREE.splitlines():
        if match := re.match(r"( {2,6})(\w+(?:/|\.py)(?: +\w+/)*)(?: {2,}| \(|$)(.*)", line):
            indent = len(match[1])
            folders = [(depth, path) for depth, path in folders if depth < indent]
            parent = folders[-1][1] if folders else ""
            names = [parent + name for name in match[2].split()]
            if names[-1].endswith("/"):
                folders.append((indent, names[-1]))
            described |= dict.fromkeys(names, match[3])
        else:
            assert line.startswith(" " * 20), f"neither an entry nor the rest of one: {line!r}"
            for name in names:
                described[name] += " " + line.strip()
    return described


def listed_modules(about: str) -> list[str]:
    """The modules that a line lists: `reads them: reader · call, arguments (one call)`."""
    plain = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", about))
    listed: list[str] = []
    for clause in plain.split(";"):
        if " · " in clause:
            listed += [name.strip() for name in re.split(r" · |, ", clause.rpartition(": ")[2] if ": " in clause else clause)]
    return [name for name in listed if name]


def test_every_folder_and_module_of_the_tree_exists():
    assert [path for path in entries() if not (PACKAGE / path).exists()] == []


def test_every_module_that_a_folder_of_the_tree_lists_exists():
    missing = [
        path + name
        for path, about in entries().items()
        if path.endswith("/")
        for name in listed_modules(about)
        if not any((PACKAGE / path / f"{name.removesuffix('/')}{end}").exists() for end in ("", ".py", ".toml", ".js"))
    ]
    assert missing == []


def test_every_module_that_the_tree_names_beside_another_exists():
    names = [(path, name) for path, about in entries().items() for name in re.findall(r"\b\w+\.(?:py|toml)\b", about)]
    folders = [((PACKAGE / path) if path.endswith("/") else (PACKAGE / path).parent, name) for path, name in names]
    assert [f"{folder.name}/{name}" for folder, name in folders if not any(folder.rglob(name))] == []


def test_every_package_is_in_the_tree():
    described = entries()
    missing: list[str] = []
    for init in PACKAGE.rglob("__init__.py"):
        folder = init.parent.relative_to(PACKAGE)
        parent = f"{folder.parent.as_posix()}/"
        if folder.parts and f"{folder.as_posix()}/" not in described and f"{folder.name}/" not in described.get(parent, ""):
            missing.append(folder.as_posix())
    assert missing == []


@cache
def files() -> list[str]:
    tops = ("src", "tests", "benchmarks", "examples", "deploy", "docs", ".ci", ".github")
    paths = [*ROOT.glob("*.*"), *(path for top in tops for path in (ROOT / top).rglob("*") if "node_modules" not in path.parts)]
    return [f"/{path.relative_to(ROOT).as_posix()}" for path in paths]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_of_a_page_exists(page: Path):
    paths = re.findall(r"`((?:[\w.]+/)+[\w.]*|\w+\.(?:py|toml|md))`", page.read_text("utf-8"))
    missing = {path for path in paths if not any(file.endswith(f"/{path.rstrip('/')}") for file in files())}
    assert missing - NOT_THERE == set()


@cache
def definitions() -> set[str]:
    """The names of all classes, functions, fields and constants."""
    defined: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    defined.add(node.name)
                case ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]):
                    defined.add(name)
                case ast.arg():
                    defined.add(node.arg)
                case ast.Attribute(ctx=ast.Store()):
                    defined.add(node.attr)
                case _:
                    pass
    return defined


def test_every_class_and_function_of_the_design_exists():
    text = re.sub(r"```.*?```", "", (DOCS / "design.md").read_text("utf-8"), flags=re.DOTALL)
    names = re.findall(r"`(_?[A-Z]\w*(?:\.\w+)*|_?[a-z]\w*_\w+(?:\(\))?|\w+(?:\.\w+)*\(\))`", text)
    parts = {part for name in names for part in name.removesuffix("()").split(".")}
    assert parts - definitions() - {path.stem for path in PACKAGE.rglob("*.py")} - OTHERS_NAMES == set()


def test_every_module_and_page_that_a_comment_names_exists():
    missing: list[str] = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        paths = re.findall(r"`([\w/]+\.(?:py|toml))`", text) + re.findall(r"\b(docs/[\w-]+\.md|(?:\w+/)+\w+\.py)\b", text)
        missing += [f"{path.name}: {name}" for name in paths if not any(file.endswith(f"/{name}") for file in files())]
    assert missing == []
