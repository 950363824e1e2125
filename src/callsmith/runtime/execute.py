"""A round of calls: validated, run side by side under a deadline, and each answered exactly once, whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TypeAlias

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.events import ToolFinished, ToolProgress, ToolStarted
from callsmith.core.ports import Context, Toolset
from callsmith.core.schema import validate
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.closing import closing

ToolEvent: TypeAlias = ToolStarted | ToolProgress | ToolFinished

# How long a tool that was told to stop may take to do so before it is left behind.
_GRACE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a run may go: rounds of calls that are run, calls at a time, seconds a call (a tool's own timeout wins)."""

    iterations: int = 6
    parallel: int = 4
    seconds: float = 30.0


STANDARD_LIMITS = Limits()


class Round:
    """The calls of one answer. Iterate `run()` for what happens; afterwards `results` holds a Result a Call, in their order."""

    def __init__(self, calls: Sequence[Call], tools: Mapping[str, Tool], toolset: Toolset, limits: Limits) -> None:
        self._calls = calls
        self._tools = tools
        self._toolset = toolset
        self._limits = limits
        self._gate = asyncio.Semaphore(max(1, limits.parallel))
        self._inbox: asyncio.Queue[ToolEvent | asyncio.Task[Result]] = asyncio.Queue()
        self.results: list[Result] = []

    async def run(self, context: Context) -> AsyncIterator[ToolEvent]:
        """The events of all calls as they come. Closing the iterator cancels what still runs."""
        tasks = [asyncio.create_task(self._attend(call, context)) for call in self._calls]
        for task in tasks:
            task.add_done_callback(self._inbox.put_nowait)
        try:
            open_calls = len(tasks)
            while open_calls:
                arrived = await self._inbox.get()
                if isinstance(arrived, asyncio.Task):
                    open_calls -= 1
                    yield ToolFinished(arrived.result())
                else:
                    yield arrived
            self.results = [task.result() for task in tasks]
        finally:
            await _stop(tasks)

    async def _attend(self, call: Call, context: Context) -> Result:
        tool = self._tools.get(call.name)
        if tool is None:
            return _failed(call, "not_found", f"not_found: {_no_such_tool(call.name, list(self._tools))}")
        try:
            complaints = validate(tool.parameters, call.arguments)
        except UnsupportedSchema as error:  # nothing runs on arguments that cannot be checked
            return _failed(call, "internal_error", f"internal_error: {error}")
        if complaints:
            return _failed(call, "bad_request", f"invalid_arguments: {'; '.join(map(str, complaints))}")
        async with self._gate:
            self._inbox.put_nowait(ToolStarted(call))
            return await self._run_in_time(call, context, self._limits.seconds if tool.timeout is None else tool.timeout)

    async def _run_in_time(self, call: Call, context: Context, seconds: float) -> Result:
        """The tool's answer or a timeout. The tool has its own task: one that ignores its cancellation cannot hold us up."""
        work = asyncio.create_task(self._call(call, context))
        try:
            await asyncio.wait({work}, timeout=seconds)
            if not work.done():
                return _failed(call, "timeout", f"timeout: {call.name} gave no answer within {seconds:g} s")
            if work.cancelled():
                return _failed(call, "internal_error", f"internal_error: {call.name} was cancelled")
            return work.result()
        finally:
            await _stop([work])

    async def _call(self, call: Call, context: Context) -> Result:
        try:
            async with closing(self._toolset.call(call, context)) as items:
                async for item in items:
                    if isinstance(item, Result):
                        return replace(item, call_id=call.id, name=call.name)
                    self._inbox.put_nowait(replace(item, call_id=call.id))
        except (Exception, SystemExit) as error:  # the one place: whatever a tool does wrong is told to the model
            return _failed(call, "internal_error", f"internal_error: {error or type(error).__name__}")
        return _failed(call, "internal_error", f"internal_error: {call.name} ended without a result")


def _failed(call: Call, code: str, text: str) -> Result:
    return Result(call.id, call.name, text, ok=False, code=code)


def _no_such_tool(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"there is no tool {name!r}.{hint} The tools are: {', '.join(known) or 'none'}"


async def _stop(tasks: Sequence[asyncio.Task[Result]]) -> None:
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=_GRACE_SECONDS)
