"""The MCP servers of `--mcp-config` and `--mcp-command`."""

import asyncio
import logging
import os
import webbrowser
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from callsmith.cli.terminal.output import echo, echo_lines
from callsmith.core.approval import Verdict
from callsmith.core.errors import UsageError
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.config import ServerConfig, load_servers
from callsmith.tools.mcp.host import NO_FEATURES
from callsmith.tools.mcp.supervisor import STANDARD_REFRESH

if TYPE_CHECKING:
    from callsmith.server.settings import Mcp
    from callsmith.tools.mcp.elicitation import ClientFeatures

PATIENCE = 11.0  # seconds between two words about servers that are still starting
ONE = "mcp"  # the name of the server of --mcp-command
ASKS = (
    "MCP server {0}: each call of its tools waits for a person's approval. To run them at once: --mcp-allow='{0}_*' (or the "
    'names of some), or --mcp-trust for those that only read; in its file, "autoApprove": ["*"] or "trust": true.'
)


def servers(mcp: "Mcp") -> tuple[ServerConfig, ...]:
    """The servers of a configuration file, and the one of a command; trusted as far as the options say."""
    if mcp.args and not mcp.command:
        raise UsageError("--mcp-args goes with --mcp-command, which is missing", field="mcp.args")
    for name, value in (("trust", mcp.trust), ("allow", mcp.allow)):
        if value and not (mcp.command or mcp.config):
            raise UsageError(f"--mcp-{name} goes with --mcp-config or --mcp-command, and both are missing", field=f"mcp.{name}")
    configured = load_servers(Path(mcp.config), os.environ) if mcp.config else ()
    from_command = (ServerConfig(ONE, mcp.command, mcp.args),) if mcp.command else ()
    return tuple(_allow_tools(server, mcp) for server in (*configured, *from_command))


def _allow_tools(server: ServerConfig, mcp: "Mcp") -> ServerConfig:
    """The server, with what the options allow. A tool is meant by its own name, and by one with the server's before it."""
    names = dict.fromkeys(name for item in mcp.allow for name in (item, item.removeprefix(f"{server.name}_")))
    free: list[tuple[str, Verdict]] = [(name, "auto") for name in names]
    return replace(server, trust=server.trust or mcp.trust, approval=(*free, *server.approval))


def asking(servers: Sequence[ServerConfig]) -> list[str]:
    """For every server of whose tools none runs without a person's word: what would let them."""
    waiting = [server.name for server in servers if not server.trust and all(verdict != "auto" for _, verdict in server.approval)]
    return [ASKS.format(name) for name in waiting]


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


async def wait_until_started(host: McpHost) -> None:
    """Wait until every server is ready or has failed, and say which ones take long: a first start may install them."""
    waiting = asyncio.ensure_future(host.wait_until_settled())
    try:
        while not (await asyncio.wait({waiting}, timeout=PATIENCE))[0]:
            for status in host.status():
                if status.state == "starting":
                    echo(f"{status.name}: {'; '.join(status.notices) or 'it is starting'}", err=True, fg="yellow")
    finally:
        waiting.cancel()


async def _show(server: str, url: str) -> None:
    echo_lines(f"The MCP server {server} wants you to log in:\n  {url}", err=True, fg="yellow")
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
