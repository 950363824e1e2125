"""`callsmith chat`, with a model that says what it is told."""

import json
from pathlib import Path

import pytest

CALL = "<tool_call>\n<name>{}</name>\n<arguments>{}</arguments>\n</tool_call>"


@pytest.fixture
def script(tmp_path: Path):
    """A model that gives these replies, one after another."""

    def write(*replies: str) -> str:
        path = tmp_path / "replies.jsonl"
        path.write_text("".join(json.dumps(reply) + "\n" for reply in replies), "utf-8")
        return f"scripted:{path}"

    return write


def test_one_prompt_is_answered_with_the_tools_at_work(callsmith, script):
    model = script("Let me compute." + CALL.format("calculate", '{"expression": "6 * 7"}'), "It is 42.")
    told = callsmith("chat", "--model", model, "What is 6 times 7?")
    assert told.code == 0
    assert told.out.splitlines() == [
        "Let me compute.",
        '→ calculate {"expression": "6 * 7"}',
        "← calculate: 42",
        "It is 42.",
    ]


def test_what_a_tool_complains_about_is_shown(callsmith, script):
    model = script(CALL.format("get_time", '{"timezone": "Atlantis"}'), "I do not know.")
    told = callsmith("chat", "--model", model, "What time is it in Atlantis?")
    assert "← get_time: internal_error: there is no timezone 'Atlantis'" in told.out


def test_thoughts_are_shown(callsmith, script):
    told = callsmith("chat", "--model", script("<think>\nHm.\n</think>\n\nYes."), "--format", "hermes", "Well?")
    assert told.out.splitlines() == ["Hm.", "Yes."]


def test_piped_lines_are_turns_of_one_conversation_until_it_is_reset(callsmith, script):
    told = callsmith("chat", "--model", script("One.", "Two."), stdin="first\n\n/reset\nsecond\n/quit\nthird\n")
    assert told.out.splitlines() == ["One.", "The conversation is forgotten.", "Two."]


def test_the_prompt_may_come_from_standard_input(callsmith, script):
    assert callsmith("chat", "--model", script("Yes."), "-", stdin="Two\nlines").out == "Yes.\n"


def test_the_tools_are_listed_on_demand(callsmith, script):
    told = callsmith("chat", "--model", script("Hi"), stdin="/tools\n/what\n")
    assert "get_time(timezone): The present date" in told.out
    assert "get_weather(city): The weather in a city (demonstration data, made up)." in told.out
    assert "/reset forgets" in told.out


def test_without_tools_a_call_is_only_text(callsmith, script):
    call = CALL.format("get_time", "{}")
    told = callsmith("chat", "--model", script(call), "--no-tools", "Hi")
    assert told.out.strip() == call


def test_no_call_is_made_when_none_is_wanted(callsmith, script):
    told = callsmith("chat", "--model", script("Hello" + CALL.format("get_time", "{}")), "--tool-choice", "none", "Hi")
    assert told.out == "Hello\n"


def test_a_choice_that_names_no_tool_is_refused(callsmith, script):
    told = callsmith("chat", "--model", script("Hi"), "--tool-choice", "get_tmie", "Hi")
    assert told.code == 2
    assert "did you mean 'get_time'?" in told.err


def test_a_turn_that_fails_does_not_end_the_conversation(callsmith, script):
    told = callsmith("chat", "--model", script("Hi"), "--tool-choice", "nothing", stdin="one\n/tools\n")
    assert told.code == 0
    assert told.err.startswith("error: unknown tool")
    assert "calculate(expression)" in told.out


MODULE = """
from callsmith import Functions, tool

@tool
def shout(text: str) -> str:
    "Make it loud."
    return text.upper()

def whisper(text: str) -> str:
    return text.lower()

toolset = Functions(shout, whisper)
some = [whisper]
number = 5
"""


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("{}", ["shout"]),
        ("{}:toolset", ["shout", "whisper"]),
        ("{}:some", ["whisper"]),
        ("{}:whisper", ["whisper"]),
        ("demo", ["get_time", "calculate", "get_weather"]),
    ],
)
def test_tools_come_from_a_module(
    callsmith, script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, names: list[str]
):
    module = f"mine_{abs(hash(spec))}"
    (tmp_path / f"{module}.py").write_text(MODULE, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    told = callsmith("chat", "--model", script("Hi"), "--tools", spec.format(module), stdin="/tools\n")
    assert [line.partition("(")[0] for line in told.out.splitlines()] == names


@pytest.mark.parametrize("spec", ["no_such_module", "no_such_module:x", "json", "json:nothing", "math:pi", ":x", "a..b"])
def test_tools_that_are_none_are_refused(callsmith, script, spec: str):
    told = callsmith("chat", "--model", script("Hi"), "--tools", spec, "Hi")
    assert told.code == 2
    assert told.err.startswith("error: ")
