"""docs/requirements.md says which tests prove which requirement, and that is so."""

import re

import pytest

from tests.requirements import COUNT, PAGE, PROVEN, ROOT, UNPROVEN, count, listed, marked, updated

LAST = 238


def page() -> str:
    return PAGE.read_text("utf-8")


def test_every_requirement_is_listed_once():
    assert sorted(listed(page()), key=lambda number: int(number[1:])) == [f"R{number}" for number in range(1, LAST + 1)]


def test_every_number_that_a_test_names_is_listed():
    assert set(marked()) <= set(listed(page()))


def test_the_tests_that_are_listed_exist():
    tests = [test for proof in listed(page()).values() for test in re.findall(r"`([\w/]+\.py)::(\w+)`", proof)]
    assert len(tests) > LAST / 2
    for place, name in tests:
        source = (ROOT / "tests" / place).read_text("utf-8")
        assert re.search(rf"(def|class) {name}\b", source), f"{place} has no {name}"


def test_every_sample_of_the_documents_is_a_test_that_exists():
    table = page().partition("## The documents' own samples")[2]
    rows = re.findall(r"^\| (ADR-010|M21|vLLM\.rs|EdgeVox) \| .+ \| `([\w/]+\.py)::(\w+)` \|$", table, re.MULTILINE)
    assert len(rows) == table.count("\n|") - 2
    assert {document for document, _, _ in rows} == {"ADR-010", "M21", "vLLM.rs", "EdgeVox"}
    for _, place, name in rows:
        assert re.search(rf"def {name}\b", (ROOT / "tests" / place).read_text("utf-8")), f"{place} has no {name}"


def test_the_number_of_proven_rows_stands_at_the_top():
    top = page().partition("\n## ")[0]
    assert COUNT.findall(top) == [count(page())], "run: make requirements"
    rows = re.findall(r"^\| R\d+ \|.*\| (.*) \|$", page(), re.MULTILINE)  # counted once more, by what the column begins with
    assert count(page()) == f"**{sum(row.startswith('`') for row in rows)} of {len(rows)} rows are proven by tests.**"


def test_a_row_that_loses_its_proof_is_no_longer_counted():
    proven, rows = map(int, re.findall(r"\d+", count(page())))
    without = re.sub(r"^(\| R92 \|.*\|) .* \|$", r"\1 not: nothing proves it any more |", page(), flags=re.MULTILINE)
    assert count(without) == f"**{proven - 1} of {rows} rows are proven by tests.**"


def test_the_page_is_up_to_date():
    assert updated(page()) == page(), "run: make requirements"


def test_every_row_is_proven_or_says_why_nothing_does():
    proofs = listed(page())
    proven = {number for number, proof in proofs.items() if PROVEN.fullmatch(proof)}
    assert proven == set(marked())
    assert [(number, proof) for number, proof in proofs.items() if number not in proven and not UNPROVEN.fullmatch(proof)] == []


@pytest.mark.parametrize(
    "proof", ["", "later", "later: soon", "comes later", "comes with something", "not: yet", "not:", "trust me"]
)
def test_a_row_that_says_nothing_is_refused(proof: str):
    assert not PROVEN.fullmatch(proof)
    assert not UNPROVEN.fullmatch(proof)
