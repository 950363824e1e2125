"""Outputs, read as expected: a few of every family, written by us, and all of the corpus where it can be had."""

import json
import re
from pathlib import Path

import pytest

from callsmith.formats import formats
from tests.formats.reader.corpus import CORPUS, WILD, cases

OUTPUTS = CORPUS / "model_outputs"
DEVIATIONS = Path(__file__).parent / "deviations.md"

needs_corpus = pytest.mark.skipif(not OUTPUTS.is_dir(), reason=f"no corpus at {CORPUS}: set CALLSMITH_CORPUS")


def listed() -> set[str]:
    return set(re.findall(r"^- `(.*)`$", DEVIATIONS.read_text(encoding="utf-8"), re.MULTILINE))


def summary(judged: int, settled: int, contradicted: int, other: int) -> str:
    """What the head of the list must say."""
    read = judged - settled - contradicted - other

    def share(of: int) -> str:
        return f"{read} of {of} ({100 * read / of:.1f} %)"

    return (
        f"- Read as expected: {share(judged)}.\n"
        f"- Of those that do not contradict a settled decision ({settled} do): {share(judged - settled)}.\n"
        f"- Of those on which, besides, the peers agree ({contradicted} they do not): {share(judged - settled - contradicted)}."
    )


@pytest.mark.req("R195")
@pytest.mark.req("R229")
@pytest.mark.parametrize("case", list(cases(WILD)), ids=lambda case: case.name[:80])
def test_a_wild_output_is_read_as_expected(case):
    assert not case.differs()


@pytest.mark.req("R195")
def test_every_format_has_wild_outputs_of_its_own():
    counted = {format.name: 0 for format in formats().values()}
    for case in cases(WILD):
        counted[case.format.name] += 1
    written_by_no_model = {"qwen25", "generic-xml", "plain-call", "fenced-json", "json", "json-array"}
    assert not {name: count for name, count in counted.items() if count < 3 and name not in written_by_no_model}


@needs_corpus
def test_no_wild_output_is_taken_from_the_corpus():
    assert not {case.row["output"] for case in cases(WILD)} & {case.row["output"] for case in cases(OUTPUTS)}


@needs_corpus
def test_the_corpus_is_read_as_expected_but_for_the_listed_deviations():
    known = set(formats()) | {alias for format in formats().values() for alias in format.aliases} | {"none"}
    judged = [case for case in cases(OUTPUTS) if case.row["format"].replace("_", "-") in known and case.counts]
    differing = {case.key: f"{case.name}: {why}" for case in judged if (why := case.differs())}
    unlisted = {key: why for key, why in differing.items() if key not in listed()}
    assert not unlisted, json.dumps(unlisted, indent=1, ensure_ascii=False)
    read = {case.key for case in judged} - set(differing)
    assert not listed() & read, "these are read as expected now: take them off the list"
    assert len(judged) > 700
    text = DEVIATIONS.read_text(encoding="utf-8")
    groups = [group.count("\n- `") for group in text.split("\n## ")[1:]]
    assert summary(len(judged), *groups) in text


@needs_corpus
def test_where_a_peer_throws_the_calls_away_the_text_is_read_as_expected():
    thrown = [case for case in cases(OUTPUTS) if case.throws_calls_away]
    assert len(thrown) > 40
    assert not {case.name: why for case in thrown if (why := case.differs())}


def test_the_list_counts_its_deviations():
    sections = DEVIATIONS.read_text(encoding="utf-8").split("\n### ")[1:]
    counted = {title: section.count("\n- `") for section in sections if (title := section.split("\n")[0])}
    assert {title: int(title.rpartition("(")[2].rstrip(")")) for title in counted} == counted
