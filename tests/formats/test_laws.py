"""Laws 1, 2, 3 and 9 over every format."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent, Thought, Unreadable
from callsmith.core.values import Call, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import Format
from callsmith.formats.write import write
from tests.effort import tries
from tests.formats.laws import CHUNKS, calls_in, check_order, markers_of, read_in_chunks, rounds, strings, text_in

EVERY = pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
generated = settings(max_examples=tries(6, 60), deadline=None, suppress_health_check=list(HealthCheck))


def read_alike(format: Format, text: str, tools: Sequence[Tool]) -> list[ModelEvent]:
    """What is read, in order and the same at every chunking."""
    whole = read_in_chunks(format, text, 0, tools)
    check_order(whole)
    for size in CHUNKS:
        assert read_in_chunks(format, text, size, tools) == whole, text
    return whole


def read_back(format: Format, text: str, tools: Sequence[Tool], calls: Sequence[Call]) -> list[ModelEvent]:
    """The same, with these calls in it."""
    whole = read_alike(format, text, tools)
    assert calls_in(whole) == [(call.name, call.arguments) for call in calls]
    return whole


@pytest.mark.req("R229")
@EVERY
@generated
@given(data=st.data())
@pytest.mark.sampled
def test_what_is_written_is_read_back_at_every_chunking(format: Format, data: st.DataObject) -> None:
    tools, calls = data.draw(rounds(format))
    try:
        text = write(format, calls)
    except UsageError:
        assume(False)
    assert not text_in(read_back(format, text, tools, calls))


@EVERY
@generated
@given(data=st.data())
@pytest.mark.sampled
def test_text_and_thought_come_out_whole_and_without_markers(format: Format, data: st.DataObject) -> None:
    markers = markers_of(format)

    def sentence(text: str) -> str:
        return f"So {text}."  # where text and a marker meet they must not make another marker

    plain = strings(format).map(sentence).filter(lambda text: not any(marker in text for marker in markers))
    words = data.draw(plain)
    thought = data.draw(plain) if format.thinks else ""
    tools, calls = data.draw(rounds(format))
    try:
        text = write(format, calls, text=words, thought=thought)
    except UsageError:
        assume(False)
    whole = read_back(format, text, tools, calls)
    assert text_in(whole).strip() == words
    assert text_in(whole, Thought) == thought


@EVERY
@generated
@given(data=st.data())
@pytest.mark.sampled
def test_text_that_only_looks_like_a_marker_is_text(format: Format, data: st.DataObject) -> None:
    markers = markers_of(format)
    text = data.draw(strings(format).filter(lambda text: not any(marker in text for marker in markers)))
    for size in (0, *CHUNKS):
        assert text_in(read_in_chunks(format, text, size)) == text


@EVERY
@pytest.mark.sampled
def test_no_mutation_of_an_answer_makes_the_reader_raise_or_depend_on_chunks(format: Format) -> None:
    tools = [Tool("f", "", {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}})]
    calls = [Call("f", {"a": "x \"y\" 'z'", "b": 3}, "aaaaaaaaa"), Call("f", {}, "bbbbbbbbb")]
    base = write(format, calls, text="Well then.", thought="hm" if format.thinks else "")
    noise = [*sorted(markers_of(format)), '"', "{", "}", "[", "]", "\\", "\n", ",", ":", "é", "</", "x" * 300]
    chance = random.Random(format.name)
    for _ in range(tries(20, 150)):
        text = base
        for _ in range(chance.randint(1, 3)):
            at, until = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
            until = min(until, at + 12)
            text = text[:at] + chance.choice(["", chance.choice(noise)]) + text[until if chance.random() < 0.5 else at :]
        text = text[: chance.randint(0, len(text))] if chance.random() < 0.3 else text
        read_alike(format, text, tools)


@pytest.mark.req("R171")
@EVERY
def test_a_call_cut_short_is_unreadable_and_never_ready(format: Format) -> None:
    tools = [Tool("f", "", {"type": "object", "properties": {"a": {"type": "string"}}})]
    text = write(format, [Call("f", {"a": "some text"}, "aaaaaaaaa")])
    cut = text[: text.index("some text") + 4]
    for size in (0, *CHUNKS):
        events = read_in_chunks(format, cut, size, tools)
        assert not calls_in(events)
        emitted = "".join(event.text for event in events if isinstance(event, Unreadable)) + text_in(events)
        assert "some" in emitted


@EVERY
@pytest.mark.sampled
def test_deep_nesting_is_refused_and_not_crashed_on(format: Format) -> None:
    for flood in ("[" * 5000, '{"a":' * 5000, "<" * 5000, "(" * 5000):
        text = write(format, [Call("f", {"a": "@@"}, "aaaaaaaaa")])
        read_in_chunks(format, text.replace("@@", flood), 0)
        read_in_chunks(format, flood, 0)
