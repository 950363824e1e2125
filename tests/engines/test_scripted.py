"""The engine that says what it is told."""

import json
from pathlib import Path

import pytest

from callsmith.core.errors import ModelError, Unavailable, UsageError
from callsmith.core.values import Sampling
from callsmith.engines import open_engine
from callsmith.engines.port import Engine, Piece
from callsmith.engines.scripted import Scripted
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar, Lit

from .contract import EngineContract, say


class TestContract(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return Scripted(["The sea is wide and deep."], repeat=True)


HELLO = Prompt("Hello")


async def test_replies_come_in_their_order_and_then_it_is_over() -> None:
    engine = Scripted(["one", "two"])
    assert [(await say(engine, HELLO))[0] for _ in range(2)] == ["one", "two"]
    with pytest.raises(Unavailable, match="after 2 replies"):
        await say(engine, HELLO)


async def test_it_remembers_what_it_was_asked() -> None:
    engine, grammar = Scripted(["one"]), Grammar(Lit("one"))
    await say(engine, HELLO, Sampling(seed=3), grammar)
    assert [(request.prompt, request.sampling.seed, request.grammar) for request in engine.asked] == [(HELLO, 3, grammar)]


async def test_a_special_token_is_a_piece_of_its_own() -> None:
    engine = Scripted(["so <call>it</call>"], chunk=100, specials={"<call>": 1, "</call>": 2})
    pieces = [item async for item in engine.generate(HELLO, Sampling())][:-1]
    assert pieces == [Piece("so "), Piece("<call>", special=True), Piece("it"), Piece("</call>", special=True)]


async def test_a_reply_may_be_a_failure_or_the_very_pieces() -> None:
    engine = Scripted([ModelError("broken"), (Piece("<x>"), Piece("y"))])
    with pytest.raises(ModelError, match="broken"):
        await say(engine, HELLO)
    assert (await say(engine, HELLO))[0] == "<x>y"


async def test_it_opens_on_a_literal_text_and_on_a_file_of_json_strings(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    file.write_text(json.dumps("one\nline") + "\n\n" + json.dumps("two") + "\n")
    engine = open_engine(f"scripted:{file}")
    assert [(await say(engine, HELLO))[0] for _ in range(3)] == ["one\nline", "two", "one\nline"]
    long = "Hello there! " * 100
    assert (await say(open_engine(f"scripted:{long}"), HELLO, Sampling()))[0] == long


async def test_a_line_separator_of_unicode_ends_no_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    file.write_text('"one\u2028line"\n"two\x85"\r\n', encoding="utf-8", newline="")
    engine = open_engine(f"scripted:{file}")
    assert [(await say(engine, HELLO))[0] for _ in range(2)] == ["one\u2028line", "two\x85"]


def test_a_file_of_anything_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    for content in ("not json", "[1]", ""):
        file.write_text(content)
        with pytest.raises(UsageError, match="one JSON string a line"):
            open_engine(f"scripted:{file}")
