"""`callsmith serve`: a model behind the APIs that clients know."""

import os
import signal
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from callsmith.cli.inputs.options import (
    ConfigOption,
    ContextOption,
    FormatFileOption,
    FormatOption,
    McpArgsOption,
    McpCommandOption,
    McpConfigOption,
    McpRefreshOption,
    ModelOption,
    NoGuardsOption,
    PolicyOption,
    SetOption,
    TemplateOption,
    ThreadsOption,
    ToolsOption,
    TraceOption,
    alias_of,
    named_format,
    require_server,
)
from callsmith.core.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from callsmith.models.local import LocalModel
    from callsmith.server.http.shutdown import Draining
    from callsmith.server.settings import Effective, Settings

GRACE_SECONDS = 5  # how long answers may go on once the server is told to stop
EXAMPLE = """\
  curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{{
    "model": "{name}", "tool_choice": "required",
    "messages": [{{"role": "user", "content": "What is the weather in Paris?"}}],
    "tools": [{{"type": "function", "function": {{"name": "get_weather", "parameters": {{"type": "object",
      "properties": {{"city": {{"type": "string"}}}}, "required": ["city"]}}}}}}]}}'
"""
UNGUARDED = """\
warning: whoever reaches {host} can use this server: it asks for no key, and runs its tools for anyone.
Make a key with `callsmith keys new NAME`, or listen on 127.0.0.1 only."""


def serve(
    model: ModelOption = None,
    port: Annotated[
        int | None,
        typer.Option("--port", "-p", min=0, max=65535, help="0: any free one. Default: 8000.", show_default=False),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="The address to listen on. Default: 127.0.0.1.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What clients call the model.", show_default=False)] = None,
    format: FormatOption = None,
    format_file: FormatFileOption = None,
    chat_template: TemplateOption = None,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", min=1, help="Answers made at once; they share the context. Default: 8.", show_default=False
        ),
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option(
            "--queue",
            min=1,
            help="Answers that may be under way or wait for their turn; more are refused (429). Default: 64.",
            show_default=False,
        ),
    ] = None,
    tools: ToolsOption = None,
    mcp_config: McpConfigOption = None,
    mcp_command: McpCommandOption = None,
    mcp_args: McpArgsOption = None,
    mcp_tool_refresh_seconds: McpRefreshOption = None,
    tool_choice_policy: PolicyOption = None,
    no_guards: NoGuardsOption = False,
    trace: TraceOption = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
    log_format: Annotated[
        str | None, typer.Option("--log-format", help="text, or json: a JSON object a line.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the settings in effect, and exit.")] = False,
) -> None:
    """Serve a model. Tools given here are run by the server, for requests that bring none of their own.

    Everything can also be said in a file (--config) or in the environment (CALLSMITH_SERVER__PORT); flags win.
    """
    require_server()
    from callsmith.cli.inputs.mcp_servers import split

    flags = {
        "server.host": ("--host", host),
        "server.port": ("--port", port),
        "server.queue": ("--queue", queue),
        "server.guards": ("--no-guards", False if no_guards else None),
        "llm.model": ("--model", model),
        "llm.name": ("--name", name),
        "llm.format": ("--format", format),
        "llm.format_file": ("--format-file", format_file and str(format_file)),
        "llm.chat_template": ("--chat-template", chat_template and str(chat_template)),
        "llm.context": ("--context", context),
        "llm.threads": ("--threads", threads),
        "llm.concurrency": ("--concurrency", concurrency),
        "llm.tools": ("--tools", tools),
        "mcp.config": ("--mcp-config", mcp_config and str(mcp_config)),
        "mcp.command": ("--mcp-command", mcp_command),
        "mcp.args": ("--mcp-args", None if mcp_args is None else split(mcp_args)),
        "mcp.tool_refresh_seconds": ("--mcp-tool-refresh-seconds", mcp_tool_refresh_seconds),
        "llm.tool_choice_policy": ("--tool-choice-policy", tool_choice_policy),
        "log.trace": ("--trace", trace and str(trace)),
        "log.access": ("--access-log", access_log or None),
        "log.format": ("--log-format", log_format),
    }
    effective = load_settings(config, flags, set_ or [])
    if print_config:
        from callsmith.server.settings import written

        typer.echo(written(effective))
    else:
        _serve(effective.settings)


def load_settings(config: Path | None, flags: dict[str, tuple[str, Any]], more: list[str]) -> "Effective":
    """The settings of file, environment and flags. Without --config the file is the user's own, if there is one."""
    from callsmith.cli.inputs.options import pairs
    from callsmith.models.plugins import config_folder
    from callsmith.server.settings import Source, from_environment, from_file, settings_from

    own = config_folder() / "callsmith.toml"
    file = config or (own if own.is_file() else None)
    given = [Source(flag, {name: value}) for name, (flag, value) in flags.items() if value is not None]
    return settings_from(
        *([from_file(file)] if file else []),
        from_environment(os.environ),
        Source("--set", pairs(more), text=True),
        *given,
    )


