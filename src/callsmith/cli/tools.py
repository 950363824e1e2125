"""`callsmith tools`: what tools cost to offer, and how well models choose among them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.options import ToolsOption

if TYPE_CHECKING:
    from callsmith.core.values import Tool
    from callsmith.runtime.selection import Selection
    from callsmith.runtime.trace import ToolCounts

tools_app = typer.Typer(help="What tools cost, and how well they are chosen.", no_args_is_help=True, rich_markup_mode=None)

JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]

COUNTS = ("offered", "called", "invalid", "repaired", "declined", "failed", "timeouts")


@tools_app.command("list")
def list_tools(tools: ToolsOption = None, as_json: JsonOption = False) -> None:
    """List tools with their side effects, and about how many tokens it takes to offer each: an estimate, 4 characters a token."""
    import asyncio

    from callsmith.cli.toolsets import load_toolset

    async def listed() -> list["Tool"]:
        return list(await load_toolset(tools or "demo").tools())

    rows = [_row(tool) for tool in asyncio.run(listed())]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    from rich.text import Text

    lines = [
        (Text(row["name"], "bold"), Text(", ".join(row["arguments"])), _effects(row), f"~{row['tokens']}", Text(row["summary"]))
        for row in rows
    ]
    _print_table(("tool", "arguments", "side effects", "tokens", "what it does"), lines)
    typer.echo(f"{len(rows)} tools, about {sum(row['tokens'] for row in rows)} tokens of every prompt (an estimate).")


@tools_app.command("report")
def report_tools(
    trace: Annotated[
        Path, typer.Option("--trace", exists=True, dir_okay=False, help="What `serve --trace` or `chat --trace` has written.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Tell from recorded turns which tools are never called, which are called wrongly, and which are mistaken for others."""
    from callsmith.runtime.selection import report
    from callsmith.runtime.trace_file import read_trace

    lines = list(read_trace(trace))
    turns = [turn for turn in lines if turn is not None]
    if lost := len(lines) - len(turns):
        typer.secho(f"{lost} of {len(lines)} lines are no turns and were passed over", err=True, fg="yellow")
    selection = report(turns)
    if as_json:
        typer.echo(json.dumps(_as_json(selection), ensure_ascii=False, indent=2))
        return
    _print_report(selection)


def _row(tool: "Tool") -> dict[str, Any]:
    from callsmith.runtime.trace import about_tokens

    shown = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {
        "name": tool.name,
        "arguments": list(tool.parameters.get("properties", ())),
        "summary": tool.description.partition("\n")[0],
        "side_effects": tool.side_effects,
        "idempotent": tool.idempotent,
        "source": tool.source,
        "tokens": about_tokens(len(json.dumps(shown, ensure_ascii=False))),
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
    typer.echo(f"{selection.turns} turns")
    if lines:
        _print_table(("tool", *COUNTS, "mean time", "tokens"), lines)
    typer.echo(f"Never called: {', '.join(selection.never_called) or 'none'}")
    typer.echo(f"Often invalid: {', '.join(selection.often_invalid) or 'none'}")
    typer.echo("Confused:" if selection.confused else "Confused: none")
    for one in selection.confused:
        how = f"there is no {one.tool}; {one.other} is meant" if one.why == "name" else f"{one.tool} in vain, then {one.other}"
        typer.echo(f"  {how} ({one.times} ×)")


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
        "confused": [{"tool": one.tool, "other": one.other, "why": one.why, "times": one.times} for one in selection.confused],
    }


def _print_table(heads: tuple[str, ...], lines: list[tuple[Any, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads, box=box.SIMPLE_HEAD)
    for line in lines:
        table.add_row(*line)
    Console().print(table)
