"""The first conversation of docs/start.md, as a new user has it: its tools, the default model, a server with the page."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callsmith.models.weights.catalogue import default_model
from callsmith.models.weights.fetch import fetch
from tests.journeys.test_readme import posted

pytestmark = [pytest.mark.slow, pytest.mark.weights]

START = (Path(__file__).parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
LIKE_A_CALL = re.compile(r"""^\s*[`{\[]|["'](name|arguments)["']\s*:""")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the tools that the page shows."""
    fetch(default_model())
    folder = tmp_path_factory.mktemp("start")
    tools = next(code for code in re.findall(r"```python\n(.*?)```", START, re.DOTALL) if "def opening_hours" in code)
    (folder / "mytools.py").write_text(tools)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "callsmith", "serve", "--tools", "mytools", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


class Talk:
    """A conversation with the server, in which what needs approval is approved."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._messages: list[Any] = []
        self.approved: list[Any] = []

    def say(self, text: str) -> tuple[str, list[str]]:
        """What is answered, and the calls that ran or were to be approved."""
        self._messages.append({"role": "user", "content": text})
        body = {"messages": self._messages, "tool_events": True, "session_id": "start"}
        answer = posted(f"{self._server}/v1/chat/completions", body)
        events = answer.get("callsmith", {}).get("events", [])
        called = [event["name"] for event in events if event["event"] == "tool_started"]
        for waiting in answer.get("callsmith", {}).get("approvals", []):
            self.approved.append((waiting["name"], waiting["arguments"]))
            called.append(waiting["name"])
            answer = posted(f"{self._server}/v1/approvals/{waiting['id']}", {"approve": True})
        content = json.dumps(answer) if "choices" not in answer else answer["choices"][0]["message"]["content"]
        self._messages.append({"role": "assistant", "content": content})
        return content, called


def test_a_greeting_a_question_and_an_order_are_answered_rightly(server: str):
    talk = Talk(server)
    text, called = talk.say("Hello, how are you?")
    assert not called and text.strip() and not LIKE_A_CALL.search(text)
    text, called = talk.say("When does the bakery open?")
    assert called == ["opening_hours"] and re.search(r"\b6\b|\bsix\b", text), text
    _, called = talk.say("Order two loaves at the bakery.")
    assert called == ["order"]
    [(_, arguments)] = talk.approved
    assert "bakery" in arguments["shop"].lower() and re.search(r"(two|2).*loa", arguments["what"].lower()), arguments


@pytest.mark.parametrize(
    ("question", "calls"),
    [
        ("Hello, how are you?", []),
        ("What is 2+2?", []),
        ("Who wrote Hamlet?", []),
        ("What is the weather in Oslo and in Rome?", ["Oslo", "Rome"]),
    ],
)
def test_beside_a_weather_tool_only_the_weather_is_asked_for(server: str, question: str, calls: list[str]):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    function = {"name": "get_weather", "description": "The weather in a city.", "parameters": parameters}
    body = {"messages": [{"role": "user", "content": question}], "tools": [{"type": "function", "function": function}]}
    message = posted(f"{server}/v1/chat/completions", body)["choices"][0]["message"]
    cities = [json.loads(call["function"]["arguments"])["city"] for call in message.get("tool_calls") or []]
    assert [city.split(",")[0] for city in cities] == calls
    assert calls or not LIKE_A_CALL.search(message["content"])
