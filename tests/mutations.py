"""Change one thing in the code, and see whether a test notices: `python -m tests.mutations --count 100 --seed 1`.

Each change is made in a copy of `src`, spread over all rooms, and the tests of its module are run on the copy: those of its name
and its folder, those that the table in CONTRIBUTING.md names, those that import it (`tests/module_tests.py`). With `--all`, one
that nobody has noticed is tried on all tests. What no test should notice is left alone: texts of logs and errors, types, `repr`.
"""

import argparse
import ast
import copy
import difflib
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.module_tests import ROOT, Project

# Their tests need another environment or a server, and have make targets of their own.
ELSEWHERE = ("adapters/", "engines/transformers/", "bus/nats/", "server/store/postgres/", "engines/llama_builds/", "evals/bfcl/")
QUIET = frozenset({"log", "_log", "logger", "_logger", "warnings", "span"})  # what is said to these is read by no program
# What CI runs in targets of their own without needing more than make test does.
MARKS = re.sub(r" and not (attack|processes)\b", "", re.findall(r"-m '([^']*)'", (ROOT / "pyproject.toml").read_text("utf-8"))[0])
NEAREST = 8  # test files that are run before all others that import the module
MOST_DRAWS = 20  # in a small room what was chosen is often drawn again
UNTOLD = frozenset({"__repr__", "__str__", "__hash__", "__rich_repr__"})
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """One change: what stands from `start` to `end` in the module's text becomes something else."""

    module: str
    line: int
    kind: str
    function: str
    start: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> str:
        lines = difflib.unified_diff(
            source.splitlines(), self.apply(source).splitlines(), self.module, self.module, "", "", 1, ""
        )
        return "\n".join(lines)


# --- what may be changed ------------------------------------------------------------------------------------------------------


def mutations(module: str, source: str) -> list[Mutation]:
    """All changes of one thing in a module's functions, in its order."""
    starts = [0, *itertools.accumulate(len(line) for line in source.encode().splitlines(keepends=True))]
    listed: list[Mutation] = []
    for function, node, kind, text in _changes(ast.parse(source), ""):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        listed.append(Mutation(module, node.lineno, kind, function, start, end, text))
    return listed


Change = tuple[str, ast.expr | ast.stmt, str, str]  # the function it is in, what is replaced, how, and by what


def _changes(node: ast.AST, function: str) -> Iterator[Change]:
    for child in ast.iter_child_nodes(node):
        if _is_left_alone(child):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name not in UNTOLD and not any("overload" in ast.unparse(decorator) for decorator in child.decorator_list):
                for statement in child.body:
                    yield from _of(statement, child.name)
                    yield from () if _is_left_alone(statement) else _changes(statement, child.name)
            continue
        if function:
            yield from _of(child, function)
        yield from _changes(child, function)


