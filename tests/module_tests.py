"""Where the tests of a module are: in a file of its name or its folder's, or where the table in CONTRIBUTING.md says.

The same says which test files import a module, also through other modules; `tests/mutations.py` runs those.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
HEADING = "## Where a module's tests are"
_ROW = re.compile(r"^\| (`[^|]+`) \| (`[^|]+`) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
# Found by their look: thousands of files are parsed in seconds, and searched in a fraction of one.
_IMPORT = re.compile(r"^[ \t]*(import [\w., ]+|from [\w.]+ import (?:\([^()]*\)|[\w, ]+))[ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """A row of the table: modules, and the files their tests are in, both as patterns."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


def rows(text: str) -> list[Row]:
    """The table under the heading."""
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    return [Row(tuple(_CODE.findall(modules)), tuple(_CODE.findall(tests))) for modules, tests in _ROW.findall(section)]


class Project:
    """The modules and the tests below a folder, with what imports what."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.source = root / "src" / "callsmith"
        self.modules = {
            path.relative_to(self.source).as_posix(): _dotted(path.relative_to(root / "src"))
            for path in sorted(self.source.rglob("*.py"))
            if path.stem not in ("__init__", "__main__")
        }
        self.tests = sorted(path.relative_to(root).as_posix() for path in (root / "tests").rglob("test_*.py"))

    @cached_property
    def table(self) -> list[Row]:
        """The rows in CONTRIBUTING.md."""
        return rows((self.root / "CONTRIBUTING.md").read_text("utf-8"))

    def named_tests(self, module: str) -> list[str]:
        """The test files of the module's room with its name or its folder's in front, and all in the folder of the same path."""
        path = PurePosixPath(module)
        folders = path.parent.parts[1:]
        room = "/".join(("tests", *path.parent.parts[:1]))  # of a module in no room: any
        in_room = [test for test in self.tests if test.startswith(f"{room}/")]
        names = [test for name in (path.stem, *folders) for test in in_room if _is_named(test, name)]
        return [*dict.fromkeys([*names, *(test for test in in_room if folders and test.startswith(f"tests/{path.parent}/"))])]

    def listed_tests(self, module: str) -> list[str]:
        """The test files that the table's rows name for the module."""
        patterns = [test for row in self.table if any(_matches(module, item) for item in row.modules) for test in row.tests]
        return [test for pattern in patterns for test in self.tests if _matches(test, pattern)]

    def importing_tests(self, module: str) -> set[str]:
        """The test files that import the module, by themselves or through the tests' own modules; not through other modules."""
        dotted = self.modules[module]
        return {test for test in self.tests if dotted in self._imported_by(_dotted(PurePosixPath(test)), frozenset({"tests"}))}

    def distance(self, test: str, module: str) -> int | None:
        """How many imports lead from the test file to the module; None: none do."""
        dotted, start = self.modules[module], _dotted(PurePosixPath(test))
        seen, edge = {start}, {start}
        for steps in itertools.count():
            if dotted in edge:
                return steps
            edge = {name for item in edge for name in self._imports(item)} - seen
            seen |= edge
            if not edge:
                return None
        return None

    def reaches(self, test: str, module: str) -> bool:
        """Whether importing the test file imports the module, or a package that imports what is in its folder."""
        imported = self._imported_by(_dotted(PurePosixPath(test)), frozenset({"tests", "callsmith"}))
        dotted = self.modules[module]
        if '__name__ == "__main__"' in (self.source / module).read_text("utf-8"):  # a process of its own: the folder starts it
            return any(name.startswith(f"{dotted.rpartition('.')[0]}.") for name in imported)
        return dotted in imported

    def problems(self) -> Iterator[str]:
        """The modules whose tests nobody finds, and the rows that are not true."""
        for module in self.modules:
            tests = [*self.named_tests(module), *self.listed_tests(module)]
            if not tests:
                yield f"{module}: no test file has its name, and no row of the table says where its tests are"
            elif not any(self.reaches(test, module) for test in tests):
                yield f"{module}: none of {', '.join(tests)} imports it"
        for row in self.table:
            for pattern in row.modules:
                if not any(_matches(module, pattern) for module in self.modules):
                    yield f"{pattern}: there are no such modules"
            for pattern in row.tests:
                if not any(_matches(test, pattern) for test in self.tests):
                    yield f"{pattern}: there are no such tests"

    @cache  # noqa: B019 (there is one project, as long as the process lives)
    def _imported_by(self, start: str, through: frozenset[str]) -> frozenset[str]:
        """What is imported from this module on, through modules of these packages."""
        seen, waiting = {start}, [start]
        while waiting:
            more = self._imports(waiting.pop()) - seen
            seen |= more
            waiting += [name for name in more if name.partition(".")[0] in through]
        return frozenset(seen)

    @cache  # noqa: B019
    def _imports(self, dotted: str) -> frozenset[str]:
        path = self._path(dotted)
        if path is None:
            return frozenset()
        package = dotted if path.stem == "__init__" else dotted.rpartition(".")[0]
        imported = set(_imported_names(path.read_text("utf-8"), package))
        names = {name for name in imported if self._path(name)}
        if {"pkgutil", "importlib"} & imported:  # it imports what is in its folder, or in a package that it names
            names |= {child for listed in (package, *names) for child in self._children(listed)}
        if path.stem.startswith("test_"):  # and its conftests, with those of the folders above
            names |= {name for name in _conftests(package) if self._path(name)}
        return frozenset(names)

    def _children(self, package: str) -> Iterator[str]:
        path = self._path(package)
        if path is not None and path.stem == "__init__" and package.startswith("callsmith."):
            yield from (f"{package}.{child.stem}" for child in path.parent.glob("*.py") if child.stem != "__init__")
            yield from (f"{package}.{child.parent.name}" for child in path.parent.glob("*/__init__.py"))

    @cache  # noqa: B019
    def _path(self, dotted: str) -> Path | None:
        top, *rest = dotted.split(".")
        folder = {"callsmith": self.source, "tests": self.root / "tests"}.get(top)
        if folder is None:
            return None
        place = folder.joinpath(*rest)
        return next((path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()), None)


def _is_named(test: str, name: str) -> bool:
    return re.match(rf"test_{name}(_|$)", PurePosixPath(test).stem) is not None


def _matches(path: str, pattern: str) -> bool:
    return PurePosixPath(f"/{path}").match(f"/{pattern}")


def _dotted(path: Path | PurePosixPath) -> str:
    return ".".join(path.with_suffix("").parts)


def _conftests(package: str) -> Iterator[str]:
    folders = package.split(".")
    yield from (".".join([*folders[:depth], "conftest"]) for depth in range(1, len(folders) + 1))


def _imported_names(source: str, package: str) -> Iterator[str]:
    """Everything imported, made absolute: modules, and each name in one, which may be a module too."""
    for node in ast.parse("\n".join(match[1] for match in _IMPORT.finditer(source))).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
