"""Every module's tests are found by its name, or the table in CONTRIBUTING.md says where they are."""

from pathlib import Path

import pytest

from tests.module_tests import HEADING, Project

FILES = {
    "src/callsmith/__init__.py": "",
    "src/callsmith/core/__init__.py": "",
    "src/callsmith/core/values.py": "",
    "src/callsmith/core/errors.py": "from callsmith.core.values import Call",
    "src/callsmith/core/types/__init__.py": "",
    "src/callsmith/core/types/text.py": "",
    "tests/__init__.py": "",
    "tests/core/__init__.py": "",
    "tests/core/test_values.py": "from callsmith.core.values import Call",
    "tests/core/types/__init__.py": "",
    "tests/core/types/test_cut.py": "import callsmith.core.types.text",
    "tests/core/test_all.py": "from callsmith.core import errors",
}
ROW = "| `core/errors.py` | `tests/core/test_all.py` |\n"


def project(folder: Path, table: str = ROW, **files: str) -> Project:
    for name, text in (FILES | files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (folder / "CONTRIBUTING.md").write_text(f"# A\n\n{HEADING}\n\n| modules | tests |\n|---|---|\n{table}\n## B\n", "utf-8")
    return Project(folder)


def test_every_modules_tests_are_found() -> None:
    assert list(Project().problems()) == []


def test_a_name_a_folder_and_a_row_say_where_the_tests_are(tmp_path: Path) -> None:
    assert list(project(tmp_path).problems()) == []


@pytest.mark.parametrize(
    ("table", "files", "problem"),
    [
        ("", {}, "core/errors.py: no test file has its name"),
        (ROW, {"src/callsmith/core/new.py": ""}, "core/new.py: no test file has its name"),
        (ROW, {"tests/core/test_all.py": ""}, "core/errors.py: none of tests/core/test_all.py imports it"),
        (ROW, {"tests/core/test_values.py": ""}, "core/values.py: none of tests/core/test_values.py imports it"),
        (ROW + ROW.replace("errors", "gone"), {}, "core/gone.py: there are no such modules"),
        (ROW + ROW.replace("test_all", "test_gone"), {}, "tests/core/test_gone.py: there are no such tests"),
    ],
)
def test_what_is_not_so_is_reported(table: str, files: dict[str, str], problem: str, tmp_path: Path) -> None:
    (reported,) = project(tmp_path, table, **files).problems()
    assert reported.startswith(problem)


def test_who_imports_a_module(tmp_path: Path) -> None:
    files = {"tests/helper.py": "from callsmith.core import values", "tests/test_far.py": "from tests.helper import values"}
    scratch = project(tmp_path, **files)
    assert scratch.importing_tests("core/values.py") == {"tests/core/test_values.py", "tests/test_far.py"}
    assert scratch.reaches("tests/core/test_all.py", "core/values.py")
    assert not scratch.reaches("tests/core/types/test_cut.py", "core/values.py")
