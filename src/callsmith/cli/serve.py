"""`callsmith serve`: models behind the APIs that clients know."""

import gc
import os
import signal
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from callsmith.cli.inputs.options import AliasOption, ConfigOption, SetOption, example, pairs, require_server
from callsmith.cli.inputs.setting_options import SettingsCommand, given_settings
from callsmith.cli.terminal.output import echo, echo_lines
from callsmith.core.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from callsmith.core.ports import ModelInfo
    from callsmith.core.values import Tool
    from callsmith.models.router import LazyModel
    from callsmith.runtime.telemetry.turns import Recorder
    from callsmith.server.http.shutdown import GracefulShutdown
    from callsmith.server.settings import Log, Settings
    from callsmith.server.settings_sources import EffectiveSettings, SettingsSource

GRACE_SECONDS = 5  # how long answers may go on once the server has to stop
EXAMPLE = """\
  curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{{
    "model": "{name}", "tool_choice": "required",
    "messages": [{{"role": "user", "content": "What is the weather in Paris?"}}],
    "tools": [{{"type": "function", "function": {{"name": "get_weather", "parameters": {{"type": "object",
      "properties": {{"city": {{"type": "string"}}}}, "required": ["city"]}}}}}}]}}'
"""
OWN_TOOLS = """\
  curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{{
    "model": "{name}", "tool_events": true,
    "messages": [{{"role": "user", "content": "What can you find out with your tools?"}}]}}'
"""
UNGUARDED = """\
whoever reaches {host} could use this server: it has no keys, and would run its tools for anyone.
Make a key with `callsmith keys new NAME`, listen on 127.0.0.1 only, or allow it with --open."""

app = typer.Typer()


@app.command(
    cls=SettingsCommand,
    epilog=example(
        "callsmith serve --tools mytools", "callsmith serve --model big=qwen2.5-coder-1.5b --model small=smollm2-135m"
    ),
)
def serve(
    context: typer.Context,
    config: ConfigOption = None,
    set_: SetOption = None,
    alias: AliasOption = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the settings in effect, and exit.")] = False,
    weights: Annotated[str | None, typer.Option("--w", hidden=True)] = None,
    repository: Annotated[str | None, typer.Option("--m", hidden=True)] = None,
    file: Annotated[str | None, typer.Option("--f", hidden=True)] = None,
    ui_server: Annotated[bool, typer.Option("--ui-server", hidden=True)] = True,  # the page and the cache are always there
    context_cache: Annotated[bool, typer.Option("--context-cache", hidden=True)] = True,
) -> None:
    """Serve models. Tools given here are run by the server, for requests that bring none of their own.

    Every setting can also be given in a file (--config) or in the environment (CALLSMITH_SERVER__PORT); options win.
    """
    require_server()
    from callsmith.server.settings_sources import SettingsSource

    aliases = {f"aliases.{name}": model for name, model in pairs("--alias", alias).items()}
    if file and not repository:
        raise UsageError("--f is a file of the repository that --m names, which is missing", field="llm.model")
    model = weights or (f"{repository}/{file}" if file else repository)  # as vLLM.rs spells it
    spelled = SettingsSource("--w, --m, --f", {"llm.model": model} if model else {})
    effective = load_settings(config, [spelled, *given_settings(context), SettingsSource("--alias", aliases)], set_)
    if print_config:
        from callsmith.server.settings_sources import write_settings

        echo_lines(write_settings(effective))
    else:
        _serve(effective.settings)


def load_settings(config: Path | None, options: "Sequence[SettingsSource]", more: list[str] | None) -> "EffectiveSettings":
    """Read the settings from a file, the environment and options. Without --config it is the user's own file, if there is one."""
    from callsmith.models.plugins import config_folder
    from callsmith.server.settings_sources import SettingsSource, merge_settings, read_environment, read_settings_file

    own = config_folder() / "callsmith.toml"
    file = config or (own if own.is_file() else None)
    return merge_settings(
        *([read_settings_file(file)] if file else []),
        read_environment(os.environ),
        SettingsSource("--set", pairs("--set", more), is_text=True),
        *options,
    )


