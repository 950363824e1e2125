"""An application on a real socket: in this event loop, in a thread of its own, or in a process that is killed."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn

_PATIENCE = 30.0  # seconds until a server that has not come up will not


def _server(app: Any, **config: Any) -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(app, **{"port": 0, "log_level": "critical", "lifespan": "off", **config}))


def _address(server: uvicorn.Server) -> str:
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


@asynccontextmanager
async def served(app: Any, *, force: bool = False, **config: Any) -> AsyncIterator[str]:
    """The address of the application, which is served until the block is left; by force: whoever is still connected."""
    server = _server(app, **config)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not task.done(), "the server did not come up"
            await asyncio.sleep(0.01)
        yield _address(server)
    finally:
        server.should_exit, server.force_exit = True, force
        await task


@contextmanager
def served_apart(app: Any) -> Iterator[str]:
    """The same in a thread of its own: for clients that block, and for those that bring their own loop."""
    server = _server(app)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + _PATIENCE
        while not server.started:
            assert thread.is_alive() and time.monotonic() < until, "the server did not come up"
            time.sleep(0.01)
        yield _address(server)
    finally:
        server.should_exit = True
        thread.join(_PATIENCE)


_PROGRAM = """
import sys, time
from pathlib import Path

import uvicorn

from callsmith import open_model
from callsmith.server.store import leases
from callsmith.server.app import create_app
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import tool
from tests.fakes import Sourced

leases.LEASE_SECONDS = 0.6
folder, port, says, hang = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "hang"


@tool(side_effects=True)
def erase(path: str) -> str:
    with (folder / "erased").open("a") as file:
        file.write(f"{path}\\n")
    if hang:
        time.sleep(60)
    return f"erased {path}"


app = create_app(
    {"m": open_model(f"scripted:{says}")}, tools=Sourced("mcp:files", erase), store=SqliteStore(str(folder / "store.db"))
)
uvicorn.run(app, port=port, log_level="critical")
"""
ERASING = '<tool_call>\n<name>erase</name>\n<arguments>{"path": "a"}</arguments>\n</tool_call>'


@contextmanager
def killed(folder: Path, says: str, *, hang: bool = False) -> Iterator[str]:
    """The address of a server in a process of its own, which is then killed. What it keeps is in the folder.

    Its model always says the same. Its one tool, of an MCP server "files", writes into the file `erased` what it erases; it
    may hang then.
    """
    arguments = [str(folder), "PORT", says, "hang" if hang else ""]
    with killed_program(_PROGRAM, *arguments) as url:
        yield url


@contextmanager
def killed_program(program: str, *arguments: str, port: int | None = None) -> Iterator[str]:
    """The address of a server that a program runs, which is then killed. PORT, in it or an argument, is where it listens: any
    free one unless one is given."""
    port = port or free_port()
    command = [sys.executable, "-c", *(part.replace("PORT", str(port)) for part in (program, *arguments))]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1]) as server:
        try:
            _until_it_listens(server, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()
    assert server.returncode == -signal.SIGKILL


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _until_it_listens(server: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert server.poll() is None and time.monotonic() < until, "the server did not come up"
            time.sleep(0.05)
