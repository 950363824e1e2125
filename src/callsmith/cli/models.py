"""`callsmith models`: the models that are known by name, and their weights."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.inputs.completion import complete_models
from callsmith.cli.inputs.options import example, make_group
from callsmith.cli.terminal.output import echo, echo_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from callsmith.models.weights.measured import Measured

app = make_group(
    "models", "The models known by name, and their weights.", "callsmith models", "callsmith models fetch qwen2.5-coder-1.5b"
)


@app.callback(invoke_without_command=True)
def list_models(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False
) -> None:
    """List the models of the catalogue, and what else has been fetched."""
    if context.invoked_subcommand:
        return
    from callsmith.models.weights.fetch import WeightStore

    there = WeightStore().list_installed()
    rows = _rows(there)
    if as_json:
        echo_json(rows)
        return
    from rich.text import Text

    from callsmith.core.types.quantities import write_size

    lines: list[tuple[Any, ...]] = []
    for row in rows:
        name = Text(row["name"], "bold") + Text(" (default)" if row["default"] else "", "dim")
        lines.append((name, Text(row["title"]), write_size(row["size"]), row["licence"], "yes" if row["path"] else "no"))
    print_table(("name", "model", "size", "licence", "installed"), lines)
    echo("Good for:")
    for row in rows:
        if row["good_for"]:
            echo(f"  {row['name']}: {row['good_for']}")
    from callsmith.models.weights.measured import load_measured

    if measured := load_measured():
        echo("Measured, and used when they are opened:")
        for key, measurement in measured.items():
            echo(f"  {measurement.model}, {key}: {_describe_measured(measurement)}")


@app.command("fetch", epilog=example("callsmith models fetch qwen2.5-coder-1.5b"))
def fetch_model(
    name: Annotated[
        str, typer.Argument(autocompletion=complete_models, help="A name of the catalogue, or org/repo/file.gguf on a hub.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Fetch them again, even if they are there.")] = False,
) -> None:
    """Fetch a model's weights. An interrupted download is resumed."""
    from callsmith.cli.terminal import fetching
    from callsmith.models.weights.fetch import WeightStore

    there = WeightStore().list_installed().get(name)
    echo(there if there and not force else fetching.fetch(name, force=force))


@app.command("verify", epilog=example("callsmith models verify qwen2.5-coder-1.5b"))
def verify_model(name: Annotated[str, typer.Argument(autocompletion=complete_models, help="A name of the catalogue.")]) -> None:
    """Check every byte of a model's weights against the catalogue."""
    from callsmith.models.weights.fetch import WeightStore

    echo(f"{WeightStore().verify(name)} is whole")


def _describe_measured(measurement: "Measured") -> str:
    """What was found of a model, in a line: by `callsmith tune`, or by what was there before it."""
    if not measurement.tool_prompt:
        return f"policy {measurement.policy}, calls {'' if measurement.auto_guarded else 'not '}constrained"
    threshold = "" if measurement.threshold is None else f", calls from log odds {measurement.threshold:g} on"
    scores: Any = measurement.scores.get(measurement.tool_prompt) or {}
    shares = [
        f"{100 * share['share']:.1f} % {name}"
        for name, share in scores.get("shares", {}).items()
        if name in ("right calls", "left alone")
    ]
    return f"tool prompt {measurement.tool_prompt}{threshold}{'; held out: ' if shares else ''}{', '.join(shares)}"


def _rows(there: "Mapping[str, Path]") -> list[dict[str, Any]]:
    from callsmith.models.weights.catalogue import catalogue, default_model

    own = {"title": "", "licence": "", "good_for": "", "format": None}
    known = {
        name: {field: getattr(entry, field) for field in ("size", *own)} | {"default": name == default_model()}
        for name, entry in catalogue().items()
    }
    others = {name: {"size": path.stat().st_size, **own, "default": False} for name, path in there.items() if name not in known}
    paths = {name: str(path) for name, path in there.items()}
    return [{"name": name, **row, "path": paths.get(name)} for name, row in (known | others).items()]
