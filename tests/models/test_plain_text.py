"""The tokens of texts that are continued as they are."""

from types import SimpleNamespace
from typing import Any

import pytest

from callsmith.formats.prompt.prompt import Prompt
from callsmith.models.plain_text import LocalTokenizer


@pytest.mark.parametrize(
    ("first", "text", "bos", "tokens"),
    [(1, "ab", True, [1, 97, 98]), (1, "ab", False, [97, 98]), (1, "\x01a", True, [1, 97]), (None, "a", True, [97])],
)
def test_a_text_begins_with_the_token_of_beginnings_once(first: int | None, text: str, bos: bool, tokens: list[int]) -> None:
    letters: Any = SimpleNamespace(bos=first, encode=lambda piece, specials=True: [ord(char) for char in piece])
    assert LocalTokenizer(letters, lambda _: Prompt("")).encode(text, bos=bos) == tokens
