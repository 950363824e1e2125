"""docs/api.md: every public name is there, with a sentence and an example, and the examples do what they show."""

import doctest
import re
from pathlib import Path

import pytest

import callsmith

PAGE = Path(__file__).parent.parent / "docs" / "api.md"


def sections() -> dict[str, str]:
    """What stands under the heading of each name."""
    parts = re.split(r"^### `(\w+)`\n", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_public_name_has_its_place_and_no_other_has_one():
    assert sorted(sections()) == callsmith.__all__


@pytest.mark.parametrize(("name", "text"), sections().items(), ids=list(sections()))
def test_a_name_has_a_sentence_and_an_example_with_it(name: str, text: str):
    sentence, _, example = text.strip().partition("\n\n")
    assert re.fullmatch(r"[A-Z][^\n]*(\n[^\n]+)*\.", sentence), sentence
    assert example.startswith("```pycon\n>>> ")
    assert re.search(rf"\b{name}\b", example.partition("\n## ")[0]), f"the example does not use {name}"


def test_the_examples_do_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    texts: list[str] = []
    test = doctest.DocTestParser().get_doctest(PAGE.read_text("utf-8"), {"__name__": "__main__"}, "api.md", str(PAGE), 0)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=texts.append)
    assert result.attempted > 80
    assert not result.failed, "".join(texts)


def test_the_readme_links_to_it():
    assert "(docs/api.md)" in (PAGE.parent.parent / "README.md").read_text("utf-8")
