"""Prompts: what the template is given, what goes into the text of messages, ids, and the beginning of the model's turn."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from callsmith.core.values import Call, Choice, Message, Request, Result, Tool
from callsmith.formats.families.generic import GENERIC_XML
from callsmith.formats.families.hermes import HERMES
from callsmith.formats.families.mistral import MISTRAL
from callsmith.formats.prompt.prompt import fit_id, prompt_for
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.weights.catalogue import catalogue
from tests.formats.templates import CORPUS, REAL, needs_corpus, real

WEATHER = Tool(
    "weather", "Weather of a city", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)
NULLABLE = Tool("note", "", {"type": "object", "properties": {"text": {"type": ["string", "null"]}, "more": {"type": "object"}}})
BERN, BASEL = Call("weather", {"city": "Bern"}, "call_bern"), Call("weather", {"city": "Basel"}, "call_basel")
ASKED = (Message.system("Be brief."), Message.user("Weather?"))
CALLED = (
    *ASKED,
    Message.assistant("One moment.", reasoning="Two cities.", calls=[BERN, BASEL]),
    Message.tool(Result("call_bern", "weather", "sunny")),
    Message.tool(Result("call_basel", "weather", {"rain": True})),
)
QWEN = catalogue()["qwen2.5-coder-1.5b"].template or ""
NARROW = replace(GENERIC_XML, ids="[0-9]{2}")
NUMBERED = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}c{{ c.id }} {% endfor %}"
    "{% if m.role == 'tool' %}{{ m.content }}r{{ m.tool_call_id }} {% endif %}{% endfor %}{{ tools }}"
)
QUOTING = "{{ messages | tojson }}{{ tools | tojson }}"


@pytest.mark.req("R36")
def test_a_template_that_shows_tools_and_calls_is_given_them() -> None:
    prompt = prompt_for(Request(CALLED, (WEATHER,)), (WEATHER,), Template(QWEN), GENERIC_XML)
    assert "<tools>\n" in prompt.text
    assert '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>' in prompt.text
    assert "You can call tools" not in prompt.text
    assert prompt.text.endswith(prompt.opened)
    assert prompt.opened == "<|im_start|>assistant\n"


@pytest.mark.req("R36")
@pytest.mark.req("R42")
@pytest.mark.req("R101")
@pytest.mark.req("R210")
def test_a_template_without_tools_is_told_of_them_in_the_system_message() -> None:
    prompt = prompt_for(Request(CALLED, (WEATHER,)), (WEATHER,), Template(CHATML), GENERIC_XML)
    system, user, assistant, results, opened = prompt.text.split("<|im_start|>")[1:]
    assert system.startswith("system\nBe brief.\n\nYou can call tools.")
    assert "<name>tool_name</name>" in system
    assert '- weather: Weather of a city\n  parameters: {"type": "object"' in system
    assert user == "user\nWeather?<|im_end|>\n"
    assert assistant.startswith("assistant\nOne moment.\n<tool_call>\n<name>weather</name>")
    assert results == (
        'user\n<tool_response>\nsunny\n</tool_response>\n<tool_response>\n{"rain": true}\n</tool_response><|im_end|>\n'
    )
    assert opened == "assistant\n"


@pytest.mark.req("R208")
def test_without_tools_nothing_is_said_about_them() -> None:
    prompt = prompt_for(Request(ASKED, (WEATHER,), Choice("none")), (), Template(CHATML), GENERIC_XML)
    assert prompt.text.startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_the_instructions_say_how_many_calls_and_are_the_same_whether_one_must_come_or_not() -> None:
    def system(request: Request) -> str:
        return prompt_for(request, (WEATHER,), Template(CHATML), GENERIC_XML).text

    assert "Several calls" in system(Request(ASKED))
    assert "one call at a time" in system(Request(ASKED, parallel=False))
    # The grammar sees to it; and a prompt that begins otherwise than the one before would have to be read again.
    assert system(Request(ASKED, choice=Choice("required"))) == system(Request(ASKED))


@pytest.mark.parametrize(("thinking", "text"), [(None, "--"), (True, "TrueTrue"), (False, "FalseFalse")])
def test_thinking_is_passed_on_only_when_asked_for(thinking: bool | None, text: str) -> None:
    template = Template("{{ messages[0].content }}{{ enable_thinking | default('-') }}{{ thinking | default('-') }}")
    assert prompt_for(Request((Message.user(""),), thinking=thinking), (), template, GENERIC_XML).text == text


def test_a_result_without_a_name_takes_it_from_its_call() -> None:
    messages = (*CALLED[:3], Message("tool", "sunny", call_id="call_bern"))
    prompt = prompt_for(Request(messages), (WEATHER,), Template(QUOTING), GENERIC_XML)
    assert '"tool_call_id": "call_bern", "name": "weather"' in prompt.text


def test_reasoning_goes_along() -> None:
    prompt = prompt_for(Request(CALLED), (WEATHER,), Template(QUOTING), GENERIC_XML)
    assert '"reasoning_content": "Two cities."' in prompt.text


def test_an_id_that_fits_stays_and_another_becomes_one_that_fits_always_the_same() -> None:
    assert fit_id("abcDEF123", "[a-zA-Z0-9]{9}") == "abcDEF123"
    fitted = fit_id("call_0a1b", "[a-zA-Z0-9]{9}")
    assert len(fitted) == 9
    assert fitted.isalnum()
    assert fitted == fit_id("call_0a1b", "[a-zA-Z0-9]{9}") != fit_id("call_0a1c", "[a-zA-Z0-9]{9}")
    assert fit_id("call_1", "") == "call_1"
    assert fit_id("call_1", r"functions\..+") == "call_1"


def test_calls_and_results_still_belong_together_after_fitting_and_never_collide() -> None:
    calls = [Call("weather", {}, f"call_{number}") for number in range(12)]
    results = [Message.tool(Result(call.id, call.name, call.id)) for call in calls]
    words = prompt_for(Request((Message.assistant(calls=calls), *results)), (), Template(NUMBERED), NARROW).text.split()
    called = [word.rpartition("c")[2] for word in words if "c" in word and word.rpartition("}c")[1]]
    answered = [word.rpartition("r")[2] for word in words if word.startswith("call_")]
    assert called == answered
    assert len(set(called)) == 12
    assert all(len(id) == 2 and id.isdigit() for id in called)


def test_more_calls_than_there_are_ids_still_make_a_prompt() -> None:
    calls = [Call("weather", {}, f"call_{number}") for number in range(120)]
    words = prompt_for(Request((Message.assistant(calls=calls),)), (), Template(NUMBERED), NARROW).text.split()
    called = [word.rpartition("}c")[2] for word in words if "}c" in word]
    assert len(called) == 120
    assert len(set(called)) > 80


@needs_corpus
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
@pytest.mark.parametrize("tools", [(WEATHER,), (NULLABLE, WEATHER)], ids=["plain", "sparse"])
def test_every_real_template_gives_a_prompt_with_all_that_was_said(path: Path, tools: tuple[Tool, ...]) -> None:
    template = real(path)
    format = MISTRAL if "istral" in path.name else GENERIC_XML
    prompt = prompt_for(Request(CALLED, tools), tools, template, format)
    for word in ("Be brief.", "Weather?", "weather", "Bern", "Basel", "sunny", "rain"):
        assert word in prompt.text
    assert prompt.text.endswith(prompt.opened)
    later = (*CALLED, Message.assistant("Fine in Bern."), Message.user("Thanks."))
    assert "Thanks." in prompt_for(Request(later), (), template, format).text


@pytest.mark.req("R41")
def test_qwen_is_shown_tools_calls_and_results_as_it_was_tuned_on_them() -> None:
    look = Tool("look", "Look there.", {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]})
    call = Call("look", {"at": "Bern"}, "c1")
    output = (Message.user("Rain?"), Message.assistant(calls=[call]), Message.tool(Result("c1", "look", "sunny")))
    text = prompt_for(Request((Message.system("Be brief."), *output), (look,)), (look,), Template(QWEN), HERMES).text
    declared = {"type": "function", "function": {"name": "look", "description": "Look there.", "parameters": look.parameters}}
    system, *turns = text.split("<|im_end|>\n")
    assert system.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    assert f"<tools>\n{json.dumps(declared)}\n</tools>" in system
    assert turns == [
        "<|im_start|>user\nRain?",
        '<|im_start|>assistant\n<tool_call>\n{"name": "look", "arguments": {"at": "Bern"}}\n</tool_call>',
        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response>",
        "<|im_start|>assistant\n",
    ]


@needs_corpus
def test_our_qwen_template_writes_what_the_models_own_writes() -> None:
    theirs = Template((CORPUS / "Qwen-Qwen2.5-7B-Instruct.jinja").read_text(encoding="utf-8"))
    later = (*CALLED, Message.assistant("Fine in Bern."), Message.user("Thanks."))
    for messages in (ASKED, ASKED[1:], CALLED, CALLED[1:], later):
        for tools in ((), (WEATHER,), (NULLABLE, WEATHER)):
            request = Request(messages, tools)
            ours = prompt_for(request, tools, Template(QWEN), GENERIC_XML)
            assert ours == prompt_for(request, tools, theirs, GENERIC_XML)
