"""A tool as each API writes it."""

from typing import Any

import pytest

from callsmith.core.values import Choice, Message, Request, Tool
from callsmith.wire.anthropic import messages
from callsmith.wire.ollama import requests
from callsmith.wire.openai import chat, responses

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = Tool("get_weather", "The weather.", SCHEMA, side_effects=True, timeout=5, source="python", original="weather")
ASKED = Request((Message.user("hi"),), (TOOL,), Choice.only("get_weather"))
FUNCTION = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}


@pytest.mark.req("R185")
@pytest.mark.parametrize(
    ("body", "tool", "choice"),
    [
        pytest.param(
            chat.write_request(chat.ChatRequest("m", ASKED)),
            {"type": "function", "function": FUNCTION},
            {"type": "function", "function": {"name": "get_weather"}},
            marks=pytest.mark.req("R138", "R30"),
            id="openai-chat",
        ),
        pytest.param(
            responses.write_request(responses.ResponsesRequest("m", ASKED)),
            {"type": "function", **FUNCTION, "strict": False},
            {"type": "function", "name": "get_weather"},
            marks=pytest.mark.req("R138", "R30"),
            id="openai-responses",
        ),
        pytest.param(
            messages.write_request(messages.MessagesRequest("m", ASKED)),
            {"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA},
            {"type": "tool", "name": "get_weather"},
            marks=pytest.mark.req("R137", "R30"),
            id="anthropic",
        ),
        pytest.param(
            requests.write_chat(requests.OllamaRequest("m", ASKED)),
            {"type": "function", "function": FUNCTION},
            {"type": "function", "function": {"name": "get_weather"}},
            marks=pytest.mark.req("R139", "R30"),
            id="ollama",
        ),
    ],
)
def test_tool_definition_to_native_format(body: dict[str, Any], tool: dict[str, Any], choice: dict[str, Any]):
    """Every API gets the tool and the choice in its own shape, and nothing of how the tool is run."""
    (written,) = body["tools"]
    assert {key: value for key, value in written.items() if value is not None} == tool
    assert {key: value for key, value in body["tool_choice"].items() if value is not None} == choice
