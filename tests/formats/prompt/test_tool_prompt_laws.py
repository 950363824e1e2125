"""The laws over every tool prompt: earlier calls are shown as the model is to write them, and what it may write is read back."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from callsmith.core.errors import UsageError
from callsmith.core.events import ModelEvent
from callsmith.core.values import Call, Choice, Message, Request, Result, Tool
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.inference.laws import merge_deltas
from callsmith.formats.prompt.prompt import prompt_for
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.prompt.tool_prompt import ToolPrompt
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import write
from callsmith.models.tool_prompts import tool_prompts
from tests.effort import tries
from tests.formats.laws import CHUNKS, calls_in, check_order, read_in_chunks, rounds, text_in

SHIPPED = [tool_prompt for tool_prompt in tool_prompts().values() if not tool_prompt.is_template]
EACH = pytest.mark.parametrize("tool_prompt", SHIPPED, ids=lambda prompt: prompt.name)
generated = settings(max_examples=tries(12, 60), deadline=None, suppress_health_check=list(HealthCheck))
TEMPLATE = Template(CHATML)


def format_of(tool_prompt: ToolPrompt) -> Format:
    return format_named(tool_prompt.format)


def pairs(calls: list[Call]) -> list[tuple[str, dict]]:
    return [(call.name, dict(call.arguments)) for call in calls]


@EACH
@generated
@given(data=st.data())
def test_calls_of_earlier_turns_are_shown_as_they_are_read(tool_prompt: ToolPrompt, data: st.DataObject) -> None:
    format = format_of(tool_prompt)
    turns, tools, answered = [], dict[str, Tool](), list[tuple[str, list[Call]]]()
    for number in range(data.draw(st.integers(1, 3))):
        offered, calls = data.draw(rounds(format))
        renamed = {tool.name: f"{tool.name}_{number}" for tool in offered}
        tools |= {renamed[tool.name]: replace(tool, name=renamed[tool.name]) for tool in offered}
        calls = [Call(renamed[call.name], call.arguments, f"{number}_{at}") for at, call in enumerate(calls)]
        words = data.draw(st.sampled_from(["", "One moment.", "So it is (as I said):"]))
        answered.append((words, calls))
        results = [Message.tool(Result(call.id, call.name, "done")) for call in calls]
        turns += [Message.user("Go on."), Message.assistant(words, calls=calls), *results]
    try:
        prompt_messages = tool_prompt.ask_for_calls(turns, tuple(tools.values()), format)
    except UsageError:
        assume(False)
    answers = [message.content for message in prompt_messages if message.role == "assistant"]
    assert len(answers) == len(answered)
    for answer, (words, calls) in zip(answers, answered, strict=True):
        whole = read_in_chunks(format, answer, 0, tools.values())
        check_order(whole)
        assert calls_in(whole) == pairs(calls)
        assert text_in(whole).strip() == words
        for size in CHUNKS:
            assert read_in_chunks(format, answer, size, tools.values()) == whole


def opened_prompt(tool_prompt: ToolPrompt, tools: tuple[Tool, ...]) -> str:
    request = Request((Message.user("Go."),), tools, Choice("required"))
    return prompt_for(request, tools, TEMPLATE, format_of(tool_prompt), None, None, tool_prompt, tool_prompt.opening).opened


@EACH
@generated
@given(data=st.data())
def test_an_answer_is_read_from_behind_the_opening_at_every_chunking(tool_prompt: ToolPrompt, data: st.DataObject) -> None:
    format = format_of(tool_prompt)
    tools, calls = data.draw(rounds(format))
    try:
        whole = write(format, calls)
    except UsageError:
        assume(False)
    assert whole.startswith(tool_prompt.opening)
    rest, opened = whole.removeprefix(tool_prompt.opening), opened_prompt(tool_prompt, tuple(tools))
    for size in (len(rest), *CHUNKS):
        reader = Reader(format, tools, opened)
        pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
        events: list[ModelEvent] = merge_deltas([event for piece in pieces for event in reader.feed(piece)] + reader.close())
        check_order(events)
        assert calls_in(events) == pairs(calls)
        assert not text_in(events)
