"""docs/adapters.md: its Python runs, where the frameworks are installed, on a model that writes what it is told."""

import ast
import asyncio
from pathlib import Path

import pytest

from tests.adapters.scripted import calling, open_scripted
from tests.docs.blocks import blocks

# What the model writes, one after the other, in each chapter of the page; and what is then printed.
CHAPTERS = {
    "langchain": (
        (
            calling("get_weather", city="Bonn"),
            '{"name": "Bonn", "inhabitants": 330000}',
            calling("send_mail", to="Ada", text="the forge is hot"),
            "Done.",
        ),
        ("'city': 'Bonn'", "inhabitants=330000", "\n42\n", "the forge is hot", "Done."),
    ),
    "crewai": ((calling("add", a=17, b=25), "It is 42."), ("It is 42.",)),
    "llamaindex": ((calling("add", a=17, b=25), "It is 42."), ("It is 42.",)),
}


NEEDS = {"langchain": "langchain", "llamaindex": "llama_index.core", "crewai": "crewai"}
MARKS = {"crewai": pytest.mark.crewai}


@pytest.mark.parametrize("chapter", [pytest.param(item, marks=MARKS.get(item, pytest.mark.clients)) for item in CHAPTERS])
def test_the_python_of_the_page_runs(
    chapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(NEEDS[chapter], reason="it is installed by make test-clients, or make test-crewai")
    replies, printed = CHAPTERS[chapter]
    monkeypatch.chdir(tmp_path)
    open_scripted(monkeypatch, *replies)
    names: dict[str, object] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks("python"):
            if block.page == "docs/adapters.md" and _chapter(block.line) == chapter:
                code = compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                if (waiting := eval(code, names)) is not None:
                    runner.run(waiting)
    output = capsys.readouterr().out
    for part in printed:
        assert part in output


def _chapter(line: int) -> str:
    """The heading of the second level that a line stands under."""
    lines = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text("utf-8").splitlines()[:line]
    return next(line.removeprefix("## ").lower() for line in reversed(lines) if line.startswith("## "))
