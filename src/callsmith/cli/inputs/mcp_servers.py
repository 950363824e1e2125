"""The MCP servers of `--mcp-config` and `--mcp-command`."""

import asyncio
import logging
import os
import webbrowser
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from callsmith.core.errors import UsageError
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.config import ServerConfig, load_servers
from callsmith.tools.mcp.host import NO_FEATURES
from callsmith.tools.mcp.supervisor import STANDARD_REFRESH

if TYPE_CHECKING:
    from callsmith.tools.mcp.elicitation import ClientFeatures

ONE = "mcp"  # the name of the server of --mcp-command


def servers(config: Path | str | None, command: str | None, args: Sequence[str]) -> tuple[ServerConfig, ...]:
    """The servers of a configuration file, and the one of a command."""
    if args and not command:
        raise UsageError("--mcp-args are the arguments of --mcp-command, which is missing", field="mcp.args")
    found = load_servers(Path(config), os.environ) if config else ()
    return (*found, ServerConfig(ONE, command, tuple(args))) if command else found


def make_host(
    servers: Sequence[ServerConfig], features: "ClientFeatures" = NO_FEATURES, refresh: float = STANDARD_REFRESH
) -> McpHost:
    """A host of these servers. Where a login is required, the user is shown its page."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # we report failures ourselves, without a traceback
    if not any(server.oauth for server in servers):
        return McpHost(servers, features=features, refresh=refresh)
    from callsmith.models.plugins import config_folder
    from callsmith.tools.mcp.auth import Login

    return McpHost(servers, features=features, refresh=refresh, auth=Login(config_folder() / "mcp", _show))


async def _show(server: str, url: str) -> None:
    typer.secho(f"The MCP server {server} wants you to log in:\n  {url}", err=True, fg="yellow")
    await asyncio.to_thread(webbrowser.open, url)


@contextmanager
def opened_host(
    servers: Sequence[ServerConfig], features: "ClientFeatures", runner: asyncio.Runner
) -> Generator[McpHost, None, None]:
    """A host of these servers that is closed at the end of the block."""
    host = make_host(servers, features)
    runner.run(host.__aenter__())
    try:
        yield host
    finally:
        runner.run(host.close())
