"""Law 4 behind the opening of a tool prompt: the grammar of an answer that the prompt has begun allows just the rest of it."""

from functools import cache

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.events import Text, Thought
from callsmith.core.values import Choice
from callsmith.formats.prompt.tool_prompt import ToolPrompt
from callsmith.formats.write import literal_text, write
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.nodes import Grammar
from tests.effort import tries
from tests.formats.prompt.test_tool_prompt_laws import EACH, format_of, opened_prompt
from tests.grammar.checking import TOOLS, call, check_calls, read_sample, stuck
from tests.grammar.sampling import Sampler, compiler

pytestmark = pytest.mark.weights


@cache
def grammar_of(asked: ToolPrompt, *, parallel: bool) -> Grammar:
    made = grammar_for(format_of(asked), TOOLS, Choice("required"), parallel=parallel, opened=opened_prompt(asked, tuple(TOOLS)))
    assert made is not None
    return made


@EACH
def test_the_grammar_accepts_what_is_written_behind_the_opening(asked: ToolPrompt) -> None:
    format = format_of(asked)
    calls = [
        call(format, "get_weather", {"city": "Paris", "days": 3}),
        call(format, "now", {}),
        call(format, "mixed", {"e": "b c", "c": "fixed"}),
    ]
    for some in (calls[:1], calls[1:2], calls[1:], calls):
        rest = write(format, some).removeprefix(asked.opening)
        assert stuck(grammar_of(asked, parallel=True), rest) is None
        assert (stuck(grammar_of(asked, parallel=False), rest) is None) == (len(some) == 1)
    assert stuck(grammar_of(asked, parallel=True), write(format, calls)) is not None, "the opening does not come twice"
    wrong = write(format, [call(format, "get_weather", {"town": "Paris"})]).removeprefix(asked.opening)
    assert stuck(grammar_of(asked, parallel=True), wrong) is not None
    assert stuck(grammar_of(asked, parallel=True), literal_text(format.calls.close)) is not None, "there is one call at least"


@pytest.mark.generated
@EACH
@pytest.mark.parametrize("parallel", [True, False])
def test_whatever_the_grammar_lets_through_is_read_back_as_valid_calls(asked: ToolPrompt, parallel: bool) -> None:
    format, count, finished, counts = format_of(asked), tries(16, 48), 0, set[int]()
    tokens, compiling = compiler()
    sampler, opened = Sampler(tokens, compiling, format, asked.name), opened_prompt(asked, tuple(TOOLS))
    for _ in range(count):
        sample = sampler.draw(grammar_of(asked, parallel=parallel))
        if sample.whole:
            finished += 1
            events = read_sample(format, sample, TOOLS, tokens.specials, opened)
            counts.add(len(check_calls(events, TOOLS, grammar_of(asked, parallel=parallel), sample.text)))
            assert not [event for event in events if isinstance(event, Text | Thought)], sample.text
    assert finished > count * 0.6
    assert 0 not in counts and (parallel or counts == {1})
