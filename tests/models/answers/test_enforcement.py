"""Grammars that a server does not take, takes only in part, or ignores."""

import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.errors import GrammarRefused, UsageError
from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, Unenforced
from callsmith.core.values import Choice, Message, Output, Request, Sampling, Tool
from callsmith.engines.port import Finished, Piece
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay
from callsmith.models.local import LocalModel

ADD = Tool(
    "add",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 9}, "b": {"type": "string", "maxLength": 5}},
        "required": ["a"],
    },
)
GOOD = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
BAD = '<tool_call>\n{"name": "add", "arguments": {"a": 100}}\n</tool_call>'
REQUIRED = Choice("required")


class Afar(Scripted):
    """A scripted engine behind a connection. It takes grammars of so many characters, and refuses others when asked."""

    def __init__(self, *replies: str, fits: int = 1_000_000, refuses: int = 0, enforces: bool = True, **options: Any) -> None:
        super().__init__(replies, **options)
        self.fits, self.refuses = fits, refuses
        self.info = replace(self.info, unenforced=self.unenforced, is_enforcing=enforces, spells_specials=True)

    def unenforced(self, grammar: Grammar) -> Sequence[tuple[str, str]] | None:
        return () if len(repr(grammar.start)) + len(repr(grammar.rules)) <= self.fits else None

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | Relay | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        if self.refuses and isinstance(grammar, Grammar):
            self.refuses -= 1
            self.fits = len(repr(grammar.start)) + len(repr(grammar.rules)) - 1
            raise GrammarRefused("failed to parse grammar", status=400)
        async for item in super().generate(prompt, sampling, grammar):
            yield item


def model(engine: Scripted) -> LocalModel:
    return LocalModel(engine, format_named("hermes"), Template(CHATML))


async def ask(engine: Scripted, choice: Choice = REQUIRED, **more: Any) -> list[ModelEvent]:
    request = Request((Message.user("Add."),), (ADD,), choice, parallel=False, **more)
    return [event async for event in model(engine).stream(request)]


def calls(events: Sequence[ModelEvent]) -> list[Any]:
    return [dict(event.call.arguments) for event in events if isinstance(event, CallReady)]


def end(events: Sequence[ModelEvent]) -> Stopped:
    assert isinstance(events[-1], Stopped)
    return events[-1]


async def test_a_grammar_that_is_too_large_is_loosened_and_what_was_let_go_is_validated() -> None:
    whole = Afar(GOOD)
    await ask(whole)
    grammar = whole.asked[0].grammar
    assert isinstance(grammar, Grammar) and grammar.loosened == 0
    size = len(repr(grammar.start)) + len(repr(grammar.rules))
    small = Afar(BAD, GOOD, fits=size - 1)
    events = await ask(small)
    looser = small.asked[0].grammar
    assert isinstance(looser, Grammar) and looser.loosened >= 1
    assert ("#/properties/a", "maximum") in looser.unenforced
    assert calls(events) == [{"a": 1}]  # the second attempt
    assert end(events).report.retries == 1
    assert Unenforced("add", "#/properties/a", "maximum") in end(events).report.unenforced


async def test_a_grammar_that_a_server_refuses_is_replaced_by_a_looser_one() -> None:
    engine = Afar(GOOD, refuses=1)
    events = await ask(engine)
    assert calls(events) == [{"a": 1}]
    grammar = engine.asked[0].grammar
    assert isinstance(grammar, Grammar) and grammar.loosened >= 1
    assert Unenforced("add", "#/properties/a", "maximum") in end(events).report.unenforced


async def test_a_grammar_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(UsageError, match="too large"):
        await ask(Afar(GOOD, fits=1))
    with pytest.raises((GrammarRefused, UsageError)):
        await ask(Afar(GOOD, refuses=100))


async def test_an_engine_that_ignores_grammars_is_noticed_once_and_validated_from_then_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Afar(BAD, BAD, GOOD, "Sorry.", GOOD)
    local_model = model(engine)
    request = Request((Message.user("Add."),), (ADD,), REQUIRED, parallel=False)
    with caplog.at_level(logging.WARNING):
        first = [event async for event in local_model.stream(request)]
        second = [event async for event in local_model.stream(request)]
        third = [event async for event in local_model.stream(request)]
    assert calls(first) == [{"a": 100}]  # it was under way before anybody could know
    assert Unenforced("", "#", "grammar") in end(first).report.unenforced
    assert calls(second) == [{"a": 1}] and end(second).report.retries == 1
    assert Unenforced("add", "#", "grammar") in end(second).report.unenforced
    assert calls(third) == [{"a": 1}] and end(third).reason == "calls"
    assert not any(isinstance(event, Text) for event in third)
    assert Unenforced("", "#", "tool_choice") in end(third).report.unenforced
    assert caplog.text.count("ignores grammars") == 1


async def test_an_engine_known_to_ignore_grammars_is_asked_once_more_for_a_call_and_then_believed() -> None:
    events = await ask(Afar("I cannot.", "Really not.", enforces=False))
    assert [event.text for event in events if isinstance(event, Text)] == ["I cannot."]
    assert end(events).report.retries == 1
    assert end(events).reason == "stop"


@pytest.mark.parametrize(
    ("reply", "more"),
    [
        (GOOD, {}),
        (BAD[:-30], {"sampling": Sampling(max_tokens=5)}),  # cut off
        ('{"name": 1}', {"choice": Choice("none"), "output": Output({"type": "object"})}),
    ],
)
async def test_nothing_is_noticed_where_nothing_is_wrong(
    reply: str, more: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    events = await ask(Afar(reply), **more)
    assert end(events).report.unenforced == ()
    assert "ignores" not in caplog.text


async def test_text_that_is_no_output_gives_it_away() -> None:
    events = await ask(Afar("No JSON."), choice=Choice("none"), output=Output({"type": "object"}))
    assert Unenforced("", "#", "grammar") in end(events).report.unenforced


async def test_under_a_grammar_a_marker_may_come_as_letters() -> None:
    specials = {"<tool_call>": 1, "</tool_call>": 2}
    spelled = Afar(specials=specials)
    spelled._replies = (tuple(Piece(letter) for letter in GOOD),)  # pyright: ignore
    assert calls(await ask(spelled)) == [{"a": 1}]
    assert calls(await ask(Afar(GOOD, specials=specials))) == [{"a": 1}]
    mentioned = Scripted([tuple(Piece(letter) for letter in GOOD)], specials=specials)
    assert calls(await ask(mentioned, Choice())) == []  # without one, letters are only letters
