"""`callsmith chat`, with a model that says what it is told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from callsmith.engines.scripted import Scripted
from callsmith.models import opening
from tests.cli.conftest import CALL


def test_one_prompt_is_answered_with_the_tools_at_work(callsmith, script):
    model = script("Let me compute." + CALL.format("calculate", '{"expression": "6 * 7"}'), "It is 42.")
    result = callsmith("chat", "--model", model, "What is 6 times 7?")
    assert result.code == 0
    assert result.out.splitlines() == ["Let me compute.", '→ calculate {"expression": "6 * 7"}', "← calculate: 42", "It is 42."]


def test_what_a_tool_complains_about_is_shown(callsmith, script):
    model = script(CALL.format("current_time", '{"timezone": "Atlantis"}'), "I do not know.")
    result = callsmith("chat", "--model", model, "What time is it in Atlantis?")
    assert "← current_time: internal_error: there is no timezone 'Atlantis'" in result.out


def test_thoughts_are_shown(callsmith, script):
    result = callsmith("chat", "--model", script("<think>\nHm.\n</think>\n\nYes."), "--format", "hermes", "Well?")
    assert result.out.splitlines() == ["Hm.", "Yes."]


def test_piped_lines_are_turns_of_one_conversation_until_it_is_reset(callsmith, script):
    result = callsmith("chat", "--model", script("One.", "Two."), stdin="first\n\n/reset\nsecond\n/quit\nthird\n")
    assert result.out.splitlines() == ["One.", "The conversation is forgotten.", "Two."]


def test_the_prompt_may_come_from_standard_input(callsmith, script):
    assert callsmith("chat", "--model", script("Yes."), "-", stdin="Two\nlines").out == "Yes.\n"


def test_the_tools_are_listed_on_demand(callsmith, script):
    result = callsmith("chat", "--model", script("Hi"), stdin="/tools\n/tols\n/help\n")
    assert "current_time(timezone): Tell the current date" in result.out
    assert "get_weather(city): The weather in a city (demonstration data, made up)." in result.out
    assert "nothing is really sent).  [has side effects: you are asked first]" in result.out
    assert result.err == "error: unknown command '/tols'; did you mean '/tools'?\n"
    assert "  /reset                      forget the conversation\n" in result.out


def test_without_tools_a_call_is_only_text(callsmith, script):
    call = CALL.format("current_time", "{}")
    result = callsmith("chat", "--model", script(call), "--no-tools", "Hi")
    assert result.out.strip() == call


def test_no_call_is_made_when_none_is_wanted(callsmith, script):
    result = callsmith("chat", "--model", script("Hello" + CALL.format("current_time", "{}")), "--tool-choice", "none", "Hi")
    assert result.out == "Hello\n"


def test_a_choice_that_names_no_tool_is_refused(callsmith, script):
    result = callsmith("chat", "--model", script("Hi"), "--tool-choice", "current_tmie", "Hi")
    assert result.code == 2
    assert "did you mean 'current_time'?" in result.err


def test_a_turn_that_fails_does_not_end_the_conversation(callsmith, script):
    result = callsmith("chat", "--model", script("Hi"), "--tool-choice", "nothing", stdin="one\n/tools\n")
    assert result.code == 0
    assert result.err.startswith("error: unknown tool")
    assert "calculate(expression)" in result.out


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
        ("demo", ["current_time", "calculate", "convert_units", "get_weather", "send_message"]),
    ],
)
def test_tools_come_from_a_module(
    callsmith, script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, names: list[str]
):
    module = f"mine_{abs(hash(spec))}"
    (tmp_path / f"{module}.py").write_text(MODULE, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = callsmith("chat", "--model", script("Hi"), "--tools", spec.format(module), stdin="/tools\n")
    assert [line.partition("(")[0] for line in result.out.splitlines()] == names


@pytest.mark.parametrize("spec", ["no_such_module", "no_such_module:x", "json", "json:nothing", "math:pi", ":x", "a..b"])
def test_tools_that_are_none_are_refused(callsmith, script, spec: str):
    result = callsmith("chat", "--model", script("Hi"), "--tools", spec, "Hi")
    assert result.code == 2
    assert result.err.startswith("error: ")


SEND = CALL.format("send_message", '{"to": "Ada", "text": "I am late."}')
ASKED = '? send_message {"to": "Ada", "text": "I am late."}: send_message has side effects'


@pytest.mark.req("R93")
@pytest.mark.req("R94")
def test_where_nobody_can_be_asked_a_call_with_side_effects_is_denied(callsmith, script):
    result = callsmith("chat", "--model", script(SEND, "I could not."), "Tell Ada.")
    assert result.code == 0
    assert result.out.splitlines()[1:] == [
        ASKED,
        "  (denied: nobody can be asked here; --yes runs such calls without asking)",
        "← send_message: denied: the user is not at a terminal and cannot be asked",
        "I could not.",
    ]


@pytest.mark.req("R94")
def test_a_yes_can_be_given_beforehand(callsmith, script):
    result = callsmith("chat", "--model", script(SEND, "Sent."), "--yes", "Tell Ada.")
    assert ASKED in result.out
    assert "nothing was really sent" in result.out
    assert result.out.endswith("Sent.\n")


@pytest.mark.parametrize("more", [["--yes"], []], ids=["yes", "nobody there"])
def test_a_model_that_calls_for_ever_is_stopped_where_nobody_sees_it(callsmith, script, more: list[str]):
    sends = [SEND.replace("late", f"{number} minutes late") for number in range(40)]  # the same again would not be asked about
    result = callsmith("chat", "--model", script(*sends), *more, "Tell Ada.")
    assert result.code == 1
    assert result.err == "error: the model has asked for 25 confirmations in one turn\n"


@pytest.fixture
def at_terminal():
    """The command with a terminal as its standard input, and these lines typed there."""
    pty = pytest.importorskip("pty")

    def run(*arguments: str, typed: str, **environment: str) -> list[str]:
        ours, theirs = pty.openpty()
        clean = {name: value for name, value in os.environ.items() if name not in ("VISUAL", "EDITOR")}
        try:
            os.write(ours, typed.encode())
            command = [sys.executable, "-m", "callsmith", "chat", *arguments]
            env = {**clean, "COLUMNS": "200", "NO_COLOR": "1", **environment}
            done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60, env=env, check=True)
        finally:
            os.close(ours)
            os.close(theirs)
        return done.stdout.splitlines()

    return run


def sent(lines: list[str]) -> list[str]:
    """The results of `send_message`, without the words around them."""
    return [line.partition("← send_message: ")[2].partition(', "note"')[0] for line in lines if "← send_message" in line]


@pytest.mark.req("R94")
def test_at_a_terminal_the_user_is_asked(at_terminal, script):
    model = script(SEND, "Once.", SEND, "Twice.", SEND, "Thrice.", SEND, "Always.", SEND, "Again.")
    typed = 'one\ny\ntwo\nwhat?\nn not today\nthree\ne {"to": \ne []\ne\n{"to": "Bob", "text": "Hi"}\nfour\na\nfive\n/quit\n'
    lines = at_terminal("--model", model, typed=typed)
    ada = '{"to": "Ada", "text": "I am late."'
    assert sent(lines) == [ada, "denied: not today", '{"to": "Bob", "text": "Hi"', ada, ada]
    assert sum(ASKED in line for line in lines) == 4  # not about the fifth
    assert any("That is not JSON" in line for line in lines)
    assert any("Arguments are a JSON object." in line for line in lines)


def test_arguments_are_changed_in_the_users_editor(at_terminal, script, tmp_path: Path):
    editor = tmp_path / "editor.py"
    editor.write_text("import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text().replace('Ada', 'Eve'))")
    lines = at_terminal("--model", script(SEND, "Sent."), "Tell Ada.", typed="e\n", EDITOR=f"{sys.executable} {editor}")
    assert sent(lines) == ['{"to": "Eve", "text": "I am late."']


@pytest.mark.parametrize("editor", ["no-such-editor", 'vi "'])
def test_without_the_editor_the_user_is_asked_again(at_terminal, script, editor: str):
    lines = at_terminal("--model", script(SEND, "Sent."), "Tell Ada.", typed="e\ny\n", EDITOR=editor)
    assert any("The editor cannot be used: " in line for line in lines)
    assert sent(lines) == ['{"to": "Ada", "text": "I am late."']


def test_a_user_who_does_not_answer_has_not_agreed(at_terminal, script):
    lines = at_terminal("--model", script(SEND, "As you like."), "Tell Ada.", typed="\x04")
    assert sent(lines) == ["denied: the user did not answer"]


def test_what_a_terminal_would_obey_is_shown(callsmith, script):
    hidden = CALL.format("send_message", json.dumps({"to": "Ada", "text": "Hi\x1b[2K\u202e"}))
    result = callsmith("chat", "--model", script(hidden, "No."), "Tell Ada.")
    question = next(line for line in result.out.splitlines() if line.startswith("? "))
    assert question == '? send_message {"to": "Ada", "text": "Hi\\u001b[2K\\u202e"}: send_message has side effects'


def test_a_conversation_is_kept_in_a_file_and_gone_on_with(callsmith, script, tmp_path: Path):
    path = tmp_path / "talk.json"
    assert callsmith("chat", "--model", script("One."), "--save", str(path), "first").out == "One.\n"
    assert callsmith("chat", "--model", script("Two."), "--save", str(path), "second").out == "Two.\n"
    contents = [message["content"] for message in json.loads(path.read_text())["messages"]]
    assert contents == ["first", "One.", "second", "Two."]
    callsmith("chat", "--model", script("Three."), "--save", str(path), stdin=f"/reset\nthird\n/save {tmp_path / 'copy'}\n")
    assert len(json.loads(path.read_text())["messages"]) == 2
    assert (tmp_path / "copy").read_text() == path.read_text()


def test_a_turn_that_was_left_unfinished_is_gone_on_with_first(callsmith, script, tmp_path: Path):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps({"version": 1, "id": "x", "messages": [{"role": "user", "content": "first"}]}))
    result = callsmith("chat", "--model", script("One.", "Two."), "--save", str(path), "second")
    assert result.out.splitlines() == ["One.", "Two."]


def test_a_file_that_holds_no_conversation_is_refused_and_left_alone(callsmith, script, tmp_path: Path):
    path = tmp_path / "talk.json"
    path.write_text('{"version": 7}')
    result = callsmith("chat", "--model", script("One."), "--save", str(path), "first")
    assert result.code == 2
    assert "version: 7 is not known here" in result.err
    assert path.read_text() == '{"version": 7}'


@pytest.mark.parametrize("command", ["chat", "serve"])
def test_a_choice_policy_nobody_knows_is_told_before_anything_slow_is_done(callsmith, command: str):
    result = callsmith(command, "--model", "scripted:Hi", "--tool-choice-policy", "always")
    assert result.code == 2
    assert "required_always" in result.err


@pytest.mark.parametrize("switches", [[], ["--auto-guarded"]])
def test_calls_are_constrained_where_the_model_may_choose_if_that_is_wanted(callsmith, monkeypatch, switches: list[str]):
    engine = Scripted(["Hello."])
    monkeypatch.setattr(opening, "_engine", lambda *_: engine)
    assert callsmith("chat", "--model", "scripted:x", *switches, "Hi").out == "Hello.\n"
    assert (engine.asked[0].grammar is not None) == bool(switches)


def test_a_scripted_text_may_be_longer_than_any_file_name(callsmith):
    text = "Hello. " * 1000
    assert callsmith("chat", "--model", f"scripted:{text}", "Hi").out.split() == text.split()


def asked_of(callsmith, monkeypatch, *arguments: str, stdin: str | None = None) -> Scripted:
    engine = Scripted(["Hello."], repeat=True)
    monkeypatch.setattr(opening, "_engine", lambda *_: engine)
    assert callsmith("chat", "--model", "scripted:x", *arguments, stdin=stdin).code == 0
    return engine


def test_what_is_piped_in_is_appended_to_the_question(callsmith, monkeypatch):
    engine = asked_of(callsmith, monkeypatch, "Summarise this.", stdin="first line\nsecond line\n")
    assert "Summarise this.\n\nfirst line\nsecond line" in engine.asked[0].prompt.text


def test_instructions_and_temperature_reach_the_model(callsmith, monkeypatch):
    engine = asked_of(callsmith, monkeypatch, "--system", "Be brief.", "--temperature", "0.25", "Hi")
    assert "Be brief." in engine.asked[0].prompt.text
    assert engine.asked[0].sampling.temperature == 0.25


def test_instructions_are_changed_during_the_conversation_and_outlive_a_reset(callsmith, monkeypatch):
    engine = asked_of(callsmith, monkeypatch, "--system", "Be brief.", stdin="one\n/system Be loud.\ntwo\n/reset\nthree\n")
    output = [("Be brief." in request.prompt.text, "Be loud." in request.prompt.text) for request in engine.asked]
    assert output == [(True, False), (False, True), (False, True)]


def test_instructions_of_the_command_win_over_those_of_a_saved_conversation(callsmith, monkeypatch, tmp_path: Path):
    talk = ("--save", str(tmp_path / "talk.json"))
    asked_of(callsmith, monkeypatch, *talk, "--system", "Be brief.", "one")
    assert "Be brief." in asked_of(callsmith, monkeypatch, *talk, "two").asked[0].prompt.text
    last = asked_of(callsmith, monkeypatch, *talk, "--system", "Be loud.", "three").asked[0].prompt.text
    assert "Be loud." in last and "Be brief." not in last


def test_the_last_question_is_asked_again(callsmith, script, tmp_path: Path):
    path = tmp_path / "talk.json"
    result = callsmith(
        "chat", "--model", script("One.", "Two.", "Three."), "--save", str(path), stdin="/retry\nfirst\nsecond\n/retry\n"
    )
    assert result.err == "error: there is no turn to take back: nothing was said yet\n"
    contents = [message["content"] for message in json.loads(path.read_text())["messages"]]
    assert contents == ["first", "One.", "second", "Three."]


@pytest.mark.parametrize("saved", [True, False])
def test_another_model_goes_on_with_the_conversation(callsmith, script, tmp_path: Path, saved: bool):
    path, copy = tmp_path / "talk.json", tmp_path / "copy.json"
    more = ("--save", str(path)) if saved else ()
    typed = f"first\n/model scripted:Other.\nsecond\n/model no-such-model\nthird\n/save {copy}\n"
    result = callsmith("chat", "--model", script("One."), *more, stdin=typed)
    assert result.out.splitlines()[:4] == ["One.", "scripted:Other.", "Other.", "Other."]
    assert result.err.startswith("error: unknown model 'no-such-model'")
    contents = [message["content"] for message in json.loads(copy.read_text())["messages"]]
    assert contents == ["first", "One.", "second", "Other.", "third", "Other."]


def test_one_tool_is_shown_in_full(callsmith, script):
    result = callsmith("chat", "--model", script("Hi"), stdin="/tools current_time\n/tools current_tmie\n/save\n")
    assert result.out.startswith("current_time(timezone): ")
    assert result.err.splitlines() == [
        "error: unknown tool 'current_tmie'; did you mean 'current_time'?",
        "error: /save FILE saves the conversation to that file",
    ]