def _serve(settings: "Settings") -> None:
    from contextlib import closing
    from dataclasses import replace

    from callsmith.cli.inputs.mcp_servers import host_of, servers
    from callsmith.cli.inputs.toolsets import load_toolset
    from callsmith.cli.terminal.fetching import ensure
    from callsmith.models.weights.catalogue import default_model
    from callsmith.runtime.telemetry.trace_file import TraceFile
    from callsmith.server.app import create_app
    from callsmith.server.approvals.elicitation import Elicitations
    from callsmith.server.http.shutdown import Draining
    from callsmith.server.store import SqliteStore
    from callsmith.tools.mcp.elicitation import Answering

    llm = settings.llm
    toolset = load_toolset(llm.tools) if llm.tools else None
    mcp = settings.mcp
    asked = servers(mcp.config, mcp.command, mcp.args)
    settings = replace(settings, recorders=(TraceFile(Path(settings.log.trace)),) if settings.log.trace else ())
    with bound(settings.host, settings.port) as listener:
        if not settings.keys and not is_loopback(settings.host):
            typer.secho(UNGUARDED.format(host=settings.host), err=True, fg="yellow")
        spec = llm.model or default_model()
        ensure(spec)
        served = opened(spec, settings)
        try:
            alias = llm.name or alias_of(spec)
            banner = _banner(url_of(settings.host, listener.getsockname()[1]), alias, served)
            with closing(SqliteStore(settings.store or ":memory:")) as store:
                answering = Answering(Elicitations(store, settings.approval_seconds).ask, served)
                host = host_of(asked, answering, mcp.tool_refresh_seconds) if asked else None
                app = create_app({alias: served}, tools=toolset, settings=settings, store=store, mcp=host)
                _run(Draining(app), listener, banner, settings)
        finally:
            served.engine.close()


def opened(spec: str, settings: "Settings") -> "LocalModel":
    """The model as the settings want it."""
    from callsmith.models import Options, open_model

    llm = settings.llm
    format = named_format(llm.format, Path(llm.format_file) if llm.format_file else None)
    template = Path(llm.chat_template) if llm.chat_template else None
    if template and not template.is_file():
        raise UsageError(f"there is no chat template at {template}", field="llm.chat_template")
    options = Options(
        format=format,
        template=template,
        context=llm.context,
        threads=llm.threads,
        policy=llm.tool_choice_policy,
        live=llm.concurrency,
        queue=settings.queue,
    )
    return open_model(spec, options)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _run(app: "Draining", listener: socket.socket, banner: str, settings: "Settings") -> None:
    import asyncio

    import uvicorn

    from callsmith.server.http.logs import set_up

    class Server(uvicorn.Server):
        """Says when it is there, and ends answers in good order."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            typer.echo(banner)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.leave()
            asyncio.get_running_loop().call_later(GRACE_SECONDS, app.stop)
            await super().shutdown(sockets)

    set_up(settings.log)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # our own says more
        timeout_graceful_shutdown=GRACE_SECONDS + 5,  # for what does not even end when told to
    )
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        Server(config).run(sockets=[listener])
    except OSError as error:  # somebody else began to listen there while the model was being opened
        raise Unavailable(f"cannot listen: {error.strerror or error}", hint="Choose another port with --port.") from error
    finally:
        signal.signal(signal.SIGTERM, before)


def bound(host: str, port: int) -> socket.socket:
    """The address, taken before anything slow is done; nobody can connect yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Unavailable(f"cannot listen on {host}: {error.strerror or error}", hint="Choose another --host.") from error
    if hasattr(socket, "SO_REUSEPORT"):  # where there is no such thing (Windows), SO_REUSEADDR would let two servers share a port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        why = error.strerror or str(error)
        raise Unavailable(f"cannot listen on {url_of(host, port)}: {why}", hint="Choose another port with --port.") from error
    return listener


def url_of(host: str, port: int) -> str:
    """Where a server is found that listens there."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _banner(url: str, name: str, served: "LocalModel") -> str:
    what = getattr(served.engine, "description", "") or getattr(served.engine, "name", "")
    known = f"{name} ({what}; format {served.format.name})" if what else f"{name} (format {served.format.name})"
    return f"Serving {known} at {url}/v1. Ctrl-C ends it. Try:\n\n{EXAMPLE.format(url=url, name=name)}"


def _terminated(*_: object) -> NoReturn:
    """The server has shut down and passes the signal on: that is the end, and a good one."""
    raise SystemExit(0)
