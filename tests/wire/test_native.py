"""A tool as each API writes it."""

import json
from typing import Any

import pytest

from callsmith.core.events import CallReady
from callsmith.core.values import Call, Choice, Message, Request, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import Template
from callsmith.formats.write import write
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.targets.gbnf import to_gbnf
from callsmith.models.local import LocalModel
from callsmith.models.opening import resolve_format
from callsmith.models.presets import preset_for
from callsmith.wire.anthropic import messages
from callsmith.wire.ollama import requests
from callsmith.wire.openai import chat, responses
from tests.models.remote.scripted import answer, remote
from tests.models.remote.scripted import chat as said
from tests.scripted_server import scripted

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = Tool("get_weather", "The weather.", SCHEMA, side_effects=True, timeout=5, source="python", original="weather")
ASKED = Request((Message.user("hi"),), (TOOL,), Choice.only("get_weather"))
FUNCTION: dict[str, Any] = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}


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
    (definition,) = body["tools"]
    assert {key: value for key, value in definition.items() if value is not None} == tool
    assert {key: value for key, value in body["tool_choice"].items() if value is not None} == choice


@pytest.mark.req("R142", "R143", "R185")
@pytest.mark.parametrize("provider", ["nvidia", "openbmb"])
async def test_nemotron_and_openbmb_get_it_as_openai_has_it(provider: str):
    async with scripted(said({"content": "ok"})) as server:
        model = remote(server, "chat", provider=provider)
        await answer(model, ASKED)
        await model.close()
    (tool,) = server.asked[0]["tools"]
    assert tool == {"type": "function", "function": FUNCTION}
    assert server.asked[0]["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.req("R140", "R185")
def test_llama_cpp_gets_a_grammar_of_its_schema():
    grammar = grammar_for(format_named("hermes"), ASKED.tools, ASKED.choice)
    assert grammar is not None
    text = to_gbnf(grammar).text
    assert text.startswith("root ::=")
    assert "get_weather" in text and "city" in text


# As models of MiniCPM are shown tools, and write calls.
MINICPM = """
{%- if tools %}<|im_start|>system
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<function name="{{ call.function.name }}">
{%- for key, value in call.function.arguments.items() %}<param name="{{ key }}">
{{- value if value is string else value | tojson }}</param>{% endfor %}</function>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
CALL = '<function name="get_weather"><param name="city">Bonn</param></function>'


@pytest.mark.req("R141", "R185")
async def test_minicpm_gets_and_writes_it_in_the_format_of_its_template():
    template = Template(MINICPM)
    choice = resolve_format(None, template, None)
    assert choice is not None and choice.format.name == "minicpm5"
    engine = Scripted([CALL], specials={"<|im_start|>": 1, "<|im_end|>": 2})
    events = [event async for event in LocalModel(engine, choice.format, template).stream(ASKED)]
    request = engine.asked[0]
    assert json.dumps(FUNCTION["parameters"]["properties"]) in request.prompt.text
    assert "<tools>" in request.prompt.text
    assert request.grammar is not None  # the call is forced, and the grammar writes it so
    assert [(event.call.name, event.call.arguments) for event in events if isinstance(event, CallReady)] == [
        ("get_weather", {"city": "Bonn"})
    ]
    assert write(choice.format, [Call("get_weather", {"city": "Bonn"})]) == CALL


@pytest.mark.req("R141")
@pytest.mark.parametrize(("name", "first"), [("openbmb/MiniCPM5-1B", "minicpm5"), ("openbmb/MiniCPM-V-4_5", "hermes")])
def test_where_minicpm_has_no_template_its_name_says_the_format(name: str, first: str):
    preset = preset_for(name)
    assert preset is not None
    names = [candidate.name for candidate in preset.formats]
    assert (names[0], "minicpm5" in names) == (first, True)
