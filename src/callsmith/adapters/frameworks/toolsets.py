"""Our toolsets for frameworks that run calls themselves, and their tools as a toolset of ours."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, create_model

from callsmith.adapters.frameworks.blocking import wait_for
from callsmith.core.approval import ConfirmationRequired, Decision
from callsmith.core.events import ConfirmationNeeded, ToolEvent, ToolFinished
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context, Toolset
from callsmith.core.schema import check_schema
from callsmith.core.types.field_checks import check_argument
from callsmith.core.types.json_types import Json, Schema
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.dispatch import Dispatcher
from callsmith.runtime.execute import STANDARD_LIMITS, Limits
from callsmith.runtime.loop import NO_CONTEXT
from callsmith.runtime.results import result_message
from callsmith.tools.functions import Function, Tools, as_toolset

# Asks a person about a call, and returns the decision; it may be async.
Decide: TypeAlias = Callable[[ConfirmationNeeded], Decision | Awaitable[Decision]]


def new_call_id() -> str:
    """An id for a call that a framework gives none."""
    return f"call_{uuid4().hex[:24]}"


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool of a toolset that can be called: arguments are validated, and limits and approval apply, as in a run of ours."""

    tool: Tool
    toolset: Toolset
    limits: Limits
    context: Context

    def call(self, arguments: dict[str, Json]) -> Call:
        """A call of this tool, with an id of its own."""
        return Call(self.tool.name, arguments, new_call_id())

    def events(self, call: Call, decision: Decision | None = None) -> AsyncIterator[ToolEvent]:
        """What happens while it runs. A call that needs an approval it does not have raises ConfirmationRequired.

        A decision counts for the tool as it is defined here: for one that has changed, ConfirmationRequired is raised again.
        """
        return Dispatcher(self.toolset, limits=self.limits, context=self.context).events(call, decision, self.tool)

    async def run(self, arguments: dict[str, Json], decide: Decide | None = None) -> Result:
        """The result of a call; where it needs an approval, `decide` is asked. What was not approved has failed."""
        call = self.call(arguments)
        try:
            return await self._result(call)
        except ConfirmationRequired as asked:
            if decide is None:
                reason = asked.needed.reason or call.name
                return make_failure(call, "denied", f"{reason}: a person has to approve it, and nobody can be asked")
            decision = await _ask_person(decide, asked.needed)
        try:
            return await self._result(call, decision)
        except ConfirmationRequired as changed:
            return make_failure(call, "denied", str(changed))

    async def _result(self, call: Call, decision: Decision | None = None) -> Result:
        results = [event.result async for event in self.events(call, decision) if isinstance(event, ToolFinished)]
        return results[0] if results else make_failure(call, "unavailable", f"{call.name} is run by somebody else")

    def text(self, result: Result) -> str:
        """The result as the model reads it: cut where it is too long."""
        return result_message(result, self.limits.result_characters)[0].content


async def _ask_person(decide: Decide, needed: ConfirmationNeeded) -> Decision:
    """What a person says; one who is asked by a function that is not async may take any time without holding others up."""
    answer = decide(needed) if inspect.iscoroutinefunction(decide) else await asyncio.to_thread(decide, needed)
    return check_argument("decision", await answer if inspect.isawaitable(answer) else answer, Decision)


def callable_tools(
    toolset: Tools,
    tools: Sequence[Tool] | None = None,
    limits: Limits = STANDARD_LIMITS,
    context: Context = NO_CONTEXT,
) -> list[CallableTool]:
    """The tools of a toolset, ready to be called. In async code, `tools` is `await toolset.tools()`: without, they are listed in
    the background, and a toolset with connections (MCP servers) then has them there, for calls that are not async."""
    toolset = as_toolset(toolset)
    listed = wait_for(_list_tools(toolset)) if tools is None else tools
    return [CallableTool(tool, toolset, limits, context) for tool in listed]


async def _list_tools(toolset: Toolset) -> Sequence[Tool]:
    return await toolset.tools()


def foreign_tool(name: str, description: str, parameters: Schema, run: Callable[..., Any], source: str) -> Function:
    """A tool of a framework, for `Functions`; `run` takes the arguments by their names."""
    check_schema(parameters, f"{name}.parameters")
    return Function.of(run, Tool(name, description, parameters, source=source))


class _Arguments(BaseModel):
    """Any arguments: whether they fit is found when the tool is called, by its schema."""

    model_config = ConfigDict(extra="allow")


def arguments_class(tool: Tool) -> type[BaseModel]:
    """A class whose JSON Schema is the tool's, and which takes whatever arguments there are."""
    model = create_model(f"{tool.name}_arguments", __base__=_Arguments, __doc__=tool.description)

    def model_json_schema(*_: Any, **__: Any) -> dict[str, Any]:
        return deepcopy(dict(tool.parameters))  # some frameworks change it

    model.model_json_schema = model_json_schema
    return model