def _is_left_alone(node: ast.AST) -> bool:
    """Whether nothing in it can be noticed, or nothing should be: types, errors' and logs' texts, what a platform decides."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            return "TYPE_CHECKING" in (text := ast.unparse(test)) or "platform" in text or "os.name" in text
        case ast.Raise() | ast.Assert() | ast.AnnAssign(value=None) | ast.arguments() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target))):
            return isinstance(target, ast.Name | ast.Attribute) and ast.unparse(target).rpartition(".")[2] in QUIET
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in ("__slots__", "__all__")
        case ast.Call(func=ast.Name(id="cast")):
            return True
        case _:
            return False


def _of(node: ast.AST, function: str) -> Iterator[Change]:
    """The changes of this one node; none of them makes what is certainly the same."""
    if _is_left_alone(node):
        return
    match node:
        case ast.Compare(ops=[operator]):
            changed = copy.deepcopy(node)
            changed.ops = [COMPARISONS[type(operator)]()]
            yield function, node, "comparison", f"({ast.unparse(changed)})"
            for side in (node.left, *node.comparators):
                if isinstance(side, ast.Constant) and type(side.value) is int:
                    yield function, side, "bound", str(side.value + 1)
        case ast.Slice(lower=lower, upper=upper):
            for side in (lower, upper):
                if isinstance(side, ast.Constant) and type(side.value) is int:
                    yield function, side, "bound", str(side.value + 1)
        case ast.BoolOp(op=operator, values=values):
            other = " or " if isinstance(operator, ast.And) else " and "
            yield function, node, "and/or", f"({other.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Constant):
            yield function, test, "branch", f"(not ({ast.unparse(test)}))"
        case ast.Return(value=ast.Constant(value=bool() as value)):
            yield function, node, "returned value", f"return {not value}"
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield function, node, "returned value", "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
            yield function, node, "removed statement", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield function, node, "removed statement", "pass"
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=int())):
            yield function, node, "bound", f"({ast.unparse(node)} + 1)"
        case _:
            return


def choose(project: Project, count: int, seed: int, room: str = "") -> list[Mutation]:
    """So many changes: the rooms in turn, in each a module by chance, in it a kind of change, and of these one."""
    chance = random.Random(seed)
    rooms: dict[str, list[str]] = {}
    for module in project.modules:
        if not module.startswith(ELSEWHERE) and "/" in module and module.startswith(room):
            rooms.setdefault(module.partition("/")[0], []).append(module)

    @cache
    def kinds_of(module: str) -> dict[str, list[Mutation]]:
        kinds: dict[str, list[Mutation]] = {}
        for mutation in mutations(module, (project.source / module).read_text("utf-8")):
            kinds.setdefault(mutation.kind, []).append(mutation)
        return kinds

    chosen: dict[Mutation, None] = {}
    for name in itertools.islice(itertools.cycle(rooms), count * 20):
        for _ in range(MOST_DRAWS):
            while not (kinds := kinds_of(module := chance.choice(rooms[name]))):
                rooms[name].remove(module)  # there is nothing to change in it
            mutation = chance.choice(kinds[chance.choice([*kinds])])
            if mutation not in chosen:
                chosen[mutation] = None
                break
        if len(chosen) == count:
            break
    return [*chosen]


# --- whether a test notices ---------------------------------------------------------------------------------------------------


class Trial:
    """A copy of `src` in a folder, in which one thing at a time is changed and tests are run."""

    def __init__(self, project: Project, folder: Path, timeout: float) -> None:
        self.project, self.folder, self.timeout = project, folder, timeout
        shutil.copytree(project.root / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc"))
        self._changes = 0

    def noticed_by(self, mutation: Mutation, stages: Sequence[Sequence[str]]) -> str:
        """The test that fails on the changed copy; empty: none of these files'."""
        path = self.folder / "src" / "callsmith" / mutation.module
        source = path.read_text("utf-8")
        try:
            self._write(path, mutation.apply(source))
            return next((failure for stage in stages if stage and (failure := self.failure(stage))), "")
        finally:
            self._write(path, source)

    def failure(self, tests: Sequence[str]) -> str:
        """The first failure of these files on the copy; empty: they pass."""
        options = ["-n", "0", "-q", "-x", "--no-header", "-p", "no:cacheprovider", "-m", MARKS]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src"), "PYTEST_XDIST_WORKER": "gw0"}
        process = subprocess.Popen(
            command, cwd=self.project.root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return f"no end within {self.timeout:.0f} s"
        if process.returncode in (0, 5):  # 5: all of them are deselected
            return ""
        failures = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return (failures or output.splitlines()[-1:] or ["the tests do not start"])[0][:160]

    def _write(self, path: Path, source: str) -> None:
        """With a time of its own: Python goes by time and size when it looks whether its compiled file is still true."""
        path.write_text(source, "utf-8")
        self._changes += 1
        os.utime(path, (stamp := 1_000_000_000 + self._changes, stamp))


def stages_for(project: Project, module: str, *, everything: bool = False) -> list[list[str]]:
    """The test files to run, likely ones first: of its name; the nearest in its room; others that import it; the rest."""
    importing = sorted(project.importing_tests(module))
    room = f"tests/{module.partition('/')[0]}/"
    likely = [*project.named_tests(module), *project.listed_tests(module), *(test for test in importing if test.startswith(room))]
    distances = {test: project.distance(test, module) for test in likely if project.reaches(test, module)}
    near = sorted(distances, key=lambda test: (distances[test] or 0, test))
    names = [test for test in project.named_tests(module) if Path(test).stem.startswith(f"test_{Path(module).stem}")]
    stages = [names, near[:NEAREST], [*near[NEAREST:], *importing], ["tests"] if everything else []]
    seen: set[str] = set()
    return [[test for test in dict.fromkeys(stage) if not (test in seen or seen.add(test))] for stage in stages]


def main() -> int:
    """Try them all, and say at the end which nobody noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", default="", help="only modules whose path begins so, as wire or server/http")
    parser.add_argument("--skip", type=int, default=0, help="leave the first ones out: an earlier run tried them")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a run of tests; a longer one has noticed")
    parser.add_argument("--all", action="store_true", help="run all tests on a change that the module's own did not notice")
    parser.add_argument("--list", action="store_true", help="only show the changes")
    options = parser.parse_args()
    project = Project()
    chosen = choose(project, options.count, options.seed, options.room)[options.skip :]
    survivors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        trial = Trial(project, Path(folder), options.timeout)
        for number, mutation in enumerate(chosen, options.skip + 1):
            source = (project.source / mutation.module).read_text("utf-8")
            print(f"{number:3} {mutation.module}:{mutation.line} in {mutation.function}: {mutation.kind}", flush=True)
            if options.list:
                continue
            began = time.monotonic()
            failure = trial.noticed_by(mutation, stages_for(project, mutation.module, everything=options.all))
            print(f"    {time.monotonic() - began:4.0f} s: {failure or 'NOT NOTICED'}", flush=True)
            if not failure:
                survivors.append(mutation.diff(source))
                print(survivors[-1], flush=True)
    print(f"\n{len(chosen) - len(survivors)} of {len(chosen)} noticed.", *survivors, sep="\n\n")
    return bool(survivors)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
