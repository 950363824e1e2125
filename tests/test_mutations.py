"""The script that changes the code makes changes that can be noticed, one at a time, and leaves the rest alone."""

import ast
from collections import Counter
from textwrap import dedent

import pytest

from tests.module_tests import Project
from tests.mutations import ELSEWHERE, choose, mutations, stages_for

KINDS = {"comparison", "bound", "branch", "returned value", "and/or", "removed statement"}


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("return a < b", {"return (a <= b)", "return None"}),
        ("return True", {"return False"}),
        ("if a is None: b()", {"if (a is not None): b()", "if (not (a is None)): b()", "if a is None: pass"}),
        ("x = a and b", {"x = ((a) or (b))"}),
        ("x = 'é', a > 0", {"x = 'é', (a >= 0)", "x = 'é', a > 1"}),
        ("x = a[1:]", {"x = a[2:]"}),
        ("x = n + 1", {"x = (n + 1 + 1)"}),
        ("self.x = a", {"pass"}),
        ("await a()", {"pass"}),
        ("x = a if b else c", {"x = a if (not (b)) else c"}),
        ("log.info('%s', a < b)", set[str]()),
        ("raise ValueError(f'{a < b}')", set[str]()),
        ("'''A docstring.'''", set[str]()),
        ("assert a < b", set[str]()),
    ],
)
def test_one_thing_is_changed(statement: str, changed: set[str]) -> None:
    source = f"async def f(a, b=1 < 2):\n    {statement}\n"
    assert {mutation.apply(source).splitlines()[1].strip() for mutation in mutations("core/a.py", source)} == changed


def test_what_no_test_should_notice_is_left_alone() -> None:
    source = dedent(
        """
        if TYPE_CHECKING:
            x = 1 < 2
        LIMIT = 3 < 4

        class A:
            __slots__ = ("a",)

            def __repr__(self):
                return f"{self.a}"

            @overload
            def f(self): return a < b
        """
    )
    assert mutations("core/a.py", source) == []


def test_changes_are_spread_over_rooms_and_kinds_and_can_be_compiled() -> None:
    project = Project()
    chosen = choose(project, 60, seed=1)
    assert choose(project, 20, seed=1) == chosen[:20]
    rooms = Counter(mutation.module.partition("/")[0] for mutation in chosen)
    assert max(rooms.values()) - min(rooms.values()) <= 1
    assert {mutation.kind for mutation in chosen} == KINDS
    assert not [mutation for mutation in chosen if mutation.module.startswith(ELSEWHERE)]
    for mutation in chosen:
        source = (project.source / mutation.module).read_text("utf-8")
        assert ast.dump(ast.parse(mutation.apply(source))) != ast.dump(ast.parse(source))
        assert mutation.diff(source).count("\n+") == 2, "its file's name and one line"


def test_tests_of_its_name_are_run_first() -> None:
    first, near, far, rest = stages_for(Project(), "wire/sse.py", everything=True)
    assert first == ["tests/wire/test_sse.py"]
    assert near and all(test.startswith("tests/wire/") for test in near)
    assert not {*near} & {*far}
    assert rest == ["tests"]
