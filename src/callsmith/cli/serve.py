"""`callsmith serve`: a model behind an OpenAI-compatible API."""

import signal
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from callsmith.cli.options import (
    ContextOption,
    FormatFileOption,
    FormatOption,
    ModelOption,
    NoGuardsOption,
    PolicyOption,
    TemplateOption,
    ThreadsOption,
    ToolsOption,
    TraceOption,
    alias_of,
    named_format,
)
from callsmith.core.choice import policy_named
from callsmith.core.errors import MissingExtra, Unavailable

if TYPE_CHECKING:
    from callsmith.cli.draining import Draining
    from callsmith.models.local import LocalModel

GRACE_SECONDS = 5  # how long answers may go on once the server is told to stop
EXAMPLE = """\
  curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{{
    "model": "{name}", "tool_choice": "required",
    "messages": [{{"role": "user", "content": "What is the weather in Paris?"}}],
    "tools": [{{"type": "function", "function": {{"name": "get_weather", "parameters": {{"type": "object",
      "properties": {{"city": {{"type": "string"}}}}, "required": ["city"]}}}}}}]}}'
"""


def serve(
    model: ModelOption = None,
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 takes any free one.")] = 8000,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    name: Annotated[str | None, typer.Option("--name", help="What clients call the model.", show_default=False)] = None,
    format: FormatOption = None,
    format_file: FormatFileOption = None,
    chat_template: TemplateOption = None,
    context: ContextOption = None,
    threads: ThreadsOption = None,
    tools: ToolsOption = None,
    tool_choice_policy: PolicyOption = None,
    no_guards: NoGuardsOption = False,
    trace: TraceOption = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
) -> None:
    """Serve a model. Tools given here are run by the server, for requests that bring none of their own."""
    _require("uvicorn", "starlette", "msgspec", "prometheus_client")
    from callsmith.cli.draining import Draining
    from callsmith.cli.fetching import ensure
    from callsmith.cli.toolsets import load_toolset
    from callsmith.models import Options, open_model
    from callsmith.models.catalogue import default_model
    from callsmith.runtime.trace_file import TraceFile
    from callsmith.server.app import create_app
    from callsmith.server.service import Settings

    policy = policy_named(tool_choice_policy) if tool_choice_policy else None
    toolset = load_toolset(tools) if tools else None
    recorders = (TraceFile(trace),) if trace else ()
    with _bound(host, port) as listener:
        spec = model or default_model()
        ensure(spec)
        served = open_model(spec, Options(named_format(format, format_file), chat_template, context, threads, policy))
        try:
            alias = name or alias_of(spec)
            banner = _banner(_url(host, listener.getsockname()[1]), alias, served)
            app = create_app({alias: served}, tools=toolset, settings=Settings(guards=not no_guards, recorders=recorders))
            _run(Draining(app), listener, banner, access_log)
        finally:
            served.engine.close()


def _require(*modules: str) -> None:
    if not all(map(find_spec, modules)):
        raise MissingExtra("server", "the server")


def _run(app: "Draining", listener: socket.socket, banner: str, access_log: bool) -> None:
    import asyncio

    import uvicorn

    class Server(uvicorn.Server):
        """Says when it is there, and ends answers in good order."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            typer.echo(banner)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            asyncio.get_running_loop().call_later(GRACE_SECONDS, app.stop)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level="info" if access_log else "warning",
        access_log=access_log,
        timeout_graceful_shutdown=GRACE_SECONDS + 5,  # for what does not even end when told to
    )
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        Server(config).run(sockets=[listener])
    except OSError as error:  # somebody else began to listen there while the model was being opened
        raise Unavailable(f"cannot listen: {error.strerror or error}", hint="Choose another port with --port.") from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _bound(host: str, port: int) -> socket.socket:
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
        raise Unavailable(f"cannot listen on {_url(host, port)}: {why}", hint="Choose another port with --port.") from error
    return listener


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _banner(url: str, name: str, served: "LocalModel") -> str:
    what = getattr(served.engine, "description", "") or getattr(served.engine, "name", "")
    known = f"{name} ({what}; format {served.format.name})" if what else f"{name} (format {served.format.name})"
    return f"Serving {known} at {url}/v1. Ctrl-C ends it. Try:\n\n{EXAMPLE.format(url=url, name=name)}"


def _terminated(*_: object) -> NoReturn:
    """The server has shut down and passes the signal on: that is the end, and a good one."""
    raise SystemExit(0)
