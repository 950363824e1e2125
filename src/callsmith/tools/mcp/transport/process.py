"""An MCP server as a child process: it is ended together with all processes it has started."""

import asyncio
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, MutableSequence, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from callsmith.core.closing import closing
from callsmith.core.errors import Unavailable
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.transport.messages import MessageBounds

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_GRACE = 1.0  # seconds between asking what is left of a server to end and ending it
_LEAVE = 6.0  # seconds within which the SDK has ended a server, if nothing comes between
_LOOK = 0.25  # seconds between looks whether it lives
_LEADERLESS = 1.0  # seconds within which the first line of stderr comes
_LONGEST_LINE, _MOST_LINES = 4096, 1_000  # of stderr that are read: characters of a line, and lines a second
_PID = "callsmith-pid "
_LAUNCH = f'echo "{_PID}$$" >&2; exec "$0" "$@"'  # the first line is the process id of the group's leader


@asynccontextmanager
async def process_streams(
    config: ServerConfig, stderr_lines: MutableSequence[str], bounds: MessageBounds
) -> "AsyncGenerator[TransportStreams, None]":
    """Start the server as a process; `stderr_lines` receives its stderr. None of its processes outlives the connection."""
    path = config.env.get("PATH") or os.environ.get("PATH")
    place = Path(config.cwd or "")
    if config.cwd and not place.is_dir():
        raise Unavailable(f"there is no folder {config.cwd!r} to start it in")
    if shutil.which(config.command, path=path) is None and shutil.which(place / config.command) is None:
        raise Unavailable(f"there is no command {config.command!r}", hint="Is it installed, and on the PATH?")
    command, args = config.command, list(config.args)
    if sys.platform != "win32":  # there the SDK puts the processes into a job
        command, args = "/bin/sh", ["-c", _LAUNCH, command, *args]
    with _Stderr(stderr_lines) as stderr, ExitStack() as timers:
        try:
            async with _stdio_streams([command, *args], config, stderr.file, bounds) as streams:
                watching = asyncio.create_task(_end_with_leader(stderr))
                try:
                    yield streams
                finally:
                    # A task that is cancelled while it closes may wait for ever; a timer is not cancelled with it.
                    timers.callback(asyncio.get_running_loop().call_later(_LEAVE, stderr.kill).cancel)
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
        finally:
            await _end_group(await stderr.leader())


@asynccontextmanager
async def _stdio_streams(
    command: list[str], config: ServerConfig, errlog: TextIO, bounds: MessageBounds
) -> "AsyncGenerator[TransportStreams, None]":
    """The streams to a process; what it sends is held to the bounds. The SDK starts and ends processes on every platform."""
    import anyio
    from mcp.client import stdio
    from mcp.shared.message import SessionMessage

    start, stop = stdio._create_platform_compatible_process, stdio._stop_server_process  # pyright: ignore[reportPrivateUsage]
    process = await start(command[0], command[1:], stdio.get_default_environment() | dict(config.env), errlog, config.cwd)
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, Unavailable):
            async with to_session, closing(bounds.lines(stdout)) as lines:
                async for line in lines:
                    message = bounds.read(line)
                    await to_session.send(message)
                    if isinstance(message, Unavailable):  # it answers a request of ours, and nobody knows which
                        break
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            while True:  # a server that is stuck in writing could not end by itself
                await stdout.receive()

    async def send() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async with from_session:
                async for message in from_session:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await stdin.send(text.encode("utf-8", "replace") + b"\n")
                return
        await to_session.aclose()  # it reads no more: whoever waits for an answer must not wait for ever

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        tasks.start_soon(send)
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                incoming.close()
                outgoing.close()
                await stop(process)
            tasks.cancel_scope.cancel()


async def _end_with_leader(stderr: "_Stderr") -> None:
    """When the server itself has ended, end the processes it has started: they would hold its pipes open."""
    leader = await stderr.leader()
    while leader is not None and _runs(leader):
        await asyncio.sleep(_LOOK)
    await _end_group(leader)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs as another user
    return True


async def _end_group(leader: int | None) -> None:
    """End what is left of a group of processes."""
    if leader is None or sys.platform == "win32":
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(leader, number)
        except (ProcessLookupError, PermissionError):
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + _GRACE
        while loop.time() < until:
            await asyncio.sleep(0.02)
            try:
                os.killpg(leader, 0)
            except (ProcessLookupError, PermissionError):
                return


class _Stderr:
    """Reads a server's stderr line by line; the first line is the process id of the group's leader."""

    def __init__(self, stderr_lines: MutableSequence[str]) -> None:
        self._lines = stderr_lines
        self._leader: int | None = None
        self._known = threading.Event()

    def __enter__(self) -> "_Stderr":
        source, sink = os.pipe()
        self.file = os.fdopen(sink, "w")
        self._thread = threading.Thread(target=self._listen, args=(source,), name="callsmith-mcp-stderr", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self._thread.join(0.2)  # for the last lines; a process that has left the group may hold it open for ever

    async def leader(self) -> int | None:
        """The process id of the group's leader. It is known almost at once, but a server may end even sooner."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _LEADERLESS
        while sys.platform != "win32" and not self._known.is_set() and loop.time() < until:
            await asyncio.sleep(0.01)
        return self._leader

    def kill(self) -> None:
        """End all processes of the group at once, without waiting."""
        if self._leader is not None and sys.platform != "win32":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, signal.SIGKILL)

    def _listen(self, source: int) -> None:
        with os.fdopen(source, errors="replace") as lines:
            second = count = 0
            while line := lines.readline(_LONGEST_LINE):
                count = count + 1 if int(time.monotonic()) == second else 0
                second = int(time.monotonic())
                if count > _MOST_LINES:  # of what nobody reads the middle
                    time.sleep(second + 1 - time.monotonic() if second + 1 > time.monotonic() else 0)
                if self._leader is None and line.startswith(_PID):
                    self._leader = int(line.removeprefix(_PID))
                    self._known.set()
                else:
                    self._lines.append(line.rstrip()[:500])
        self._known.set()


def first_error(error: BaseException) -> BaseException:
    """The first error of a group of errors, however deeply nested."""
    inner = cast("Sequence[BaseException]", getattr(error, "exceptions", ()))
    return first_error(inner[0]) if inner else error
