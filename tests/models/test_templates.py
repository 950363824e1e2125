"""Chat templates of our own, for weights that have none."""

import pytest

from callsmith.core.errors import UnknownName
from callsmith.core.events import CallReady
from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.formats import format_named, formats
from callsmith.formats.inference.detect import detect
from callsmith.formats.prompt.prompt import prompt_for
from callsmith.formats.prompt.template import Template
from callsmith.formats.reader.parse import read
from callsmith.models.templates import template_named

LOOK = Tool("look", "Look at a place.", {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]})
CALLS = (Call("look", {"at": "Bonn"}, "aB3dE6gH9"), Call("look", {"at": "Köln"}, "bC4eF7hJ0"))
ASKED = (Message.system("Be brief."), Message.user("Where is it sunny?"))
RESULTS = tuple(Message.tool(Result(call.id, "look", f"sunny in {call.arguments['at']}")) for call in CALLS)
NATIVE = [
    pytest.param(
        "llama3.1",
        "llama3-json",
        ["Environment: ipython", "<|start_header_id|>ipython<|end_header_id|>", "<|python_tag|>{", "<|eom_id|>"],
        marks=pytest.mark.req("R37"),
    ),
    pytest.param(
        "mistral",
        "mistral",
        ["[AVAILABLE_TOOLS] [", "[/AVAILABLE_TOOLS][INST] ", "[/INST]", "[TOOL_CALLS] [{", '"call_id": "aB3dE6gH9"'],
        marks=pytest.mark.req("R39"),
    ),
    pytest.param("qwen2.5", "hermes", ["<tools>", "<tool_call>", "<tool_response>"], marks=pytest.mark.req("R41")),
]


def template(name: str) -> Template:
    return Template(template_named(name), bos="<s>", eos="</s>")


def prompt(name: str, format: str, *messages: Message) -> str:
    return prompt_for(Request((*ASKED, *messages), (LOOK,)), (LOOK,), template(name), format_named(format)).text


@pytest.mark.req("R44")
@pytest.mark.parametrize(("name", "format", "markers"), NATIVE)
def test_a_family_that_knows_tools_is_shown_tools_calls_and_results_in_its_own_layout(name: str, format: str, markers: list[str]):
    text = prompt(name, format, Message.assistant("Let me look.", calls=CALLS), *RESULTS)
    assert [marker for marker in markers if marker not in text] == []
    words = ("Be brief.", "Where is it sunny?", '"name": "look"', "Let me look.", "Köln", "sunny in Bonn", "sunny in Köln")
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(("name", "format", "markers"), NATIVE)
def test_the_calls_a_template_writes_are_read_back_and_its_format_is_detected(name: str, format: str, markers: list[str]):
    before = prompt(name, format).removesuffix("<|start_header_id|>assistant<|end_header_id|>\n\n")
    turn = prompt(name, format, Message.assistant(calls=CALLS)).removeprefix(before)
    events = read(format_named(format), turn, [LOOK])
    assert [event.call.arguments for event in events if isinstance(event, CallReady)] == [call.arguments for call in CALLS]
    evidence = detect(template(name), formats().values())
    assert evidence is not None and evidence.format.name == format


@pytest.mark.parametrize("name", ["llama3.0", "llama2"])
def test_a_family_that_knows_no_tools_gets_them_as_instructions(name: str):
    traits = template(name).traits
    assert not traits.tools and not traits.calls
    text = prompt(name, "generic-xml", Message.assistant(calls=CALLS), *RESULTS)
    assert all(word in text for word in ("Be brief.", "- look: Look at a place.", "<name>look</name>", "sunny in Köln"))


def test_a_system_message_in_the_middle_is_shown_too():
    for name in ("llama2", "llama3.0", "llama3.1", "mistral", "qwen2.5"):
        messages = (*ASKED, Message.assistant("Here."), Message.system("Now in Dutch."), Message.user("Again."))
        text = prompt_for(Request(messages), (), template(name), format_named("hermes")).text
        assert all(word in text for word in ("Be brief.", "Here.", "Now in Dutch.", "Again.")), name


def test_a_template_that_does_not_exist_is_an_error_that_names_one_alike():
    with pytest.raises(UnknownName, match=r"did you mean 'llama3\.1'\?"):
        template_named("llama-3.1")
