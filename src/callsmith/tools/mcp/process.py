"""A server as a process of ours: started, listened to, and ended with everything it has started itself."""

import asyncio
import os
import shutil
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from callsmith.core.errors import Unavailable
from callsmith.tools.mcp.config import ServerConfig

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_GRACE = 1.0  # seconds between asking what is left of a server to end and ending it
_LINES = 20  # of what a server has written to stderr
_PID = "callsmith-pid "
_LAUNCH = f'echo "{_PID}$$" >&2; exec "$0" "$@"'  # the first line says who leads the group of processes


@asynccontextmanager
async def process_streams(config: ServerConfig) -> "AsyncGenerator[TransportStreams, None]":
    """The server as a process of ours. Nothing it has started outlives the connection."""
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    path = config.env.get("PATH") or os.environ.get("PATH")
    if shutil.which(config.command, path=path) is None:
        raise Unavailable(f"there is no command {config.command!r}", hint="Is it installed, and on the PATH?")
    command, args = config.command, list(config.args)
    if sys.platform != "win32":  # there the SDK puts the processes into a job
        command, args = "/bin/sh", ["-c", _LAUNCH, command, *args]
    parameters = StdioServerParameters(command=command, args=args, env=dict(config.env), cwd=config.cwd)
    with _Words() as words:
        try:
            async with stdio_client(parameters, errlog=words.file) as streams:
                yield streams
        except Exception as error:
            raise Unavailable(f"{first_of(error)}{words.told()}") from error
        finally:
            await _end_group(words.leader)


async def _end_group(leader: int | None) -> None:
    """End what is left of a group of processes."""
    if leader is None or sys.platform == "win32":
        return
    for number, wait in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, 0.0)):
        try:
            os.killpg(leader, number)
        except (ProcessLookupError, PermissionError):
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while loop.time() < until:
            await asyncio.sleep(0.02)
            try:
                os.killpg(leader, 0)
            except (ProcessLookupError, PermissionError):
                return


class _Words:
    """What a server writes to stderr: the last lines of it, and in the first who leads its processes."""

    def __init__(self) -> None:
        self.leader: int | None = None
        self._lines: deque[str] = deque(maxlen=_LINES)

    def __enter__(self) -> "_Words":
        source, sink = os.pipe()
        self.file = os.fdopen(sink, "w")
        self._thread = threading.Thread(target=self._listen, args=(source,), name="callsmith-mcp-stderr", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def told(self) -> str:
        self.file.close()
        self._thread.join(0.2)  # for its last words
        return "\n" + "\n".join(self._lines) if self._lines else ""

    def _listen(self, source: int) -> None:
        with os.fdopen(source, errors="replace") as lines:
            for line in lines:
                if self.leader is None and line.startswith(_PID):
                    self.leader = int(line.removeprefix(_PID))
                else:
                    self._lines.append(line.rstrip()[:500])


def first_of(error: BaseException) -> BaseException:
    """Of errors in groups the first that says something."""
    inner = cast("Sequence[BaseException]", getattr(error, "exceptions", ()))
    return first_of(inner[0]) if inner else error
