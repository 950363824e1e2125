"""Our toolsets for frameworks that run calls themselves, and their tools as a toolset of ours."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from callsmith.adapters.frameworks.blocking import wait_for
from callsmith.core.approval import Decision
from callsmith.core.events import ToolEvent, ToolFinished
from callsmith.core.ports import Context, Toolset
from callsmith.core.schema import check_schema
from callsmith.core.types.field_checks import check_argument
from callsmith.core.types.json_types import Json, Schema
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.dispatch import Dispatcher
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import NO_CONTEXT
from callsmith.runtime.results import result_message
from callsmith.tools.functions import Function


def new_call_id() -> str:
    """An id for a call that a framework gives none."""
    return f"call_{uuid4().hex[:24]}"


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool of a toolset that can be called: arguments are validated, and limits and approval apply, as in a run of ours."""

    tool: Tool
    dispatcher: Dispatcher
    most_characters: int  # of a result that the model reads

    def call(self, arguments: dict[str, Json]) -> Call:
        """A call of this tool, with an id of its own."""
        return Call(self.tool.name, arguments, new_call_id())

    def events(self, call: Call, decision: Decision | None = None) -> AsyncIterator[ToolEvent]:
        """What happens while it runs. A call that needs an approval it does not have raises ConfirmationRequired.

        A decision counts for the tool as it is defined here: for one that has changed, ConfirmationRequired is raised again.
        """
        return self.dispatcher.events(call, decision, self.tool)

    async def run(self, arguments: dict[str, Json]) -> Result:
        """The result of a call."""
        finished = [event async for event in self.events(self.call(arguments)) if isinstance(event, ToolFinished)]
        return finished[-1].result

    def text(self, result: Result) -> str:
        """The result as the model reads it: cut where it is too long."""
        return result_message(result, self.most_characters)[0].content


def callable_tools(
    toolset: Toolset,
    tools: Sequence[Tool] | None = None,
    limits: Limits = STANDARD_LIMITS,
    context: Context = NO_CONTEXT,
) -> list[CallableTool]:
    """The tools of a toolset, ready to be called. In async code, `tools` is `await toolset.tools()`: without, they are listed in
    the background, and a toolset with connections (MCP servers) then has them there, for calls that are not async."""
    check_argument("toolset", toolset, Toolset, "Functions(get_weather) makes one of functions")
    listed = wait_for(_listed(toolset)) if tools is None else tools
    dispatcher = Dispatcher(toolset, limits=limits, context=context)
    return [CallableTool(tool, dispatcher, limits.result_characters) for tool in listed]


async def _listed(toolset: Toolset) -> Sequence[Tool]:
    return await toolset.tools()


def foreign_tool(name: str, description: str, parameters: Schema, run: Callable[..., Any], source: str) -> Function:
    """A tool of a framework, for `Functions`; `run` takes the arguments by their names."""
    check_schema(parameters, f"{name}.parameters")
    return Function.of(run, Tool(name, description, parameters, source=source))
