"""Characters that span tokens, and stop strings."""

from hypothesis import given
from hypothesis import strategies as st

from callsmith.engines.port import Piece
from callsmith.engines.text import StopScanner, Writer


def written(writer: Writer, chunks: list[bytes]) -> list[Piece]:
    return [*(piece for chunk in chunks for piece in writer.write(chunk)), *writer.close()]


def text(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


@given(st.text(), st.integers(1, 5))
def test_characters_are_whole_however_their_bytes_come(whole: str, size: int) -> None:
    data = whole.encode("utf-8", "replace")
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert text(written(Writer(), chunks)) == data.decode()


def test_a_character_cut_off_at_the_end_is_replaced() -> None:
    assert text(written(Writer(), ["🐈".encode()[:3]])) == "\ufffd"


def test_a_character_cut_off_by_a_special_token_is_replaced_before_it() -> None:
    writer = Writer()
    assert [*writer.write(b"a\xf0\x9f"), *writer.write_special("<x>"), *writer.write(b"b")] == [
        Piece("a"),
        Piece("\ufffd"),
        Piece("<x>", special=True),
        Piece("b"),
    ]


@given(st.text("ab"), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.integers(1, 4))
def test_text_ends_before_the_first_stop_string_whatever_the_chunking(whole: str, stops: list[str], size: int) -> None:
    scanner, pieces = StopScanner(stops), list[Piece]()
    for start in range(0, len(whole), size):
        pieces += scanner.feed(Piece(whole[start : start + size]))
    pieces += scanner.close()
    complete = [(start + len(stop), start) for stop in stops if (start := whole.find(stop)) >= 0]
    assert scanner.found == bool(complete)
    assert text(pieces) == whole[: min(complete)[1] if complete else None]


def test_a_stop_string_may_begin_in_text_and_end_in_a_special_token() -> None:
    scanner = StopScanner(["\n<x>"])
    assert scanner.feed(Piece("one\n")) == [Piece("one")]
    assert scanner.feed(Piece("<x>", special=True)) == []
    assert scanner.found


def test_a_special_token_that_may_begin_a_stop_string_is_held_back_whole() -> None:
    scanner = StopScanner(["x>end"])
    assert scanner.feed(Piece("<x>", special=True)) == []
    assert scanner.feed(Piece("en")) == []
    assert scanner.feed(Piece("emy")) == [Piece("<x>", special=True), Piece("en"), Piece("emy")]
