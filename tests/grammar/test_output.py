"""Law 4 for what is said: whatever the grammar of an output lets through is read back as just that, in every format."""

import json
import re
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.core.events import CallReady, ModelEvent, Text, Thought, Unreadable
from callsmith.core.schema import validate
from callsmith.core.values import Choice, Output, Tool
from callsmith.engines.decoding.compiler import Compiler
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format, Says
from callsmith.formats.reader.reader import Reader
from callsmith.grammar.calls import grammar_for, list_unenforced
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import format_for_output
from tests.effort import tries
from tests.grammar.sampling import Sampler, compiler

pytestmark = pytest.mark.weights

EVERY = pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 20},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 3},
        "size": {"type": "object", "properties": {"w": {"type": "integer"}, "h": {"type": "boolean"}}, "required": ["w"]},
    },
    "required": ["title", "size"],
}
CHOICES = ("yes", "no, never", "<tool_call>", "a/b\n\\c", "😀")
PATTERN = r"^[A-Z]{2}-\d{3}/(x|yz)$"
OUTPUTS = (Output(SCHEMA), Output.json_object(), Output(choices=CHOICES), Output(pattern=PATTERN))
TOOL = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})


def dressed(format: Format, special: bool) -> tuple[Any, Compiler]:
    """A tokenizer for which the format's markers are special tokens, or one for which they are letters."""
    return compiler(format.name if special else "")


def grammar_of(format: Format, output: Output, **options: Any) -> Grammar:
    grammar = grammar_for(format, options.pop("tools", ()), options.pop("choice", Choice()), output=output, **options)
    assert grammar is not None
    return grammar


def drawn(format: Format, output: Output, seed: str, *, special: bool, tools: tuple[Tool, ...] = (), **options: Any):
    """Some answers, each as it is read."""
    tokens, compiling = dressed(format, special)
    sampler = Sampler(tokens, compiling, format, seed)
    grammar = grammar_of(format, output, tools=tools, **options)
    output_format = format_for_output(format if tools else format.without_calls(), output)
    for _ in range(tries(2, 3)):
        sample = sampler.draw(grammar)
        if sample.whole:
            reader = Reader(output_format, tools, options.get("opened", ""), specials=frozenset(tokens.specials))
            yield [event for piece in sample.pieces for event in reader.feed(piece.text, piece.special)] + reader.close()


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def check(output: Output, text: str) -> None:
    if output.schema is not None:
        assert validate(output.schema, json.loads(text)) == [], text
    elif output.choices:
        assert text in output.choices
    else:
        assert re.fullmatch(output.pattern, text, re.ASCII)


@EVERY
@pytest.mark.parametrize("special", [True, False])
@pytest.mark.sampled
def test_an_answer_is_the_output_and_nothing_else(format: Format, special: bool):
    if not special and any(isinstance(part, Says) for part in format.parts):
        pytest.skip("letters that spell the end of a frame end it")
    seen = 0
    for output in OUTPUTS:
        for events in drawn(format, output, f"{format.name}{special}", special=special):
            assert not [event for event in events if isinstance(event, CallReady | Unreadable | Thought)]
            check(output, text_of(events))
            seen += 1
    assert seen


@EVERY
@pytest.mark.sampled
def test_where_calls_may_be_made_an_answer_is_calls_or_the_output(format: Format):
    for seed in range(tries(1, 4)):
        for events in drawn(format, Output(SCHEMA), f"{format.name}{seed}", special=True, tools=(TOOL,)):
            calls = [event for event in events if isinstance(event, CallReady)]
            assert bool(calls) != bool(text_of(events).strip())
            if not calls:
                check(Output(SCHEMA), text_of(events))


@EVERY
def test_where_a_call_must_be_made_the_output_does_not_matter(format: Format):
    required = Choice("required")
    with_output = grammar_for(format, (TOOL,), required, output=Output(SCHEMA))
    assert with_output == grammar_for(format, (TOOL,), required)


@pytest.mark.parametrize("name", ["hermes", "harmony", "muse-glimmer", "inkling"])
def test_a_thought_may_come_first_and_one_the_prompt_began_is_finished(name: str):
    format = format_named(name)
    thoughts = 0
    for seed in range(6):
        for events in drawn(format, Output(SCHEMA), f"{name}{seed}", special=True, thinking=True):
            thoughts += any(isinstance(event, Thought) for event in events)
            check(Output(SCHEMA), text_of(events))
    assert thoughts
    if name == "hermes":
        for events in drawn(format, Output(SCHEMA), name, special=True, opened="<think>\n"):
            check(Output(SCHEMA), text_of(events))


@pytest.mark.parametrize(("name", "opened"), [("harmony", "<|start|>assistant"), ("functionary-v32", ">>>")])
def test_a_frame_the_prompt_began_is_gone_on_with(name: str, opened: str):
    format = format_named(name)
    assert grammar_of(format, Output(SCHEMA), opened=opened).prefix == opened
    for events in drawn(format, Output(SCHEMA), name, special=True, opened=opened):
        check(Output(SCHEMA), text_of(events))


def test_markers_inside_a_string_are_text():
    format, output = format_named("hermes"), Output(SCHEMA)
    text = '{"title": "<think>x</think> <tool_call>\\n{}", "size": {"w": 1}}'
    for output_format in (format_for_output(format, output), format_for_output(format.without_calls(), output)):
        for size in (1, 3, 100):
            reader = Reader(output_format, (TOOL,))
            pieces = [text[start : start + size] for start in range(0, len(text), size)]
            assert text_of([event for piece in pieces for event in reader.feed(piece)] + reader.close()) == text


def test_what_is_not_enforced_is_listed():
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "not": {"required": ["b"]}}
    assert set(grammar_of(format_named("hermes"), Output(schema)).unenforced) == {("#/properties/a", "uniqueItems"), ("#", "not")}
    assert set(list_unenforced(format_named("hermes"), Tool("f", "", schema))) == {
        ("#/properties/a", "uniqueItems"),
        ("#", "not"),
    }
    assert list_unenforced(format_named("hermes"), TOOL) == ()


def test_a_grammar_of_the_users_own_is_followed():
    format = format_named("hermes")
    output = Output(grammar='start: ("ab" | NUMBER)+\nNUMBER: /[0-9]{2}/')
    for events in drawn(format, output, "own", special=True):
        assert re.fullmatch(r"(ab|\d\d)+", text_of(events))


@pytest.mark.parametrize(
    "fields",
    [{"grammar": "start: nowhere"}, {"grammar": "start: ("}, {"grammar": "start: /[/"}, {"pattern": "(a"}, {"pattern": "a(?=b)"}],
)
def test_a_grammar_or_pattern_that_does_not_compile_is_the_users_error(fields: dict[str, str]):
    output = Output(**fields)
    format = format_named("hermes")
    with pytest.raises(UsageError, match="does not compile"):
        dressed(format, True)[1].begin(grammar_of(format, output))


def test_a_schema_that_is_none_is_the_users_error():
    with pytest.raises(UnsupportedSchema, match="at /properties/a") as caught:
        grammar_of(format_named("hermes"), Output({"properties": {"a": {"type": "strin"}}}))
    assert caught.value.field == "output.schema"
