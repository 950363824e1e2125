"""`callsmith tools`: what tools cost to offer, how well models choose among them, and what else MCP servers have."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from callsmith.cli.inputs.options import example, make_group
from callsmith.cli.inputs.setting_options import SettingsCommand, settings_of
from callsmith.cli.terminal.output import echo, echo_json, echo_lines, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from callsmith.core.values import Tool
    from callsmith.runtime.telemetry.summary import Selection
    from callsmith.runtime.telemetry.trace import ToolCounts
    from callsmith.tools.mcp import McpHost, Status

app = make_group(
    "tools", "What tools cost, and how well they are chosen.", "callsmith tools list --tools mytools", needs_command=True
)

T = TypeVar("T")
JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]

COUNTS = ("offered", "called", "invalid", "repaired", "declined", "failed", "timeouts", "cached")


class ListToolsCommand(SettingsCommand):
    """`callsmith tools list`, with the options that name tools."""

    only = ("llm.tools", "mcp.config", "mcp.command", "mcp.args", "mcp.trust", "mcp.allow")


@app.command("list", cls=ListToolsCommand, epilog=example("callsmith tools list --tools mytools --mcp-config mcp.json"))
def list_tools(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Count the tokens of this model instead of estimating.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    accept: Annotated[
        bool, typer.Option("--accept", help='Accept the tools of MCP servers with "pin" as they are defined now.')
    ] = False,
) -> None:
    """List tools with their side effects, and how many tokens it takes to offer each: an estimate, unless a model is given."""
    import asyncio

    from callsmith.cli.inputs.mcp_servers import make_host, servers, wait_until_started
    from callsmith.cli.inputs.toolsets import load_toolset
    from callsmith.tools.pins import Pins

    logging.getLogger("callsmith.tools.mcp").setLevel(logging.ERROR)  # the state of the servers is printed below

    settings = settings_of(context)
    tools, mcp = settings.llm.tools, settings.mcp

    async def list_all() -> tuple[list["Tool"], tuple["Status", ...]]:
        configured = servers(mcp)
        for item in configured:
            if accept and item.pins:
                Pins(Path(item.pins), item.name).forget()
        own = [] if configured and tools is None else list(await load_toolset(tools or "demo").tools())
        async with make_host(configured) as host:
            await wait_until_started(host)
            return [*own, *await host.tools()], host.status()

    offered, states = asyncio.run(list_all())
    for status in states:
        _print_status(status)
    costs = _estimate(offered) if model is None else _count(offered, model)
    rows = [_row(tool, costs.each[tool.name]) for tool in offered]
    if as_json:
        echo_json(rows)
    else:
        _print_tools(rows, costs)
    if any(status.state == "failed" for status in states):
        raise typer.Exit(1)


class McpMaterialCommand(SettingsCommand):
    """A command about what MCP servers have besides tools."""

    only = ("mcp.config", "mcp.command", "mcp.args")


ServerOption = Annotated[str | None, typer.Option("--server", help="Of this server only.", show_default=False)]


@app.command("resources", cls=McpMaterialCommand, epilog=example("callsmith tools resources --mcp-config mcp.json"))
def show_resources(
    context: typer.Context,
    uri: Annotated[str | None, typer.Argument(help="Print this resource.", show_default=False)] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the resources of MCP servers, and the templates of some; or print one."""
    from dataclasses import asdict

    from callsmith.cli.inputs.mcp_material import list_resources, read_resource

    if uri is not None:
        contents = _ask_servers(context, lambda host: read_resource(host, uri, server))
        if as_json:
            echo_json([asdict(item) for item in contents])
        else:
            echo_lines("\n".join(item.described for item in contents))
        return
    resources, notices = _ask_servers(context, lambda host: list_resources(host, server))
    if as_json:
        echo_json([asdict(resource) for resource in resources])
    else:
        _print_entries("resource", [(item.server, item.uri, item.description or item.name) for item in resources])
    _print_notices(notices)


