"""`--mcp-config` and `--mcp-command`: the MCP servers that are meant."""

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from callsmith.core.errors import UsageError
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.config import ServerConfig, load_servers

if TYPE_CHECKING:
    from callsmith.server.settings import Mcp
    from callsmith.tools.mcp.questions import Answering

ONE = "mcp"  # what the server of --mcp-command is called


def configured(mcp: "Mcp") -> tuple[ServerConfig, ...]:
    """The servers of the settings."""
    return servers(mcp.config and Path(mcp.config), mcp.command, mcp.args)


def servers(config: Path | str | None, command: str | None, args: Sequence[str]) -> tuple[ServerConfig, ...]:
    """The servers of a file, and the one of a command."""
    if args and not command:
        raise UsageError("--mcp-args are the arguments of --mcp-command, which is missing", field="mcp.args")
    found = load_servers(Path(config), os.environ) if config else ()
    return (*found, ServerConfig(ONE, command, tuple(args))) if command else found


def split(args: str | None) -> list[str]:
    """What --mcp-args says."""
    return [part for part in (args or "").split(",") if part]


@contextmanager
def opened_host(
    servers: Sequence[ServerConfig], answering: "Answering", runner: asyncio.Runner
) -> Generator[McpHost, None, None]:
    """A host of these servers, for as long as the block takes."""
    host = McpHost(servers, answering=answering)
    runner.run(host.__aenter__())
    try:
        yield host
    finally:
        runner.run(host.close())
