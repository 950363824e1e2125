"""What the README, docs/python.md and docs/terminal.md show, pasted as it is, on the default model."""

import json
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsmith.models.weights.catalogue import default_model
from callsmith.models.weights.fetch import fetch

pytestmark = [pytest.mark.slow, pytest.mark.weights]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = (README, (ROOT / "docs" / "python.md").read_text(encoding="utf-8"))
PYTHON = [block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
TERMINAL = (ROOT / "docs" / "terminal.md").read_text(encoding="utf-8")
# What a Python example contains, and what it prints.
PRINTS = {
    "def opening_hours": r"",  # tools alone: nothing
    "Will it be sunny in Paris?": r"(?i)sunny.*\n(?s:.*)get_weather",
    "save_note": r"save_note .*B19.*\n(?s:.*)\S{2,}",
    "find_calls(": r"get_weather.*One moment\. True",
    "Reader(format_named": r"CallReady\(index=0, call=Call\(name='get_weather', arguments=\{'city': 'Paris'\}",
}
# Commands of docs/terminal.md, and what they print.
COMMANDS = {
    'callsmith chat "What time is it in Tokyo?"': r"\d{1,2}:\d\d|\d{1,2} ?[ap]\.?m|o'clock",
    "callsmith models": r"qwen2\.5-coder-1\.5b",
    "callsmith formats": r"<tool_call>",
    "callsmith grammar --tools tools.json": r"get_weather",
    "callsmith parse --format hermes answer.txt": r'"get_weather"',
}


@pytest.fixture(scope="module", autouse=True)
def weights() -> None:
    fetch(default_model())


TRIES = 3  # the model draws its words: now and then a small one says something else


def printed(pattern: str, *command: str, cwd: Path) -> bool:
    """Whether the command prints this, at one of a few tries."""
    for _ in range(TRIES):
        output = ran(*command, cwd=cwd)
        if re.search(pattern, output):
            return True
        print(output)
        (cwd / "talk.json").unlink(missing_ok=True)
    return False


def ran(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_a_python_example_runs_and_answers(number: int, tmp_path: Path):
    (pattern,) = [pattern for mark, pattern in PRINTS.items() if mark in PYTHON[number]]
    (tmp_path / "example.py").write_text(PYTHON[number])
    assert printed(pattern, sys.executable, "example.py", cwd=tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_and_answers(command: str, tmp_path: Path):
    assert command in TERMINAL
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
    (tmp_path / "tools.json").write_text(json.dumps([tool]))
    (tmp_path / "answer.txt").write_text('<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>')
    program, *arguments = shlex.split(command)
    assert printed(COMMANDS[command], sys.executable, "-m", program, *arguments, cwd=tmp_path)


def test_the_tool_call_over_http_is_answered_as_shown(tmp_path: Path):
    (example,) = re.findall(r"curl http://127\.0\.0\.1:8000(\S+) .*? -d '(.*?)'\n```\s+```json\n(.*?)```", README, re.DOTALL)
    path, body, printed_answer = example
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "callsmith", "serve", "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            answers = [posted(f"http://127.0.0.1:{port}{path}", json.loads(body)) for _ in range(TRIES)]
        finally:
            server.terminate()
    expected = json.loads(printed_answer.replace("…", ""))["choices"][0]
    assert {answer["choices"][0]["finish_reason"] for answer in answers} == {expected["finish_reason"]} == {"tool_calls"}
    functions = [call["function"] for answer in answers for call in answer["choices"][0]["message"]["tool_calls"]]
    assert expected["message"]["tool_calls"][0]["function"] in functions
    assert [function["name"] for function in functions] == ["get_weather"] * TRIES


def posted(url: str, body: Any) -> Any:
    for _ in range(600):  # while the model is loaded
        try:
            answer = httpx2.post(url, json=body, timeout=300)
            if answer.status_code != 503:
                return answer.raise_for_status().json()
        except httpx2.ConnectError:
            pass
        time.sleep(0.5)
    raise AssertionError("the server did not start")
