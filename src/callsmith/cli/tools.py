"""`callsmith tools`: what tools cost to offer, and how well models choose among them."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.inputs.options import example, make_group
from callsmith.cli.inputs.setting_options import SettingsCommand, settings_of
from callsmith.cli.terminal.output import echo, echo_json, print_table

if TYPE_CHECKING:
    from callsmith.core.values import Tool
    from callsmith.runtime.telemetry.summary import Selection
    from callsmith.runtime.telemetry.trace import ToolCounts
    from callsmith.tools.mcp import Status

app = make_group(
    "tools", "What tools cost, and how well they are chosen.", "callsmith tools list --tools mytools", needs_command=True
)

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
