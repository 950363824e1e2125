"""`callsmith chat` in a real terminal, as its user sees it."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from tests.cli.conftest import CALL
from tests.cli.terminal.emulator import Terminal
from tests.serving import served_apart

pytestmark = pytest.mark.processes

SEND = CALL.format("send_message", '{"to": "Ada", "text": "I am late."}')


@pytest.fixture
def chat(script, tmp_path: Path):
    def start(*replies: str, more: tuple[str, ...] = (), columns: int = 60, **environment: str) -> Terminal:
        return Terminal("chat", "--model", script(*replies), *more, home=tmp_path, columns=columns, **environment)

    return start


def test_a_message_of_two_lines_is_answered_in_rendered_markdown_and_stays_in_the_history(chat, tmp_path: Path):
    with chat("# Hi\n\nSome **bold** words, which are wrapped by words at the very edge of the screen.") as terminal:
        terminal.wait_for_prompt()
        terminal.press("hello\x1b\rworld\r")
        terminal.wait_for("of the screen.")
        terminal.wait_for_prompt()
        lines = terminal.lines
        terminal.press("\x04")
        assert terminal.wait_for_end() == 0
    output = lines[lines.index("> hello") :]
    assert output[:6] == [
        "> hello",
        "  world",
        "Hi",
        "",
        "Some bold words, which are wrapped by words at the very",
        "edge of the screen.",
    ]
    with chat("Hi") as terminal:
        terminal.wait_for_prompt()
        terminal.press("\x1b[A")
        terminal.wait_for("> hello")
        terminal.wait_for("  world")
    assert (tmp_path / "state" / "callsmith" / "chat_history").stat().st_mode & 0o777 == 0o600


def test_what_is_pasted_keeps_its_lines(chat, tmp_path: Path):
    talk = tmp_path / "talk.json"
    with chat("Yes.", more=("--save", str(talk))) as terminal:
        terminal.wait_for_prompt()
        terminal.press("\x1b[200~one\r\ntwo\x1b[201~\r")
        terminal.wait_for("Yes.")
    assert json.loads(talk.read_text())["messages"][0]["content"] == "one\ntwo"


def test_ctrl_c_clears_the_line_and_ctrl_d_leaves(chat):
    with chat("Yes.") as terminal:
        terminal.wait_for_prompt()
        terminal.press("a draft")
        terminal.wait_for("> a draft")
        terminal.press("\x03")
        terminal.wait_for_prompt()
        terminal.press("\x03")
        terminal.wait_for("(Ctrl-D or /quit leaves)")
        terminal.wait_for_prompt()
        terminal.press("\x04")
        assert terminal.wait_for_end() == 0
        assert not any("Yes." in line for line in terminal.lines)


def test_commands_and_names_are_completed(chat):
    with chat("Yes.") as terminal:
        terminal.wait_for_prompt()
        terminal.press("/to")
        terminal.wait_for("the tools, or one of them in full")
        terminal.press("\t get_w")
        terminal.wait_for("get_weather  tool")
        terminal.press("\t")
        terminal.wait_for("> /tools get_weather")
        terminal.press("\r")
        terminal.wait_for("get_weather(city): The weather in a city")


def test_an_unknown_command_names_the_nearest(chat):
    with chat("Yes.") as terminal:
        terminal.wait_for_prompt()
        terminal.press("/retyr\r")
        terminal.wait_for("error: unknown command '/retyr'; did you mean '/retry'?")


def test_a_path_is_no_command(chat):
    with chat("A file.") as terminal:
        terminal.wait_for_prompt()
        terminal.press("/etc/hosts: what is it?\r")
        terminal.wait_for("A file.")


def test_a_conversation_that_is_continued_shows_what_was_said_last(chat, tmp_path: Path):
    talk = ("--save", str(tmp_path / "talk.json"))
    with chat("One.", more=talk) as terminal:
        terminal.wait_for_prompt()
        terminal.press("first\r")
        terminal.wait_for("One.")
        terminal.wait_for_prompt()
        terminal.press("/quit\r")
        assert terminal.wait_for_end() == 0
    with chat("Two.", more=talk, columns=250) as terminal:
        terminal.wait_for_prompt()
        assert terminal.lines[1:] == [f"Going on with {talk[1]} (2 messages).", "", "> first", "One.", "", ">"]


def test_an_approval_is_asked_for_in_the_terminal(chat):
    with chat(SEND, "It is sent.", columns=100) as terminal:
        terminal.wait_for_prompt()
        terminal.press("Tell Ada.\r")
        terminal.wait_for("Run it?")
        terminal.press("y\r")
        terminal.wait_for("It is sent.")
        terminal.wait_for_prompt()


def test_without_prompt_toolkit_it_is_plainer_and_says_so(chat, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['prompt_toolkit'] = None\n")
    with chat("Yes.", columns=100, PYTHONPATH=f"{tmp_path}:src") as terminal:
        terminal.wait_for("pip install 'callsmith[terminal]'")
        terminal.wait_for_prompt()
        terminal.press("hello\r")
        terminal.wait_for("Yes.")
        terminal.wait_for_prompt()
        terminal.press("a draft")
        terminal.wait_for("> a draft")
        terminal.press("\x03")
        terminal.wait_for("(Ctrl-D or /quit leaves)")
        terminal.press("\x04")
        assert terminal.wait_for_end() == 0


class Hesitant(Scripted):
    """An engine that begins when it is let."""

    def __init__(self, *replies: str) -> None:
        super().__init__(replies, chunk=5, pause=0.2)
        self.let = threading.Event()

    async def generate(self, *args: Any, **more: Any) -> AsyncGenerator[Any, None]:
        await asyncio.to_thread(self.let.wait)
        async for piece in super().generate(*args, **more):
            yield piece


def test_a_model_of_a_server_that_takes_its_time_is_waited_for_and_stopped(tmp_path: Path):
    """The line that says what is waited for goes away with the first word; Ctrl-C stops the answer, and what was said stays."""
    slow = Hesitant("Word " * 5000)
    app = create_app({"slow": LocalModel(slow, format_named("hermes"), Template(CHATML))})
    talk = tmp_path / "talk.json"
    with served_apart(app) as address:
        model = f"{address}/v1#slow"
        with Terminal("chat", "--model", model, "--no-tools", "--save", str(talk), home=tmp_path, columns=100) as terminal:
            terminal.wait_for_prompt()
            terminal.press("Talk.\r")
            terminal.wait_for("waiting for the answer, ")
            slow.let.set()
            terminal.wait_for("Word Word")
            assert not any("waiting for the answer" in line for line in terminal.lines)
            terminal.press("not shown while it talks\x03")
            terminal.wait_for("(stopped)")
            terminal.wait_for_prompt()
            assert not any("not shown" in line for line in terminal.lines)
            terminal.press("\x04")
            assert terminal.wait_for_end() == 0
    contents = [message["content"] for message in json.loads(talk.read_text())["messages"]]
    assert contents[0] == "Talk." and contents[1].startswith("Word Word")


def test_where_the_output_is_no_terminal_it_is_plain(callsmith, script):
    result = callsmith("chat", "--model", script("# Title\n\n**bold** `code`"), "Hi")
    assert result.out == "# Title\n\n**bold** `code`\n"


def test_a_terminal_that_only_types_gets_plain_text(chat):
    with chat("# Title\n\n**bold**", TERM="dumb") as terminal:
        terminal.wait_for_prompt()
        terminal.press("Hi\r")
        terminal.wait_for("**bold**")
        assert b"\x1b[" not in terminal.output
