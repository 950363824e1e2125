"""The names of vLLM.rs's "Tool Calling and MCP Support".

weather = Tool.function("get_weather", "Get weather for a location").param("location", "string", "City name", True).build()
"""

from callsmith.compat import FunctionCall, ToolCall, tool_calls
from callsmith.formats.inference.find_calls import find_calls
from callsmith.tools.define import define

__all__ = ["FunctionCall", "Tool", "ToolCall", "ToolParser"]


class Tool:
    """Where a tool begins to be built."""

    function = staticmethod(define)


class ToolParser:
    """Finds the calls in what a model wrote; their arguments are JSON as text."""

    def parse(self, output: str) -> list[ToolCall]:
        return tool_calls(find_calls(output).calls, as_text=True)
