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
def grammar_of(tool_prompt: ToolPrompt, *, parallel: bool) -> Grammar:
    grammar = grammar_for(
        format_of(tool_prompt), TOOLS, Choice("required"), parallel=parallel, opened=opened_prompt(tool_prompt, tuple(TOOLS))
    )
    assert grammar is not None
    return grammar


@EACH
def test_the_grammar_accepts_what_is_written_behind_the_opening(tool_prompt: ToolPrompt) -> None:
    format = format_of(tool_prompt)
    calls = [
        call(format, "get_weather", {"city": "Paris", "days": 3}),
        call(format, "now", {}),
        call(format, "mixed", {"e": "b c", "c": "fixed"}),
    ]
    for some in (calls[:1], calls[1:2], calls[1:], calls):
        rest = write(format, some).removeprefix(tool_prompt.opening)
        assert stuck(grammar_of(tool_prompt, parallel=True), rest) is None
        assert (stuck(grammar_of(tool_prompt, parallel=False), rest) is None) == (len(some) == 1)
    assert stuck(grammar_of(tool_prompt, parallel=True), write(format, calls)) is not None, "the opening does not come twice"
    wrong = write(format, [call(format, "get_weather", {"town": "Paris"})]).removeprefix(tool_prompt.opening)
    assert stuck(grammar_of(tool_prompt, parallel=True), wrong) is not None
    assert stuck(grammar_of(tool_prompt, parallel=True), literal_text(format.calls.close)) is not None, (
        "there is one call at least"
    )


@pytest.mark.generated
@EACH
@pytest.mark.parametrize("parallel", [True, False])
def test_whatever_the_grammar_lets_through_is_read_back_as_valid_calls(tool_prompt: ToolPrompt, parallel: bool) -> None:
    format, count, finished, counts = format_of(tool_prompt), tries(16, 48), 0, set[int]()
    tokens, compiling = compiler()
    sampler, opened = Sampler(tokens, compiling, format, tool_prompt.name), opened_prompt(tool_prompt, tuple(TOOLS))
    for _ in range(count):
        sample = sampler.draw(grammar_of(tool_prompt, parallel=parallel))
        if sample.whole:
            finished += 1
            events = read_sample(format, sample, TOOLS, tokens.specials, opened)
            counts.add(len(check_calls(events, TOOLS, grammar_of(tool_prompt, parallel=parallel), sample.text)))
            assert not [event for event in events if isinstance(event, Text | Thought)], sample.text
    assert finished > count * 0.6
    assert 0 not in counts and (parallel or counts == {1})
