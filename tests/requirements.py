"""docs/requirements.md and the tests that prove what it lists: `@pytest.mark.req("R92")`.

`python -m tests.requirements` (or `make requirements`) brings the tests in the last column of the page up to date, and the count
at its top. All else is written by hand: the texts, and in the last column what a test does not prove. A row ends with one of

    `place/test_file.py::test_name`, …                  the tests that prove it
    not: REASON                                         why nothing can or need prove it
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "requirements.md"
ROW = re.compile(r"\| (?P<number>R\d+) \| (?P<text>.*) \| (?P<proof>.*?) \|")
_TEST = r"`[\w/]+\.py::\w+`"
PROVEN = re.compile(rf"{_TEST}(, {_TEST})*( and \d+ more)?")
UNPROVEN = re.compile(r"not: \S.{15,}")
COUNT = re.compile(r"\*\*\d+ of \d+ rows are proven by tests\.\*\*")
MOST_NAMED = 3


@cache
def marked() -> dict[str, list[str]]:
    """Each number that a test names, with the tests: `runtime/test_loop.py::test_…`."""
    tests_of: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT / "tests").as_posix()
        for number, test in _marks(ast.parse(path.read_text("utf-8"))):
            tests_of.setdefault(number, []).append(f"{place}::{test}")
    return {number: list(dict.fromkeys(tests)) for number, tests in tests_of.items()}


def _marks(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from ((number, node.name) for decorator in node.decorator_list for number in _numbers(decorator))
        elif isinstance(node, ast.Assign) and any(
            isinstance(name, ast.Name) and name.id == "pytestmark" for name in node.targets
        ):
            assert not list(_numbers(node.value)), "a whole file proves no requirement: name the tests that do"


def _numbers(node: ast.AST) -> Iterator[str]:
    """The numbers in every `….req("R1", …)` in here."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "req":
            yield from (argument.value for argument in inner.args if isinstance(argument, ast.Constant))


def listed(page: str) -> dict[str, str]:
    """Each number on the page and what stands in its last column."""
    rows = [match for line in page.splitlines() if (match := ROW.fullmatch(line))]
    numbers = [row["number"] for row in rows]
    twice = {number for number in numbers if numbers.count(number) > 1}
    assert not twice, f"listed twice: {twice}"
    return {row["number"]: row["proof"] for row in rows}


def count(page: str) -> str:
    """How many rows of the page name a test that proves them, as it stands at its top."""
    proofs = listed(page).values()
    return f"**{sum(bool(PROVEN.fullmatch(proof)) for proof in proofs)} of {len(proofs)} rows are proven by tests.**"


def updated(page: str) -> str:
    """The page with its count, and the tests that prove each row, as the tests have them. What is written by hand stays."""
    lines: list[str] = []
    for line in page.splitlines():
        row = ROW.fullmatch(line)
        if row:
            line = f"| {row['number']} | {row['text']} | {_proof(marked().get(row['number'], []), row['proof'])} |"
        lines.append(line)
    page = "\n".join(lines) + "\n"
    return COUNT.sub(count(page), page, count=1)


def _proof(tests: list[str], proof: str) -> str:
    if not tests:  # a test that is gone leaves nothing behind, and the check then asks for a reason
        return "" if proof.startswith("`") else proof
    more = f" and {len(tests) - MOST_NAMED} more" if len(tests) > MOST_NAMED else ""
    return ", ".join(f"`{test}`" for test in tests[:MOST_NAMED]) + more


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