@app.command(
    "prompts", cls=McpMaterialCommand, epilog=example("callsmith tools prompts review language=Python --mcp-config mcp.json")
)
def show_prompts(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Print this prompt.", show_default=False)] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="Its arguments: NAME=VALUE.", show_default=False)] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the prompts that MCP servers have written; or print one."""
    from dataclasses import asdict

    from callsmith.cli.inputs.mcp_material import get_prompt, list_prompts, usage

    if name is not None:
        text = _ask_servers(context, lambda host: get_prompt(host, name, arguments or (), server))
        if as_json:
            echo_json({"text": text})
        else:
            echo_lines(text)
        return
    prompts, notices = _ask_servers(context, lambda host: list_prompts(host, server))
    if as_json:
        echo_json([asdict(prompt) for prompt in prompts])
    else:
        _print_entries("prompt", [(item.server, usage(item), item.description) for item in prompts])
    _print_notices(notices)


def _ask_servers(context: typer.Context, ask: "Callable[[McpHost], Coroutine[Any, Any, T]]") -> "T":
    """Start the MCP servers that are configured, and ask them something."""
    import asyncio

    from callsmith.cli.inputs.mcp_servers import make_host, servers, wait_until_started
    from callsmith.core.errors import UsageError

    logging.getLogger("callsmith.tools.mcp").setLevel(logging.ERROR)  # what fails is told below

    async def run() -> "T":
        if not (configured := servers(settings_of(context).mcp)):
            raise UsageError("which MCP servers? --mcp-config FILE or --mcp-command PROGRAM", field="mcp.config")
        async with make_host(configured) as host:
            await wait_until_started(host)
            return await ask(host)

    return asyncio.run(run())


def _print_entries(what: str, entries: list[tuple[str, str, str]]) -> None:
    from rich.text import Text

    if entries:
        lines: list[tuple[str | Text, ...]] = []
        lines += [(Text(name, "bold"), Text(server), Text(_short(about))) for server, name, about in entries]
        print_table((what, "server", "what it is"), lines)
    else:
        echo(f"There are no {what}s.")


def _print_notices(notices: list[str]) -> None:
    for notice in notices:
        echo(notice, err=True, fg="yellow")


@app.command("report", epilog=example("callsmith tools report --trace trace.jsonl"))
def report_tools(
    trace: Annotated[
        Path, typer.Option("--trace", exists=True, dir_okay=False, help="What `serve --trace` or `chat --trace` has written.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Tell from recorded turns which tools are never called, which are called wrongly, and which are mistaken for others."""
    from callsmith.runtime.telemetry.summary import report
    from callsmith.runtime.telemetry.trace import read_trace

    lines = list(read_trace(trace))
    turns = [turn for turn in lines if turn is not None]
    if lost := len(lines) - len(turns):
        echo(f"{lost} of {len(lines)} lines are no turns and were passed over", err=True, fg="yellow")
    selection = report(turns)
    if as_json:
        echo_json(_as_json(selection))
        return
    _print_report(selection)


def _short(text: str) -> str:
    """A sentence, or what fits a line."""
    sentence = text.partition(". ")[0]
    return sentence if len(sentence) <= 80 else f"{sentence[:79]}…"


def _print_status(status: "Status") -> None:
    """Print the state of an MCP server to stderr."""
    who = f" ({status.server}, protocol {status.protocol})" if status.protocol else ""
    failed = status.state == "failed"
    echo(f"{status.name}: {status.state}{who}", err=True, fg="red" if failed else None)
    for line in (*status.error.splitlines(), *status.notices):
        echo(f"  {line}", err=True, fg="red" if failed else "yellow")


@dataclass(frozen=True, slots=True)
class _Costs:
    """The tokens of tools: each by its name, and all. `by` is the model whose tokenizer counted them, if one did."""

    each: dict[str, int]
    whole: int
    by: str = ""


def _estimate(tools: list["Tool"]) -> _Costs:
    from callsmith.runtime.discovery import definition_text
    from callsmith.runtime.telemetry.trace import estimate_tokens

    each = {tool.name: estimate_tokens(len(definition_text(tool))) for tool in tools}
    return _Costs(each, sum(each.values()))


def _count(tools: list["Tool"], spec: str) -> _Costs:
    """Count each tool's tokens beside another tool, so that the frame around all tools is not counted."""
    import asyncio

    from callsmith.cli.terminal.fetching import ensure
    from callsmith.core.values import Tool
    from callsmith.models import open_model
    from callsmith.runtime.discovery import count_tokens

    async def count() -> _Costs:
        opened = open_model(spec)
        try:
            first = Tool("first", "Comes before it.")
            alone = await count_tokens(opened, [first])
            each = {tool.name: await count_tokens(opened, [first, tool]) - alone for tool in tools}
            return _Costs(each, await count_tokens(opened, tools), spec)
        finally:
            await opened.close()

    ensure(spec)
    return asyncio.run(count())


def _print_tools(rows: list[dict[str, Any]], costs: _Costs) -> None:
    from rich.text import Text

    about = "" if costs.by else "~"
    lines = [
        (
            Text(row["name"], "bold"),
            Text(", ".join(row["arguments"])),
            _effects(row),
            f"{about}{row['tokens']}",
            Text(_short(row["summary"])),
        )
        for row in rows
    ]
    print_table(("tool", "arguments", "side effects", "tokens", "what it does"), lines)
    for source in dict.fromkeys(row["source"] for row in rows):
        own = [row["tokens"] for row in rows if row["source"] == source]
        echo(f"{source or 'others'}: {len(own)} tools, {about}{sum(own)} tokens")
    how = (
        f"{costs.whole} tokens of every prompt ({costs.by})"
        if costs.by
        else f"about {costs.whole} tokens of every prompt (an estimate)"
    )
    echo(f"{len(rows)} tools, {how}.")


def _row(tool: "Tool", tokens: int) -> dict[str, Any]:
    return {
        "name": tool.name,
        "arguments": list(tool.parameters.get("properties", ())),
        "summary": tool.description.partition("\n")[0],
        "side_effects": tool.side_effects,
        "idempotent": tool.idempotent,
        "source": tool.source,
        "tokens": tokens,
    }


def _effects(row: dict[str, Any]) -> str:
    if not row["side_effects"]:
        return "no"
    return "yes, but may be repeated" if row["idempotent"] else "yes"


def _print_report(selection: "Selection") -> None:
    from rich.text import Text

    lines = [
        (Text(name, "bold"), *(str(getattr(counts, count)) for count in COUNTS), _mean(counts), f"~{counts.tokens}")
        for name, counts in selection.tools.items()
    ]
    echo(f"{selection.turns} turns")
    if lines:
        print_table(("tool", *COUNTS, "mean time", "tokens"), lines)
    echo(f"Never called: {', '.join(selection.never_called) or 'none'}")
    echo(f"Often invalid: {', '.join(selection.often_invalid) or 'none'}")
    echo("Confused:" if selection.confused else "Confused: none")
    for item in selection.confused:
        how = (
            f"there is no {item.tool}; {item.other} is meant" if item.why == "name" else f"{item.tool} in vain, then {item.other}"
        )
        echo(f"  {how} ({item.times} ×)")


def _mean(counts: "ToolCounts") -> str:
    ran = sum(counts.seconds.counts)
    return f"{counts.seconds.total / ran:.3f} s" if ran else ""


def _as_json(selection: "Selection") -> dict[str, Any]:
    return {
        "turns": selection.turns,
        "tools": {
            name: {count: getattr(counts, count) for count in COUNTS}
            | {"outcomes": counts.outcomes, "seconds": round(counts.seconds.total, 6), "tokens": counts.tokens}
            for name, counts in selection.tools.items()
        },
        "never_called": selection.never_called,
        "often_invalid": selection.often_invalid,
        "confused": [
            {"tool": item.tool, "other": item.other, "why": item.why, "times": item.times} for item in selection.confused
        ],
    }
