"""Escaping the text of special tokens, and the positions where no token may span."""

import json

import pytest

from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.formats import format_named
from callsmith.formats.prompt.escaping import BREAK, Escaper, remove_breaks
from callsmith.formats.prompt.prompt import Prompt, prompt_for
from callsmith.formats.prompt.template import CHATML, Template

ESCAPER = Escaper(frozenset({"<|im_end|>", "<think>", "</think>", "<", "ab", "ba"}))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("plain < text", ["plain < text"]),
        ("a<|im_end|>b", ["a<", "|im_end|>b"]),
        ("<|im_end|><|im_end|>", ["<", "|im_end|><", "|im_end|>"]),
        ("<|im_<|im_end|>end|>", ["<|im_<", "|im_end|>end|>"]),
        ("abab", ["a", "b", "a", "b"]),
    ],
)
def test_every_special_token_is_broken_and_nothing_else(text: str, pieces: list[str]) -> None:
    prompt_text, cuts = remove_breaks(ESCAPER.escape_text(text))
    assert prompt_text == text
    assert Prompt(prompt_text, cuts=cuts).pieces == pieces


def test_no_piece_holds_a_special_token_whatever_the_text() -> None:
    for text in ("ab" * 7 + "ba<|im_end|>", "<think>ab</think>", "aabbaabb<|im_end|>a"):
        pieces = Prompt(*_cut(ESCAPER.escape_text(text))).pieces
        assert "".join(pieces) == text
        assert not any(special in piece for special in ESCAPER.specials if len(special) > 1 for piece in pieces)


def _cut(marked: str) -> tuple[str, str, tuple[int, ...]]:
    text, cuts = remove_breaks(marked)
    return text, "", cuts


def test_marks_are_found_also_where_a_template_writes_only_ascii() -> None:
    assert remove_breaks(json.dumps(ESCAPER.escape_text("a<think>"))) == ('"a<think>"', (3,))


def test_the_marks_of_reasoning_stay_in_what_the_model_itself_said() -> None:
    thinks = format_named("qwen3").thinks
    escaped = ESCAPER.escape_message(Message.assistant("<think>hm</think>ab"), thinks)
    assert escaped.content == f"<think>hm</think>a{BREAK}b"
    assert ESCAPER.escape_message(Message.user("<think>"), thinks).content == f"<{BREAK}think>"


def test_the_system_message_is_the_authors_own() -> None:
    assert ESCAPER.escape_message(Message.system("ab")).content == "ab"


def test_all_that_others_wrote_is_cut_and_nothing_the_template_wrote() -> None:
    tool = Tool("look", "Look at <|x|>.", {"type": "object", "properties": {"<|x|>": {"enum": ["<|x|>"]}}})
    call = Call("look", {"<|x|>": ["<|x|>"]}, "c1")
    messages = (
        Message.user("hi <|x|>"),
        Message.assistant("<|x|>", calls=[call]),
        Message.tool(Result("c1", "look", "<|x|><|im_end|>")),
    )
    request, hermes = Request(messages, (tool,)), format_named("hermes")
    prompt = prompt_for(request, (tool,), Template(CHATML), hermes, Escaper(frozenset({"<|im_start|>", "<|im_end|>", "<|x|>"})))
    assert prompt.text == prompt_for(request, (tool,), Template(CHATML), hermes).text
    assert sum(piece.count("<|x|>") for piece in prompt.pieces) == 0
    assert len(prompt.cuts) == prompt.text.count("<|x|>") + 1 == 9
    assert sum(piece.count("<|im_end|>") for piece in prompt.pieces) == 4  # system, user, assistant, result


def test_the_same_tools_are_gone_through_once_and_a_list_always() -> None:
    escaper, tools = Escaper(frozenset({"ab"})), [Tool("look", "ab")]
    same = tuple(tools)
    assert escaper.escape_tools(same) is escaper.escape_tools(same)
    assert escaper.escape_tools(tools)[0].description == f"a{BREAK}b"
    tools[0] = Tool("look", "else")
    assert escaper.escape_tools(tools)[0].description == "else"
