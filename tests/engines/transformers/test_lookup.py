"""What is guessed to follow a text. It needs no PyTorch, but its package does."""

import pytest

pytest.importorskip("torch", reason="the transformers engine has an environment of its own: make test-torch")
pytest.importorskip("transformers")

from callsmith.engines.transformers.lookup import Guesses, Text

pytestmark = pytest.mark.torch


def text_of(tokens: list[int]) -> Text:
    text = Text()
    for position, token in enumerate(tokens):
        text.put(position, token)
    return text


def test_what_followed_the_last_four_tokens_where_they_stood_last_is_guessed() -> None:
    assert text_of([1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 8, 9, 10, 11, 1, 2, 3, 4]).guess() == [8, 9, 10]


def test_nothing_is_guessed_where_they_did_not_stand_or_too_little_followed() -> None:
    assert text_of([]).guess() == text_of([1, 2, 3]).guess() == text_of([1, 2, 3, 4, 5, 6, 7, 8]).guess() == []
    assert text_of([1, 2, 3, 4, 1, 2, 3, 4]).guess() == [1, 2, 3]
    assert text_of([7, 7, 7, 7, 7]).guess() == []


def test_bytes_that_only_look_alike_between_tokens_are_none() -> None:
    shifted = [0x01000000, 0x01000000, 0x01000000, 0x01000000, 0x01000000, 5, 6, 7]
    assert text_of([*shifted, 1, 1, 1, 1]).guess() == []
    assert text_of([1, 1, 1, 1, 2, 3, 4, *shifted, 1, 1, 1, 1]).guess() == [2, 3, 4]


def test_a_text_that_is_cut_or_written_anew_is_looked_up_as_it_is_now() -> None:
    text = text_of([1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4])
    assert text.guess() == [5, 6, 7]
    text.put(10, 9)
    assert text.guess() == []
    text.cut(10)
    text.put(10, 4)
    copied = Text()
    copied.take(text)
    text.cut(0)
    assert copied.guess() == [5, 6, 7]
    assert text.guess() == []


def test_a_guess_holds_in_its_place_alone() -> None:
    guesses = Guesses(2, 10, [5, 6, 7])
    assert [guesses.hold(token, 10 + place, 2) for place, token in enumerate((5, 6, 7, 8))] == [True, True, True, False]
    assert not guesses.hold(5, 10, 1)
    assert not guesses.hold(5, 11, 2)
    assert not Guesses().hold(5, 10, 2)
