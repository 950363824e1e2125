"""Texts that are cut say how much is missing."""

import pytest

from callsmith.core.types.escaped_text import cut_text


def note(missing: str, whole: str) -> str:
    return f"\n[Cut here: {missing} of {whole} characters are missing.]"


def test_what_fits_is_left_alone_and_the_rest_is_counted():
    assert cut_text("abc", 3) == "abc"
    assert cut_text("abcd", 3) == f"abc{note('1', '4')}"
    assert cut_text("x" * 12_345, 2) == f"xx{note('12,343', '12,345')}"


def test_what_was_cut_before_says_what_is_missing_of_the_whole():
    assert cut_text(cut_text("x" * 5_000, 1_000), 10) == f"{'x' * 10}{note('4,990', '5,000')}"


@pytest.mark.parametrize("end", [note(",", ","), note("1", "1" * 30), note("1", "²"), f"{note('1', '9')} and on"])
def test_what_only_looks_like_such_a_note_is_text(end: str):
    text = "x" * 200 + end
    assert cut_text(text, 10) == f"{'x' * 10}{note(f'{len(text) - 10}', f'{len(text)}')}"


def test_nobody_can_have_less_missing_than_is():
    assert cut_text("x" * 200 + note("1", "5"), 10) == f"{'x' * 10}{note('190', '200')}"
