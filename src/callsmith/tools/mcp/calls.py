"""One call of a tool of an MCP server: made, followed where it goes on at the server as a task, and answered whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from callsmith.core.events import ToolProgress
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.connection import Connection, OnProgress
from callsmith.tools.mcp.content import read_result
from callsmith.tools.mcp.transport.process import first_error

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import MCPError

_STOP = 1.0  # seconds that a call which is not wanted any more may take to end
_AWAY = 300.0  # seconds that a server may be away while it has a task for us
_LOOK = 0.2  # seconds between two looks whether it is back
_CLOSED = ("Connection closed", "SSE stream ")  # how the SDK begins; servers have the same code for errors of their own


@dataclass(frozen=True, slots=True)
class ServerCall:
    """A call of a tool of one server. `find_connection` is the connection to the server just now; None while there is none.

    With `as_task` it is made as a task. A call whose context has a checkpoint notes the task there, and is found again by it.
    """

    config: ServerConfig
    call: Call
    context: Context
    find_connection: Callable[[], Connection | None]
    as_task: bool = False

    @property
    def noted_task(self) -> str:
        """The id of the task, if the call went on at the server before this program was started."""
        return self.context.checkpoint.value if self.context.checkpoint else ""

    async def events(self, connection: Connection | None) -> AsyncIterator[ToolProgress | Result]:
        """Progress as it comes, then the result; closing it cancels the call. Without a connection one is waited for."""
        progress: asyncio.Queue[ToolProgress | None] = asyncio.Queue()
        connections = [connection] if connection else []
        work = asyncio.create_task(self._perform(progress.put_nowait, connections))
        work.add_done_callback(lambda _: progress.put_nowait(None))
        try:
            while (item := await progress.get()) is not None:
                yield item
            yield self._result(work, connections)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work], timeout=_STOP)

    async def _perform(self, on_progress: OnProgress, connections: list[Connection]) -> "types.CallToolResult":
        """Make the call and wait for its result. `connections` are those it was made over."""
        from callsmith.tools.mcp.tasks import TaskBegun

        task, checkpoint, limit = self.noted_task, self.context.checkpoint, asyncio.timeout(self.config.task_timeout)
        if not connections:
            connections.append(await self._wait_for_connection(None))
        if not task:
            try:
                return await connections[0].call(self.call, on_progress, self.context.subject, as_task=self.as_task)
            except TaskBegun as begun:
                task = begun.id
            if checkpoint is not None:
                await checkpoint.save(task)
        try:
            async with limit:
                return await self._follow(task, on_progress, connections)
        except TimeoutError:
            await connections[-1].cancel_task(task)
            if not limit.expired():
                raise
            raise TimeoutError(f"its task did not end within {self.config.task_timeout:g} seconds (task_timeout)") from None
        except BaseException:
            if checkpoint is None or not checkpoint.is_left():  # else another process follows it
                await connections[-1].cancel_task(task)
            raise

    async def _follow(self, task: str, on_progress: OnProgress, connections: list[Connection]) -> "types.CallToolResult":
        """Wait for the end of a task, also over another connection, if the server comes back."""
        while True:
            connection = connections[-1]
            try:
                return await connection.follow_task(task, self.call, on_progress, self.context.subject)
            except Exception as error:
                if not _is_lost(connection, error):
                    raise
                connection.ended.set()
                on_progress(ToolProgress(self.call.id, f"the MCP server {self.config.name} is away", waits=True))
                connections.append(await self._wait_for_connection(connection))

    async def _wait_for_connection(self, lost: Connection | None) -> Connection:
        """A connection to the server, another one than the one that was lost."""
        async with asyncio.timeout(_AWAY):
            while (found := self.find_connection()) is None or found is lost:
                await asyncio.sleep(_LOOK)
        return found

    def _result(self, work: "asyncio.Task[types.CallToolResult]", connections: list[Connection]) -> Result:
        import mcp_types as types
        from mcp import MCPError

        call, server = self.call, self.config.name
        ended = make_failure(call, "unavailable", f"the MCP server {server} ended before it had answered")
        try:
            return ended if work.cancelled() else read_result(call, work.result())
        except MCPError as error:
            if any(connection.ended.is_set() for connection in connections[-1:]) or _is_closed(error):
                return ended
            code = {types.REQUEST_TIMEOUT: "timeout", types.INVALID_PARAMS: "bad_request"}.get(error.code, "tool_error")
            return make_failure(call, code, error.message)
        except TimeoutError as error:
            return make_failure(call, "timeout", str(error) or f"the MCP server {server} did not come back")
        except (RuntimeError, ValueError) as error:  # not valid for its own output schema, or no result at all
            return make_failure(call, "bad_result", str(error))
        except Exception as error:  # a connection may break in many ways
            for connection in connections[-1:]:
                connection.ended.set()
            return make_failure(call, "unavailable", f"the MCP server {server} cannot be reached: {first_error(error)}")


def _is_lost(connection: Connection, error: Exception) -> bool:
    """Whether a connection has broken, which says nothing of what goes on at the server."""
    from mcp import MCPError

    if isinstance(error, MCPError):
        return connection.ended.is_set() or _is_closed(error)
    return connection.ended.is_set() or not isinstance(error, RuntimeError | ValueError | TimeoutError)


def _is_closed(error: "MCPError") -> bool:
    import mcp_types as types

    return error.code == types.CONNECTION_CLOSED and error.message.startswith(_CLOSED)
