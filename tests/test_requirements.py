"""docs/requirements.md says which tests prove which requirement, and that is so."""

import re

from tests.requirements import LATER, PAGE, ROOT, listed, marked, updated

LAST = 238


def page() -> str:
    return PAGE.read_text("utf-8")


def test_every_requirement_is_listed_once():
    assert sorted(listed(page()), key=lambda number: int(number[1:])) == [f"R{number}" for number in range(1, LAST + 1)]


def test_every_number_that_a_test_names_is_listed():
    assert set(marked()) <= set(listed(page()))


def test_the_tests_that_are_listed_exist():
    for proof in listed(page()).values():
        for place, name in re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", proof):
            source = (ROOT / "tests" / place).read_text("utf-8")
            assert re.search(rf"(def|class) {name}\b", source), f"{place} has no {name}"


def test_the_page_is_up_to_date():
    assert updated(page()) == page(), "run: make requirements"


def test_what_no_test_proves_says_why_not():
    proofs = marked()
    assert all(proof.startswith(LATER) or len(proof) > 10 for number, proof in listed(page()).items() if number not in proofs)
