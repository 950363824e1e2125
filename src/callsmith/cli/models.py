"""`callsmith models`: the models that are known by name, those that are on this machine already, and their weights."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.inputs.completion import complete_models
from callsmith.cli.inputs.options import example, make_group
from callsmith.cli.terminal.output import echo, echo_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsmith.models.weights.found import FoundModel
    from callsmith.models.weights.measured import Measured

app = make_group(
    "models",
    "The models known by name, those on this machine already, and their weights.",
    "callsmith models",
    "callsmith models fetch qwen2.5-coder-1.5b",
)


@app.callback(invoke_without_command=True)
def list_models(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False
) -> None:
    """List the models of the catalogue, small ones of the Hugging Face hub that call tools, and those that Ollama, LM Studio,
    llama.cpp and the cache of the hub hold.

    All names are taken by --model."""
    if context.invoked_subcommand:
        return
    from callsmith.models.weights.found import find_models

    found, skipped = find_models()
    rows = _rows()
    if as_json:
        echo_json([*rows, *_hub_rows(found), *_found_rows(found)])
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
        echo(f"  {row['name']}: {row['good_for']}")
    echo("On the hub, not tried here (BFCL is what others have published of it):")
    known = [
        (
            Text(row["name"], "bold"),
            Text(row["title"]),
            write_size(row["size"]),
            row["licence"],
            row["bfcl"],
            "yes" if row["path"] else "no",
        )
        for row in _hub_rows(found)
    ]
    print_table(("name", "model", "about", "licence", "BFCL", "installed"), known)
    if found:
        echo("On this machine already:")
        places = [(Text(model.name, "bold"), Text(model.program), write_size(model.size)) for model in found]
        print_table(("name", "program", "size"), places)
    for model in skipped:
        echo(f"Not usable: {model.name} of {model.program}: {model.reason}")
    from callsmith.models.weights.measured import load_measured

    if measured := load_measured():
        echo("Measured, and used when they are opened:")
        for key, measurement in measured.items():
            echo(f"  {measurement.model}, {key}: {_describe_measured(measurement)}")


@app.command("fetch", epilog=example("callsmith models fetch qwen2.5-coder-1.5b", "callsmith models fetch hf:org/repo:Q4_K_M"))
def fetch_model(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=complete_models,
            help="A name of the catalogue, or a model on the Hugging Face hub: hf:org/repo, hf:org/repo:Q4_K_M, "
            "hf:org/repo/file.gguf, with @revision behind it where it is not the newest.",
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Fetch them again, even if they are there.")] = False,
) -> None:
    """Fetch a model's weights, unless they are there. An interrupted download is resumed. Of a repository's models the one is
    taken that fits this memory; it is told which, and what else there is."""
    from callsmith.cli.terminal import fetching

    echo(fetching.fetch(name, force=True) if force else fetching.find_or_fetch(name))


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


def _rows() -> list[dict[str, Any]]:
    from callsmith.models.weights.catalogue import catalogue, default_model
    from callsmith.models.weights.fetch import WeightStore

    there = WeightStore().list_installed()
    return [
        {
            "name": name,
            **{field: getattr(entry, field) for field in ("size", "title", "licence", "good_for", "format")},
            "default": name == default_model(),
            "path": str(there[name]) if name in there else None,
            "program": "callsmith",
            "verified": True,
        }
        for name, entry in catalogue().items()
    ]


def _hub_rows(found: "Sequence[FoundModel]") -> list[dict[str, Any]]:
    from callsmith.models.weights.hub_models import hub_models
    from callsmith.models.weights.hub_names import parse

    rows: list[dict[str, Any]] = []
    for entry in hub_models().values():
        name = parse(entry.hub)
        here = [model.path for model in found if name and model.repo.lower() == name.repo.lower() and name.matches(model.variant)]
        known = {field: getattr(entry, field) for field in ("name", "size", "title", "licence", "format", "hub", "bfcl")}
        path = str(here[0]) if here else None
        rows.append({**known, "good_for": "", "default": False, "path": path, "program": "Hugging Face", "verified": False})
    return rows


def _found_rows(found: "Sequence[FoundModel]") -> list[dict[str, Any]]:
    own = {"title": "", "licence": "", "good_for": "", "format": None, "default": False, "verified": False}
    return [{"name": model.name, "size": model.size, **own, "path": str(model.path), "program": model.program} for model in found]
