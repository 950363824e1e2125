"""Answers in words: what only looks like a call is taken back, and all else comes through as it is."""

import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace

import pytest

from callsmith.core.events import ModelEvent, Report, Started, Stopped, Text, Thought
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Choice, Message, Request, TokenLogprob, Tool, Usage
from callsmith.models.answers.deciding import INVENTED, ask_for_words, take_back_invented_calls

SIZES = (1, 2, 3, 5, 11, 1000)
INSTEAD = (Started(Usage(3)), Text("In "), Text("words."), Stopped("stop", Usage(3, 2)))
ANSWERS = (
    "Hello!",
    "",
    "   ",
    '{"city": "Paris"}',
    '[{"city": "Paris"}]',
    '{"names": ["a", "b"]}',
    '{"name of it": 1}',
    '{"toolbox": 1}',
    "[1, 2, 3]",
    "[see below]",
    "{}",
    "{",
    '{"name',
    "```python\nprint({'name': 1})\n```",
    '```json\n{"a": {"name": "x"}}\n```',
    "``` some code ```",
    "`name`",
    "<b>bold</b>",
    "<",
    "- one\n- two",
    "\n\n  A table:\n| a | b |",
    'Call {"name": "f", "arguments": {}} like this.',
    "天气 ☀",
)
INVENTED_CALLS = (
    '{"name": "f", "arguments": {"a": 1}}',
    ' \n{ "name" : "f"}',
    '[{"name": "f"}]',
    '[ {"function": "f"}]',
    '```json\n[{"name": "f", "arguments": {}}]\n```',
    '```\n{"tool": "f"}\n```',
    '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
    '{"tool_name": "f"}',
)


def pieces(text: str, size: int) -> list[Text]:
    return [Text(text[at : at + size]) for at in range(0, len(text), size)]


class Source:
    """An answer that remembers how much of it was read, and whether it was closed."""

    def __init__(self, events: Iterable[ModelEvent]) -> None:
        self.events = list(events)
        self.given = 0
        self.closed = False

    async def stream(self) -> AsyncGenerator[ModelEvent, None]:
        try:
            for event in self.events:
                self.given += 1
                yield event
        finally:
            self.closed = True


def answer(text: str, size: int) -> Source:
    return Source([Started(Usage(9)), *pieces(text, size), Stopped("stop", Usage(9, 5))])


async def read(source: Source) -> tuple[list[ModelEvent], list[int]]:
    """The events, and how many of the source had been given when each came."""
    events, counts = list[ModelEvent](), list[int]()
    async for event in take_back_invented_calls(source.stream(), Source(INSTEAD).stream):
        events.append(event)
        counts.append(source.given)
    return events, counts


def text_of(events: Iterable[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", ANSWERS)
async def test_what_is_no_call_comes_through_as_it_is(text: str, size: int):
    source = answer(text, size)
    assert (await read(source))[0] == source.events
    assert source.closed


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", INVENTED_CALLS)
async def test_what_begins_like_a_call_is_taken_back_and_replaced(text: str, size: int):
    source = answer(text, size)
    events, _ = await read(source)
    assert text_of(events) == "In words."
    assert sum(isinstance(event, Started) for event in events) == 1
    assert [type(event) for event in events].count(Stopped) == 1
    assert isinstance(events[-1], Stopped) and events[-1].report.taken_back == (INVENTED,)
    assert source.closed


async def test_what_is_taken_back_is_not_generated_to_its_end():
    source = answer('{"name": "f", "arguments": {"text": "' + "x" * 500 + '"}}', 1)
    await read(source)
    assert source.given < 30


@pytest.mark.parametrize(
    ("text", "doubtful"), [("Hello there", 0), ("  Hello", 2), ("[1, 2]", 1), ("```python\nx = 1", 10), ('{"city": 1}', 7)]
)
async def test_nothing_is_withheld_beyond_the_doubtful_beginning(text: str, doubtful: int):
    events, counts = await read(answer(text, 1))
    come = [count for event, count in zip(events, counts, strict=True) if isinstance(event, Text)]
    assert come[0] <= doubtful + 3  # the beginning, what decides, and the start of the answer
    late = [count - at for at, count in enumerate(come, start=2)]
    assert set(late[come[0] - 1 :]) <= {0}, "from there on every piece comes when it is given"


async def test_thoughts_and_the_start_are_never_withheld():
    source = Source([Started(Usage()), Thought("hm"), Text("{"), Thought("so"), Text("}"), Stopped("stop")])
    events, counts = await read(source)
    assert [type(event) for event in events] == [Started, Thought, Thought, Text, Text, Stopped] and counts[:3] == [1, 2, 4]


async def test_the_log_probabilities_stay_with_their_text():
    tokens = [Text(text, (TokenLogprob(text.encode(), -1.0),)) for text in ("{", '"city"', ": 1", "}")]
    events, _ = await read(Source([Started(Usage()), *tokens, Stopped("stop")]))
    assert events[1:-1] == tokens


async def test_the_report_of_the_answer_that_comes_instead_is_kept():
    decision = CallDecision(False, -1.0, 0.0)
    again = Source([Text("Yes."), Stopped("length", Usage(1, 2), Report(notices=("cut",), decision=decision))])
    events = [event async for event in take_back_invented_calls(answer('{"name": 1}', 4).stream(), again.stream)]
    stopped = events[-1]
    assert isinstance(stopped, Stopped) and stopped.reason == "length"
    assert stopped.report == Report(taken_back=(INVENTED,), notices=("cut",), decision=decision)


async def test_a_reader_that_leaves_closes_what_it_was_reading():
    source = answer("Hello there, how are you?", 3)
    events = take_back_invented_calls(source.stream(), Source(INSTEAD).stream)
    async for event in events:
        if isinstance(event, Text):
            break
    await events.aclose()
    assert source.closed


async def test_the_time_an_answer_of_nothing_but_space_takes_does_not_explode():
    async def seconds(size: int) -> float:
        times: list[float] = []
        for _ in range(3):
            source, began = answer("```" + " \n" * size, 2), time.process_time()
            await read(source)
            times.append(time.process_time() - began)
        return min(times)

    assert await seconds(1200) < 100 * await seconds(200)  # 6 times as long: 36 times if squared, 216 if cubed


def test_in_words_nothing_is_called_and_what_is_missing_is_asked_for():
    request = Request((Message.system("Rules."), Message.user("Book it.")), (Tool("book"),))
    plain, missing = ask_for_words(request), ask_for_words(request, "What is missing?")
    assert plain == replace(request, choice=Choice("none"))
    assert missing.choice == Choice("none") and missing.messages[0] == request.messages[0]
    assert missing.messages[-1].content == "Book it.\n\nWhat is missing?"
