"""`callsmith mcp`: your tools as an MCP server, for other hosts."""

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.inputs.options import example
from callsmith.cli.inputs.setting_options import SettingsCommand, settings_of
from callsmith.cli.terminal.output import echo
from callsmith.core.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from starlette.exceptions import HTTPException
    from starlette.types import Receive, Scope, Send

    from callsmith.core.ports import Context, Toolset
    from callsmith.core.values import Call
    from callsmith.runtime.jobs.jobs import Jobs
    from callsmith.server.settings import Settings
    from callsmith.tools.mcp.serving.server import ToolEvent

UNGUARDED = """\
whoever reaches {host} could call these tools: nobody is asked for a key.
Listen on 127.0.0.1 only, put an authenticating proxy before it, or allow it with --open."""

app = typer.Typer()


class McpCommand(SettingsCommand):
    """`callsmith mcp`, with the options for the tools and for who may reach them."""

    only = ("llm.tools", "server.store", "server.open", "server.allowed_hosts", "server.cors_origins")


@app.command(
    cls=McpCommand, epilog=example("callsmith mcp --tools mytools", "callsmith mcp --tools mytools --http 127.0.0.1:8001")
)
def mcp(
    context: typer.Context,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve over HTTP, at /mcp, instead of standard input and output."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Run calls that have side effects without asking: the host does that.")
    ] = False,
) -> None:
    """Offer tools to other MCP hosts: over standard input and output, where nothing but the protocol is written, or over HTTP.

    A call that has side effects is asked about through the host, if it can ask its user, and else refused. Tools that are
    marked as background ones are offered as tasks; with --store these survive a restart.
    """
    if not find_spec("mcp"):
        raise MissingExtra("mcp", "an MCP server")
    import asyncio
    from importlib.metadata import version

    from callsmith.cli.inputs.toolsets import load_toolset
    from callsmith.runtime.jobs.job import STANDARD_JOB_LIMITS
    from callsmith.runtime.jobs.jobs import Jobs
    from callsmith.server.jobs import StoredJobs
    from callsmith.server.store.opening import open_store
    from callsmith.tools.mcp.serving.server import ToolsetServer, over_stdio
    from callsmith.tools.mcp.serving.tasks import ServedTasks
    from callsmith.tools.wrap import Confirmed

    settings = settings_of(context)
    with _divert_output():
        toolset = load_toolset(settings.llm.tools or "demo")
    asks = yes or isinstance(toolset, Confirmed)
    with closing(open_store(settings.store)) as store:
        jobs = Jobs(StoredJobs(store, STANDARD_JOB_LIMITS))
        server = ToolsetServer(
            toolset if asks else Confirmed(toolset),
            happening,
            version=version("callsmith"),
            # Over HTTP nobody knows who asks: there a task is found by its id alone, which cannot be guessed.
            tasks=ServedTasks(jobs, STANDARD_JOB_LIMITS.stored_seconds, lists=http is None),
            lifespan=partial(_keep_jobs, jobs),
        ).server()
        if http is None:
            asyncio.run(over_stdio(server))
        else:
            _over_http(server, http, settings)


@asynccontextmanager
async def _keep_jobs(jobs: "Jobs", toolset: "Toolset") -> "AsyncGenerator[None, None]":
    """Take up jobs whose server was stopped, and leave to the next one what may go on."""
    import asyncio

    from callsmith.server.jobs import look_repeatedly

    looking = asyncio.create_task(look_repeatedly(lambda: jobs.take_over("", toolset)))
    try:
        yield
    finally:
        looking.cancel()
        await jobs.close()


@contextmanager
def _divert_output() -> Generator[None, None, None]:
    """Redirect standard output to standard error, also of child processes: on stdio only the protocol may be written."""
    sys.stdout.flush()
    line = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(line, 1)
        os.close(line)


async def happening(toolset: "Toolset", call: "Call", context: "Context") -> "AsyncIterator[ToolEvent]":
    """Run one call; its events."""
    from callsmith.core.closing import closing
    from callsmith.runtime.execute import STANDARD_LIMITS, Round
    from callsmith.runtime.nesting import nested_context

    tools = {tool.name: tool for tool in await toolset.tools()}
    work = Round([call], tools, toolset, STANDARD_LIMITS)
    async with closing(work.run(nested_context(context, STANDARD_LIMITS.iterations))) as events:
        async for event in events:
            yield event


def _over_http(server: Any, address: str, settings: "Settings") -> None:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from callsmith.cli.serve import bind_listener, url_of
    from callsmith.server.network.connections import limited_http
    from callsmith.server.network.origins import OriginMiddleware, is_loopback
    from callsmith.tools.mcp.serving.server import PATH

    host, port = _address(address)
    if not settings.open and not is_loopback(host):
        raise UsageError(UNGUARDED.format(host=host), field="http")
    app = OriginMiddleware(
        server.streamable_http_app(host="", streamable_http_path=PATH),  # "": its own checks know fewer names than ours
        _refuse,
        host=host,
        hosts=settings.allowed_hosts,
        origins=settings.cors_origins,
    )
    with bind_listener(host, port) as listener:
        listener.listen()  # whoever connects from now on is answered as soon as the server runs
        echo(f"Tools are at {url_of(host, listener.getsockname()[1])}{PATH}. Ctrl-C ends it.")
        # Of the parsers only h11 takes the white space around a header for no part of it, as the protocol wants it.
        config = uvicorn.Config(app, http=limited_http(settings, H11Protocol), log_level="warning", timeout_graceful_shutdown=3)
        uvicorn.Server(config).run(sockets=[listener])


async def _refuse(scope: "Scope", receive: "Receive", send: "Send", error: "HTTPException") -> None:
    from starlette.responses import PlainTextResponse

    await PlainTextResponse(error.detail, error.status_code)(scope, receive, send)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--http {text}: expected HOST:PORT, as in 127.0.0.1:8001")
    return host.strip("[]") or "127.0.0.1", int(port)
