"""Which tokens the log probabilities of a text belong to: those of the text, not those of thoughts, calls and markers."""

from dataclasses import replace

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent, Text
from callsmith.core.values import Message, Output, Request, Sampling, TokenLogprob, Tool
from callsmith.engines.port import Piece, SampledToken
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from tests.journeys.scripts import FORMATS, answer_text

WEATHER = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
TIMER = Tool("set_timer", "", {"type": "object", "properties": {"minutes": {"type": "integer"}}})
ASK = Request((Message.user("Weather?"),), (WEATHER, TIMER), sampling=Sampling(logprobs=0))


def pieces(text: str, size: int) -> tuple[Piece, ...]:
    cuts = range(0, len(text), size)
    tokens = [SampledToken(TokenLogprob(text[at : at + size].encode(), -1.0), at, at + size) for at in cuts]
    return tuple(Piece(token.logprob.text, tokens=(token,)) for token in tokens)


def model(*replies: tuple[Piece, ...], format: str = "hermes") -> LocalModel:
    engine = Scripted(replies)
    engine.info = replace(engine.info, logprobs=True)
    return LocalModel(engine, format_named(format), Template(CHATML))


async def texts(local: LocalModel, request: Request = ASK) -> list[Text]:
    events: list[ModelEvent] = [event async for event in local.stream(request)]
    return [event for event in events if isinstance(event, Text)]


def spelled(text: Text) -> str:
    return "".join(token.text for token in text.logprobs)


@pytest.mark.parametrize("name", FORMATS)
async def test_each_letter_of_the_text_has_its_token_and_nothing_else_has(name: str) -> None:
    output = await texts(model(pieces(answer_text(format_named(name)), 1), format=name))
    assert output
    assert [spelled(text) for text in output] == [text.text for text in output]


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("name", FORMATS)
async def test_a_token_is_given_once_and_covers_its_text(name: str, size: int) -> None:
    output = await texts(model(pieces(answer_text(format_named(name)), size), format=name))
    whole, tokens = "".join(text.text for text in output), "".join(spelled(text) for text in output)
    assert whole in tokens
    assert len(tokens) - len(whole) < 2 * size  # at its edges, a token may be part of a marker


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        ("<think>\nParis\n</think>\n\nParis", "Paris"),
        ('Paris<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', "Paris"),
        ("a <tool_call> is a marker", "a <tool_call> is a marker"),
        ("so \n\n", "so \n\n"),
    ],
)
async def test_the_same_words_elsewhere_are_not_taken_for_the_text(reply: str, content: str) -> None:
    local = model(tuple(replace(piece) for piece in pieces(reply, 1)))
    output = await texts(local)
    assert "".join(map(spelled, output)) == "".join(text.text for text in output) == content
    starts = [token for text in output for token in text.logprobs]
    assert len(starts) == len(content)


async def test_bytes_of_one_character_are_all_given() -> None:
    tokens = [SampledToken(TokenLogprob(b"a", -1.0), 0, 1)]
    tokens += [SampledToken(TokenLogprob(bytes([byte]), -1.0), 1, 1) for byte in "€".encode()[:2]]
    tokens += [SampledToken(TokenLogprob("€".encode()[2:], -1.0), 1, 2)]
    output = await texts(model((Piece("a", tokens=(tokens[0],)), Piece("€", tokens=tuple(tokens[1:])))))
    assert b"".join(token.data for text in output for token in text.logprobs) == "a€".encode()


async def test_a_second_attempt_brings_its_own_tokens() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    request = replace(ASK, tools=(), output=Output(schema))
    output = await texts(model(pieces("[1, 1]", 1), pieces("[1, 2]", 1)), request)
    assert [text.text for text in output] == ["[1, 2]"] == [spelled(text) for text in output]


async def test_an_engine_that_has_no_log_probabilities_is_not_asked_for_them() -> None:
    local = LocalModel(Scripted(["hi"]), format_named("hermes"), Template(CHATML))
    with pytest.raises(UsageError, match="does not give log probabilities"):
        await texts(local)
