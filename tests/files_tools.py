"""Tools as two MCP servers have them, without the servers: one is called otherwise here, and one changes something."""

from collections.abc import AsyncIterator, Sequence

from callsmith.core.events import ConfirmationNeeded, ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = Tool("files_read", "Read a file.", PATH, source="mcp:files", original="read")
DELETE = Tool("delete", "Delete a file.", PATH, source="mcp:files", side_effects=True)
NOW = Tool("now", "The time.", source="mcp:clock")
WEATHER = Tool("weather", "The weather.", source="functions")


class Files:
    """A toolset of files that are there, and a clock. What ran is in `ran`."""

    def __init__(self, **files: str) -> None:
        self.files = files
        self.ran: list[Call] = []

    async def tools(self) -> Sequence[Tool]:
        return [READ, DELETE, NOW, WEATHER]

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | ConfirmationNeeded | Result]:
        await context.starting()
        self.ran.append(call)
        yield ToolProgress(call.id, "looking", 1, 2)
        if call.name in ("now", "weather"):
            yield Result(call.id, call.name, "noon" if call.name == "now" else "sunny")
        elif call.arguments["path"] not in self.files:
            yield Result(call.id, call.name, f"there is no {call.arguments['path']}", ok=False, code="not_found")
        else:
            yield Result(call.id, call.name, self.files[call.arguments["path"]] if call.name == "files_read" else "")
