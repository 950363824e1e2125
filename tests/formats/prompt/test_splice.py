"""Turns put back into the prompt as the model wrote them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import Prompt, fit_id, prompt_for
from callsmith.formats.prompt.splice import RawTurn
from callsmith.formats.prompt.template import Template
from callsmith.formats.write import write
from callsmith.models.weights.catalogue import catalogue
from tests.formats.templates import REAL, detected, needs_corpus, real

ADD = Tool("add", "", {"type": "object", "properties": {"a": {"type": "integer"}, "note": {"type": "string"}}})
QWEN, HERMES = Template(catalogue()["qwen2.5-coder-1.5b"].template or ""), format_named("hermes")
ASKED = (Message.system("Be brief."), Message.user("Add one."))
CALL = Call("add", {"a": 1, "note": "x y"}, "call_abc")
SPELLED = '<think>\nHm.\n</think>\n\n<tool_call>\n{"name":"add",  "arguments":{"note":"x y","a":1}}\n</tool_call>'
SHOWN = Message.assistant(calls=(CALL,))
RESULT = Message.tool(Result("call_abc", "add", "it is seven"))


def prompt(
    messages: Sequence[Message], *turns: RawTurn, template: Template = QWEN, format: Format = HERMES, tool: Tool = ADD
) -> Prompt:
    known = {turn.message.calls[0].id: turn for turn in turns}
    return prompt_for(Request(tuple(messages), (tool,)), (tool,), template, format, find_turn=known.get)


def turn(first_prompt: Prompt, answer: str = SPELLED, message: Message = SHOWN, thought: str = "Hm.") -> RawTurn:
    return RawTurn(first_prompt.rendered, first_prompt.marked, answer, replace(message, reasoning=thought))


def test_the_prompt_goes_on_from_what_the_model_wrote() -> None:
    first_prompt = prompt(ASKED)
    plain, spliced = prompt((*ASKED, SHOWN, RESULT)), prompt((*ASKED, SHOWN, RESULT), turn(first_prompt))
    assert not plain.text.startswith(first_prompt.text + SPELLED)
    behind = spliced.text.removeprefix(first_prompt.text + SPELLED)
    assert behind.startswith("<|im_end|>\n")
    assert plain.text.endswith(behind)
    assert behind.count("it is seven") == 1


def test_a_later_turn_has_the_earlier_ones_in_its_prompt() -> None:
    first = prompt(ASKED)
    second = prompt((*ASKED, SHOWN, RESULT), turn(first))
    more = Message.assistant("Once more.", calls=(replace(CALL, id="call_2"),))
    later = turn(second, f"Once more.\n{SPELLED}", more)
    third = prompt((*ASKED, SHOWN, RESULT, more, replace(RESULT, call_id="call_2")), turn(first), later)
    assert third.text.startswith(second.text + later.answer)
    assert third.text.count("Hm.") == 2


@pytest.mark.parametrize(
    "messages",
    [
        (Message.system("Be long."), ASKED[1], SHOWN, RESULT),
        (*ASKED, replace(SHOWN, calls=(replace(CALL, arguments={"a": 2, "note": "x y"}),)), RESULT),
        (*ASKED, replace(SHOWN, content="I changed this."), RESULT),
        (*ASKED, replace(SHOWN, calls=(replace(CALL, id="call_other"),)), replace(RESULT, call_id="call_other")),
    ],
    ids=["other messages before it", "other arguments", "other words", "another call"],
)
def test_what_the_client_has_changed_is_left_as_it_is(messages: tuple[Message, ...]) -> None:
    assert prompt(messages, turn(prompt(ASKED))).text == prompt(messages).text


def test_other_tools_are_another_prompt() -> None:
    other = replace(ADD, description="Adds.")
    messages = (*ASKED, SHOWN, RESULT)
    assert prompt(messages, turn(prompt(ASKED)), tool=other).text == prompt(messages, tool=other).text


def test_thoughts_from_before_the_user_spoke_again_stay_out_but_not_the_spelling() -> None:
    messages, first_prompt = (*ASKED, SHOWN, RESULT, Message.assistant("Two."), Message.user("And now?")), prompt(ASKED)
    assert prompt(messages, turn(first_prompt)).text == prompt(messages).text
    spelled = SPELLED.partition("</think>\n\n")[2]
    assert prompt(messages, turn(first_prompt, spelled, thought="")).text.startswith(first_prompt.text + spelled)


def test_a_turn_that_the_template_shows_otherwise_is_left_to_it() -> None:
    other = '[TOOL_CALLS]add{"a":1}'
    assert prompt((*ASKED, SHOWN, RESULT), turn(prompt(ASKED), other)).text == prompt((*ASKED, SHOWN, RESULT)).text


@needs_corpus
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_behind_every_template_nothing_but_the_turn_changes(path: Path) -> None:
    template = real(path)
    evidence = detected(path)
    format = evidence.format if evidence else format_named("generic-xml")
    call = replace(CALL, id=fit_id(CALL.id, format.ids))
    thought = "I muse." if format.thinks else ""
    answer, message = write(format, [call], thought=thought), replace(SHOWN, calls=(call,))
    messages = (*ASKED, message, replace(RESULT, call_id=call.id))
    first_prompt, plain = (prompt(some, template=template, format=format) for some in (ASKED, messages))
    spliced = prompt(messages, turn(first_prompt, answer, message, thought), template=template, format=format)
    if spliced.text == plain.text:
        return  # it is shown as it was written, or otherwise altogether
    behind = spliced.text.removeprefix(first_prompt.text + answer)
    assert behind != spliced.text
    assert behind.count("it is seven") == 1
    assert plain.text.endswith(behind)


@needs_corpus
def test_most_templates_drop_or_spell_something_otherwise_and_nearly_all_of_those_are_mended() -> None:
    mended, differing = 0, 0
    for path in REAL:
        template = real(path)
        evidence = detected(path)
        if evidence is None or not evidence.format.thinks:
            continue
        call = replace(CALL, id=fit_id(CALL.id, evidence.format.ids))
        message, answer = replace(SHOWN, calls=(call,)), write(evidence.format, [call], thought="I muse.")
        messages = (*ASKED, message, replace(RESULT, call_id=call.id))
        first_prompt = prompt(ASKED, template=template, format=evidence.format)
        spliced = prompt(messages, turn(first_prompt, answer, message, "I muse."), template=template, format=evidence.format)
        is_whole = spliced.text.startswith(first_prompt.text + answer)
        mended, differing = mended + is_whole, differing + (not is_whole)
    assert mended >= 40
    assert differing <= mended / 8
