"""What the tests of the host share: a configuration of the plain server, and calls."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from callsmith.core.events import ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result
from callsmith.tools.mcp import McpHost, ServerConfig, Status
from tests.tools.contract import outcome

PLAIN = Path(__file__).with_name("plain.py")


def plain(name: str = "plain", *, options: dict[str, Any] | None = None, **config: Any) -> ServerConfig:
    """The plain server, told how to behave."""
    return ServerConfig(name, sys.executable, ("-I", "-S", str(PLAIN), json.dumps(options or {})), **config)


async def call(host: McpHost, name: str, **arguments: Any) -> Result:
    return (await called(host, name, **arguments))[1]


async def called(host: McpHost, name: str, **arguments: Any) -> tuple[list[ToolProgress], Result]:
    return await outcome(host.call(Call(name, arguments, "c1"), Context()))  # type: ignore[arg-type]


def status(host: McpHost, name: str = "plain") -> Status:
    return next(server_status for server_status in host.status() if server_status.name == name)


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        pass
    if Path("/proc/self").exists():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def noted(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
