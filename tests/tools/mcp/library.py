"""A real MCP server, made with the SDK: resources, prompts, and a tool that has the client's model write with tools.

python library.py            over standard input and output
python library.py 9000       over HTTP
"""

import sys
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("library")
WEATHER = types.Tool(
    name="weather", description="The weather.", input_schema={"type": "object", "properties": {"city": {"type": "string"}}}
)


@server.resource("note://today", mime_type="text/plain")
def today() -> str:
    """The note of today."""
    return "Feed the cat."


@server.resource("picture://cat", mime_type="image/png")
def cat() -> bytes:
    """A picture."""
    return b"\x89PNG"


@server.resource("note://{day}", mime_type="text/plain")
def of_day(day: str) -> str:
    """The note of any day."""
    return f"Nothing on {day}."


@server.prompt()
def review(language: str, style: str = "kind") -> str:
    """Reviews code."""
    return f"Review this {language} code. Be {style}."


@server.tool()
async def research(topic: str, context: Context[Any, Any]) -> str:
    """Has the client's model find out something, with a tool of this server's own."""
    messages = [types.SamplingMessage(role="user", content=types.TextContent(text=topic))]
    for _ in range(3):
        answer = await context.session.create_message(
            messages, max_tokens=200, tools=[WEATHER], related_request_id=context.request_id
        )
        if answer.stop_reason != "toolUse":
            return f"{answer.content_as_list[0].text}"  # type: ignore[union-attr]
        messages.append(types.SamplingMessage(role="assistant", content=answer.content_as_list))
        results: list[Any] = [
            types.ToolResultContent(tool_use_id=use.id, content=[types.TextContent(text=f"21 degrees in {use.input['city']}")])
            for use in answer.content_as_list
            if isinstance(use, types.ToolUseContent)
        ]
        messages.append(types.SamplingMessage(role="user", content=results))
    return "it called and called"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
