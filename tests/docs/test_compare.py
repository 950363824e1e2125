"""docs/compare.md: every claim has a source, every source is used, and what it says of callsmith is so today."""

import re
from datetime import date, datetime

import pytest

from benchmarks.__main__ import APART, NAMES
from callsmith.formats import formats
from callsmith.models.remote.providers import providers
from tests.docs.blocks import DOCS

TEXT = (DOCS / "compare.md").read_text("utf-8")
TABLES, SOURCES = TEXT.split("\n## Sources\n")
KEY = r"\[([A-Z]\d+)\]"
COMMAND = r"`(?:callsmith|python -m benchmarks|pip) [^`]+`"


def rows(tables: str) -> list[list[str]]:
    """The rows of the tables without their headings, as cells."""
    lines = [line for line in tables.splitlines() if line.startswith("|")]
    heads = {at - 1 for at, line in enumerate(lines) if set(line) <= set("|-")}
    kept = [line for at, line in enumerate(lines) if at not in heads and not set(line) <= set("|-")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


def section(name: str) -> str:
    return TABLES.split(f"\n## {name}\n")[1].split("\n## ")[0]


def without_source(cells: list[str]) -> list[str]:
    return [cell for cell in cells if cell != "not found" and not re.search(rf"{KEY}|\]\(|{COMMAND}", cell)]


COMPARED = [row for name in ("Servers", "Libraries") for row in rows(section(name))]
FIGURES = rows(section("Figures"))


@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row[0])
def test_every_cell_has_a_source(row: list[str]):
    assert without_source(row[1:]) == []


@pytest.mark.parametrize("row", rows(section("When to take another")), ids=lambda row: row[0])
def test_where_another_is_better_both_sides_have_a_source(row: list[str]):
    need, ours, other, source = row
    assert need and other
    assert without_source([source]) == []
    assert "](" in ours


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: row[0])
def test_every_figure_has_a_command_and_a_day(row: list[str]):
    *_, command, day = row
    assert re.search(COMMAND, command)
    assert datetime.strptime(day, "%d %B %Y").date() <= written()


def test_the_tables_are_as_long_as_ever():
    """So that nothing above is true because nothing was read."""
    assert len(COMPARED) > 40 and len(FIGURES) > 10 and len(rows(section("When to take another"))) > 10
    assert without_source(["yes", "no: left out", "yes [V3]", "[yes](apis.md)", "not found"]) == ["yes", "no: left out"]


def test_every_source_is_used_and_every_key_is_a_source():
    listed = re.findall(r"^- ([A-Z]\d+) ", SOURCES, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == set(re.findall(KEY, TABLES))


@pytest.mark.parametrize("project", re.split(r"^### ", SOURCES, flags=re.MULTILINE)[1:], ids=lambda text: text.split("\n")[0])
def test_every_project_says_which_version_was_read(project: str):
    about = project.split("\n")[2]
    assert re.search(r"\d+\.\d+\.\d+|[Cc]ommit \[\w{8}", about)
    for line in project.splitlines():
        assert not line.startswith("- ") or re.search(r"`|\]\(|METADATA|routes", line), line


def written() -> date:
    """The day that the page says it is of."""
    match = re.search(r"^As of (\d+ \w+ \d{4})", TEXT, re.MULTILINE)
    assert match
    return datetime.strptime(match[1], "%d %B %Y").date()


def test_the_page_says_of_which_day_it_is():
    assert written() >= date(2026, 11, 18)


def test_every_benchmark_is_there():
    named = set(re.findall(r"`python -m benchmarks (\w+)`", TEXT))
    assert named and named <= {*NAMES, *APART}


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: row[0])
def test_the_figures_are_those_of_the_pages_that_explain_them(row: list[str]):
    pages = "".join((DOCS / name).read_text("utf-8") for name in ("performance.md", "servers.md", "evaluation.md"))
    figures = re.findall(r"(?<![\w.,])\d+(?:[.,]\d+)*(?![\w])", " ".join(row[1:4]))
    assert [figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", pages)] == []


def test_the_formats_and_providers_are_counted_right():
    assert {int(count) for count in re.findall(r"\[(\d+)\]\(formats\.md#known-formats\)", TEXT)} == {len(formats())}
    assert {int(count) for count in re.findall(r"\[(\d+)\]\(servers\.md#in-front", TEXT)} == {len(providers())}