def _serve(settings: "Settings") -> None:
    import asyncio
    from dataclasses import replace

    from callsmith.cli.inputs.mcp_servers import asking, make_host, servers
    from callsmith.cli.inputs.served_models import open_models
    from callsmith.cli.inputs.toolsets import load_toolset
    from callsmith.server.app import create_app
    from callsmith.server.approvals.elicitations import Elicitations
    from callsmith.server.http.shutdown import GracefulShutdown
    from callsmith.server.network.origins import is_loopback
    from callsmith.server.store import StoreLimits
    from callsmith.server.store.opening import open_store
    from callsmith.tools.mcp.elicitation import ClientFeatures

    if not (settings.keys or settings.open or is_loopback(settings.host)):
        raise UsageError(UNGUARDED.format(host=settings.host), field="server.host")
    llm = settings.llm
    toolset = load_toolset(llm.tools) if llm.tools else None
    mcp = settings.mcp
    configured = servers(mcp)
    with recorders(settings.log) as recording, bind_listener(settings.host, settings.port) as listener:
        settings = replace(settings, recorders=recording)
        models = open_models(settings)
        first = next(iter(models.values()))
        try:
            here = _tools_here(asyncio.run(toolset.tools()) if toolset else (), [item.name for item in configured])
            infos = {name: model.info for name, model in models.items()}
            banner = _banner(url_of(settings.host, listener.getsockname()[1]), infos, here, page=settings.page)
            limits = StoreLimits(bytes=settings.store_bytes)
            with closing(open_store(settings.store, limits=limits, connections=settings.store_connections)) as store:
                features = ClientFeatures(Elicitations(store, settings.approval_seconds).ask, first)
                host = make_host(configured, features, mcp.tool_refresh_seconds) if configured else None
                for line in asking(configured) if llm.tools_require_confirmation_for_side_effects else ():
                    echo(line, err=True, fg="yellow")
                app = create_app(models, tools=toolset, settings=settings, store=store, mcp=host)
                _run(GracefulShutdown(app), models, listener, banner, settings)
        finally:
            asyncio.run(_close(models))  # once more does no harm, and the server may never have begun


async def _close(models: "Mapping[str, LazyModel]") -> None:
    for model in models.values():
        await model.close()


@contextmanager
def recorders(log: "Log") -> "Generator[tuple[Recorder, ...], None, None]":
    """The recorders of turns that the settings ask for. Spans that are left are exported at the end."""
    from callsmith.runtime.telemetry.spans import Spans, tracer_provider
    from callsmith.runtime.telemetry.trace import TraceFile

    with ExitStack() as stack:
        opened: list[Recorder] = []
        if log.trace:
            opened.append(stack.enter_context(closing(TraceFile(Path(log.trace)))))
        if log.otel:
            provider = tracer_provider()
            stack.callback(provider.shutdown)
            opened.append(Spans(provider))
        yield tuple(opened)


def _run(
    app: "GracefulShutdown", models: "Mapping[str, LazyModel]", listener: socket.socket, banner: str, settings: "Settings"
) -> None:
    import asyncio

    import uvicorn

    from callsmith.server.http.logs import set_up_logging
    from callsmith.server.network.connections import limited_http, patient_websocket

    class Server(uvicorn.Server):
        """A server that prints the banner when it listens, and lets running answers end at shutdown."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            gc.freeze()  # what was made until here stays
            echo_lines(banner)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.drain()
            asyncio.get_running_loop().call_later(GRACE_SECONDS, app.stop)
            await super().shutdown(sockets)
            await _close(models)  # in this loop, to which their connections belong

    set_up_logging(settings.log)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # our own says more
        timeout_graceful_shutdown=GRACE_SECONDS + 5,  # for what does not end even then
        ws_max_size=settings.requests.body_bytes,
        ws_ping_interval=settings.websocket_ping_seconds,
        http=limited_http(settings),
        ws=patient_websocket(GRACE_SECONDS),
        timeout_keep_alive=ceil(settings.idle_seconds),
    )
    before = signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        Server(config).run(sockets=[listener])
    except OSError as error:  # somebody else began to listen there while the model was being opened
        raise Unavailable(f"cannot listen: {error.strerror or error}", hint="Choose another port with --port.") from error
    finally:
        signal.signal(signal.SIGTERM, before)


def bind_listener(host: str, port: int) -> socket.socket:
    """Bind the address before anything slow is done; nobody can connect yet."""
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
    """The URL of a server that listens there."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _tools_here(tools: "Sequence[Tool]", servers: Sequence[str]) -> str:
    """The tools that the server runs itself, in words."""
    parts = [", ".join(tool.name for tool in tools)] if tools else []
    parts += [f"those of the MCP servers {', '.join(servers)} (/health shows them)"] if servers else []
    return " and ".join(parts)


def _banner(url: str, models: "Mapping[str, ModelInfo]", here: str, *, page: bool = True) -> str:
    tools = f" Tools run here: {here}." if here else ""
    name, info = next(iter(models.items()))
    example = (OWN_TOOLS if here else EXAMPLE).format(url=url, name=name)
    chat = f"Chat with it at {url}/ in a browser. " if page else ""
    end = f"{chat}Ctrl-C ends it.{tools} Try:\n\n{example}"
    if len(models) == 1:
        placed = f" {info.placement[0].upper()}{info.placement[1:]}." if info.placement else ""
        return f"Serving {_describe(name, info)} at {url}/v1.{placed} {end}"
    listed = "".join(f"\n  {_describe(*item)}" for item in models.items())
    return f"Serving at {url}/v1, each loaded when it is first asked for:{listed}\n{end}"


def _describe(name: str, info: "ModelInfo") -> str:
    what = info.description or info.name
    return f"{name} ({what}; format {info.format})" if what else f"{name} (format {info.format})"


def _exit_on_signal(*_: object) -> NoReturn:
    """The server has shut down and re-raises the signal: exit with success."""
    raise SystemExit(0)
