"""The samples of vLLM.rs's page on tool calling: OpenAI's client and plain HTTP against the server, and the builder."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
import requests

from callsmith.compat.vllm_rs import Tool, ToolParser
from callsmith.server.app import create_app
from callsmith.tools.mcp import McpHost, load_servers
from tests.capabilities.chatting import called, scripted_model
from tests.serving import served, served_apart
from tests.tools.mcp.trying import PLAIN
from tests.waiting import until

tools = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather for a location",
            "parameters": {
                "type": "object",
                "properties": {
                    "location": {"type": "string", "description": "City name"},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
                "required": ["location"],
            },
        },
    }
]
CALLED = called(("get_weather", {"location": "Tokyo"}))


def app_of(*replies: str, **options: Any) -> Any:
    """A server of one model, which is called otherwise than the samples do."""
    return create_app({"qwen3": scripted_model(*replies)[1]}, **options)


@pytest.mark.req("R112", "R113")
def test_external_tool_handling_by_openais_client(capsys: pytest.CaptureFixture[str]) -> None:
    with served_apart(app_of(CALLED)) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="EMPTY")

        # Provide tools → External handling
        response = client.chat.completions.create(
            model="Qwen/Qwen3-0.6B",
            messages=[{"role": "user", "content": "What's the weather?"}],
            tools=tools,  # pyright: ignore
        )

        # Handle tool calls yourself
        if response.choices[0].message.tool_calls:
            for call in response.choices[0].message.tool_calls:
                print(f"Execute: {call.function.name}({call.function.arguments})")  # pyright: ignore

    assert capsys.readouterr().out == 'Execute: get_weather({"location": "Tokyo"})\n'


@pytest.mark.req("R17", "R18", "R120")
def test_the_quick_start_over_http() -> None:
    with served_apart(app_of(CALLED, "It is sunny.")) as url:
        messages: list[Any] = [{"role": "user", "content": "What's the weather in Tokyo?"}]
        response = requests.post(
            f"{url}/v1/chat/completions",
            json={"model": "Qwen/Qwen3-0.6B", "messages": messages, "tools": tools},
            timeout=30,
        )

        result = response.json()
        choice = result["choices"][0]
        assert choice["finish_reason"] == "tool_calls"

        if choice["message"].get("tool_calls"):
            for call in choice["message"]["tool_calls"]:
                name = call["function"]["name"]
                args = json.loads(call["function"]["arguments"])
                assert (call["type"], name, args) == ("function", "get_weather", {"location": "Tokyo"})
                assert call["id"].startswith("call_") and isinstance(call["function"]["arguments"], str)

                result = {"sky": "sunny"}

                messages.append({"role": "assistant", "tool_calls": [call]})
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})

        again = requests.post(
            f"{url}/v1/chat/completions", json={"model": "default", "messages": messages, "tools": tools}, timeout=30
        )
    assert again.json()["choices"][0]["message"]["content"] == "It is sunny."


def mcp_json(folder: Path) -> Path:
    """The document's mcp.json: its two servers, run by a command that is here, and with a word about who is trusted."""
    command = {"command": sys.executable, "args": ["-I", "-S", str(PLAIN), "{}"], "approval": {"*": "auto"}}
    servers = {"filesystem": command, "github": {**command, "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_..."}}}
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    return path


@pytest.mark.req("R115", "R116")
async def test_streaming_with_mcp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writes = "I'll look. " + called(("filesystem_echo", {"text": "README.md"})), "There is README.md."

    def sample(url: str) -> None:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="EMPTY")

        # Don't provide tools → MCP tools are auto-injected and executed
        stream = client.chat.completions.create(
            model="Qwen/Qwen3-0.6B",
            messages=[{"role": "user", "content": "List files in the current directory"}],
            stream=True,
        )

        # Receive the final answer (tool execution happens internally)
        for chunk in stream:
            if chunk.choices[0].delta.content:
                print(chunk.choices[0].delta.content, end="")

    engine, model = scripted_model(*writes)
    async with McpHost(load_servers(mcp_json(tmp_path), {})) as host:
        await until(lambda: all(server_status.state == "ready" for server_status in host.status()))
        names = [tool.name for tool in await host.tools()]
        async with served(create_app({"qwen3": model}, mcp=host)) as url:
            await asyncio.to_thread(sample, url)
    assert {"filesystem_echo", "github_echo"} <= set(names)  # prefixed with the server's id
    assert capsys.readouterr().out.endswith("There is README.md.")
    assert "README.md" in engine.asked[1].prompt.text.rpartition("filesystem_echo")[2]


@pytest.mark.req("R19")
def test_defining_tools() -> None:
    # Builder pattern
    weather_tool = (
        Tool.function("get_weather", "Get weather for a location")
        .param("location", "string", "City name", True)
        .param("unit", "string", "Temperature unit", False)
        .build()
    )
    assert weather_tool.parameters["required"] == ["location"]
    assert list(weather_tool.parameters["properties"]) == ["location", "unit"]


def test_parsing_tool_calls(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ToolParser()
    output = 'I\'ll check the weather.\n<tool_call>\n{"name": "get_weather", "arguments": {"location": "Tokyo"}}\n</tool_call>'

    calls = parser.parse(output)
    for call in calls:
        print(f"Calling: {call.function.name} with {call.function.arguments}")

    assert capsys.readouterr().out == 'Calling: get_weather with {"location": "Tokyo"}\n'


@pytest.mark.parametrize(
    "output",
    [
        '<tool_call>{"name": "get_weather", "arguments": {"location": "Tokyo"}}</tool_call>',
        '{"name": "get_weather", "arguments": {"location": "Tokyo"}}',
        '```json\n{"name": "get_weather", "arguments": {"location": "Tokyo"}}\n```',
    ],
)
def test_the_formats_that_are_recognised(output: str) -> None:
    (call,) = ToolParser().parse(output)
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"location": "Tokyo"}')


@pytest.mark.req("R75")
def test_an_explicit_schema_guides_the_answer() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"],
    }
    engine, model = scripted_model('{"name": "x", "arguments": {}}')
    with served_apart(create_app({"qwen3": model})) as url:
        body = {"model": "default", "messages": [{"role": "user", "content": "go"}], "guided_json_schema": schema}
        answer = requests.post(f"{url}/v1/chat/completions", json=body, timeout=30).json()
    assert json.loads(answer["choices"][0]["message"]["content"]) == {"name": "x", "arguments": {}}
    assert engine.asked[0].grammar is not None
