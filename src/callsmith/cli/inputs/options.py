"""Options that several commands have."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from callsmith.core.errors import MissingExtra, UnknownName, UsageError

if TYPE_CHECKING:
    from callsmith.formats.algebra import Format

ModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="CALLSMITH_MODEL",
        help="A name of `callsmith models`, a GGUF file, org/repo/file.gguf on a hub, or scripted:TEXT. "
        "Default: the first of the catalogue.",
        show_default=False,
    ),
]
FormatOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--format", "-f", help="How the model writes calls, if not as its template shows.", show_default=False),
]
FormatFileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--format-file", exists=True, dir_okay=False, help="A format of your own, as TOML; used unless --format names another."
    ),
]
TemplateOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--chat-template", exists=True, dir_okay=False, help="A chat template instead of the model's own."),
]
ContextOption: TypeAlias = Annotated[
    int | None, typer.Option("--context", min=1, help="Tokens that prompt and answer may have together.", show_default=False)
]
ThreadsOption: TypeAlias = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads to compute with.", show_default=False)
]
TraceOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        dir_okay=False,
        help="Append what became of each turn to this file, for `callsmith tools report`; without arguments, results and texts.",
    ),
]
ToolsOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--tools", help="demo, or module:attribute, or a module with @tool functions.", show_default=False),
]
ToolsBudgetOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--tools-budget",
        min=0,
        help="Tokens that the definitions of tools may take; the model has to find what is beyond. 0: any number. "
        "Default: a quarter of its context.",
        show_default=False,
    ),
]
McpConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--mcp-config", dir_okay=False, help="A file with mcpServers, in JSON or TOML.", show_default=False),
]
McpCommandOption: TypeAlias = Annotated[
    str | None, typer.Option("--mcp-command", help="The command of one MCP server.", show_default=False)
]
McpArgsOption: TypeAlias = Annotated[
    str | None, typer.Option("--mcp-args", help="Its arguments, separated by commas.", show_default=False)
]
McpRefreshOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--mcp-tool-refresh-seconds",
        min=1,
        help="Between looks at their tools. Default: 30.",
        show_default=False,
    ),
]
PolicyOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tool-choice-policy",
        help="Where the model may choose: auto leaves it alone, required_first_hop makes it call a tool until a result is there, "
        "required_always always.",
        show_default=False,
    ),
]
NoGuardsOption: TypeAlias = Annotated[
    bool, typer.Option("--no-guards", help="Leave a small model without its safety net against loops and copied answers.")
]

ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", exists=True, dir_okay=False, help="Settings as TOML. Default: callsmith.toml in the config folder."
    ),
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting, as in --set server.request_seconds=60.", show_default=False),
]


def require_server() -> None:
    """Complain if the server's part of callsmith is not installed."""
    if not all(map(find_spec, ("uvicorn", "starlette", "msgspec", "prometheus_client"))):
        raise MissingExtra("server", "the server")


def pairs(texts: list[str]) -> dict[str, str]:
    """`["a.b=1"]` → `{"a.b": "1"}`."""
    for text in texts:
        if "=" not in text:
            raise UsageError(f"--set {text}: expected NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in texts)}


def named_format(name: str | None, file: Path | None) -> str | None:
    """The name of the format to use. One in a file of the user's own is made known first."""
    if file is None:
        return name
    from callsmith.models.plugins import register_file

    made = register_file(file)
    return name or made.name


def alias_of(spec: str) -> str:
    """What a model is called when nobody says: its name in the catalogue, or its file's."""
    scheme, _, rest = spec.partition(":")
    if scheme == "scripted":
        return scheme
    return Path(rest or spec).stem if spec.endswith(".gguf") else spec


def find_format(name: str) -> "Format":
    """A format by its name. Plug-ins cannot take the names of others, so they are looked at only for names nobody else has."""
    from callsmith.formats import format_named

    try:
        return format_named(name)
    except UnknownName:
        from callsmith.models.plugins import load_formats

        load_formats()
        return format_named(name)
