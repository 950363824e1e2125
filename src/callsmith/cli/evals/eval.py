"""`callsmith eval`: how well models call tools, in one setup or several, by the Berkeley benchmark or by cases of one's own."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.evals.options import (
    AT_ONCE,
    QUICK,
    CasesFile,
    Categories,
    Concurrency,
    MaxTokens,
    Out,
    PerCategory,
    Quick,
    Seconds,
    split_names,
    with_engine_options,
)
from callsmith.cli.inputs.options import example, make_group
from callsmith.cli.terminal.output import echo

if TYPE_CHECKING:
    from callsmith.core.ports import ModelInfo
    from callsmith.evals.bfcl.checker import Checker
    from callsmith.evals.cases.case import Case
    from callsmith.evals.run.record import Records
    from callsmith.evals.run.runner import RunSettings
    from callsmith.evals.run.setup import Setup
    from callsmith.models import Options

_NAMED = re.compile(r"([A-Za-z0-9._-]+)=(.+)", re.DOTALL)

app = make_group(
    "eval", "How well models call tools.", "callsmith eval --quick", "callsmith eval --quick --setup free --setup guarded"
)


@app.callback(invoke_without_command=True)
@with_engine_options
def evaluate(
    context: typer.Context,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="What to ask, as for serve, also NAME=MODEL. Default: the default model.")
    ] = None,
    setup: Annotated[
        list[str] | None,
        typer.Option("--setup", help="How to ask: default, free, free-repaired, guarded, required, or NAME=choice:auto,…"),
    ] = None,
    cases: CasesFile = None,
    categories: Categories = "",
    per_category: PerCategory = None,
    quick: Quick = False,
    ids: Annotated[str, typer.Option("--ids", help="Only these cases, with commas between them.")] = "",
    seed: Annotated[int, typer.Option("--seed", help="Of the sample.")] = 0,
    out: Out = Path("eval-results"),
    concurrency: Concurrency = None,
    max_tokens: MaxTokens = 512,
    seconds: Seconds = 300.0,
    format: Annotated[str | None, typer.Option("--format", help="The format of the model, where it is not found.")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the model by callsmith serve, and ask it over HTTP.")] = False,
    engine: Any = None,
) -> None:
    """Ask models the cases and score their calls. The same command again goes on where it was stopped."""
    if context.invoked_subcommand:
        return
    import asyncio

    from callsmith.cli.evals.cases import find_cases, open_records
    from callsmith.evals.cases.sample import sample
    from callsmith.evals.run.runner import RunSettings
    from callsmith.evals.run.setup import read_setups
    from callsmith.models import Options

    setups = read_setups(setup or ["default"])
    listed = split_names(ids)
    available = find_cases(cases, split_names(categories), with_conversations=bool(listed))
    chosen = sample(available, per_category=QUICK if quick and per_category is None else per_category, ids=listed, seed=seed)
    settings = RunSettings(max_tokens, seconds, concurrency or AT_ONCE)
    options = Options(**engine, format=format, live=settings.concurrency)
    models = _models(model)
    labels = [f"{name}/{setup.name}" for name in models for setup in setups]
    with open_records(out) as records:
        asyncio.run(_evaluate(models, options, setups, chosen, records, settings, serve=serve))
    _report(out)
    if failed := sum(records.done(case, label) is None for case in chosen for label in labels):
        echo(f"{failed} of {len(chosen) * len(labels)} answers failed; the same command asks them again", err=True)
        raise typer.Exit(1)


@app.command("compare", epilog=example("callsmith eval compare free guarded --out eval-results"))
def compare_setups(
    first: Annotated[str, typer.Argument(help="A setup, as the report names it, or the end of its name.")],
    second: Annotated[str, typer.Argument(help="The setup that is held against it.")],
    out: Annotated[Path, typer.Option("--out", file_okay=False, help="The folder of the results.")] = Path("eval-results"),
    show_ids: Annotated[bool, typer.Option("--ids", help="List the cases that were gained and lost.")] = False,
) -> None:
    """Compare two setups on the cases that both were asked."""
    from callsmith.cli.evals.cases import print_rows
    from callsmith.evals.run.record import read_records
    from callsmith.evals.scores.report import comparison_table
    from callsmith.evals.scores.scores import compare

    comparison = compare(read_records(out), first, second)
    echo(f"{comparison.second} against {comparison.first}, {comparison.overall.n} cases")
    print_rows(*comparison_table(comparison))
    if show_ids:
        echo(f"gained: {', '.join(comparison.gains) or 'none'}")
        echo(f"lost: {', '.join(comparison.losses) or 'none'}")


@app.command("report", epilog=example("callsmith eval report --out eval-results"))
def write_report(
    out: Annotated[Path, typer.Option("--out", file_okay=False, help="The folder of the results.")] = Path("eval-results"),
) -> None:
    """Write the reports anew from the records, and show the scores."""
    _report(out)


def _report(out: Path) -> None:
    from callsmith.cli.evals.cases import print_rows
    from callsmith.evals.run.record import read_plan, read_records
    from callsmith.evals.scores.report import scores_table, write_reports

    scores = write_reports(out, read_records(out), read_plan(out))
    print_rows(*scores_table(scores.values()))
    echo(f"report.html, report.md, results.json and every answer (records.jsonl) are in {out}")


def _models(specs: list[str] | None) -> dict[str, str]:
    """The models to ask, by the names under which they are reported."""
    from callsmith.cli.inputs.options import alias_of
    from callsmith.core.errors import UsageError
    from callsmith.models.weights.catalogue import default_model

    models: dict[str, str] = {}
    for text in specs or [default_model()]:
        pair = _NAMED.fullmatch(text)
        name, spec = (pair[1], pair[2]) if pair else (alias_of(text), text)
        if name in models:
            raise UsageError(f"two models are called {name!r}: write --model OTHER={spec}", field="model")
        models[name] = spec
    return models


async def _evaluate(
    models: dict[str, str],
    options: "Options",
    setups: "list[Setup]",
    cases: "list[Case]",
    records: "Records",
    settings: "RunSettings",
    *,
    serve: bool,
) -> None:
    """Ask one model after the other."""
    from callsmith.cli.evals.cases import open_checker
    from callsmith.cli.evals.served import serve_model
    from callsmith.cli.terminal.fetching import ensure

    async with open_checker() as checker:
        for name, spec in models.items():
            ensure(spec)
            labels = {f"{name}/{setup.name}": setup for setup in setups}
            if not serve:
                await _ask_model(spec, options, labels, cases, records, settings, checker)
                continue
            async with serve_model(spec, options) as url:
                await _ask_model(url, options, labels, cases, records, settings, checker, described=f"callsmith serve {spec}")


async def _ask_model(
    spec: str,
    options: "Options",
    setups: "dict[str, Setup]",
    cases: "list[Case]",
    records: "Records",
    settings: "RunSettings",
    checker: "Checker | None",
    described: str = "",
) -> None:
    """Ask a model all cases that were not asked before. `described` is what the results say it is, where its spec does not."""
    from functools import partial

    from callsmith.cli.evals.progress import EvalProgress
    from callsmith.evals.run.runner import Runner
    from callsmith.models import open_model
    from callsmith.models.local import LocalModel
    from callsmith.models.opening import with_tool_prompt

    model = open_model(spec, options)
    try:
        describe_setups(records, setups, model.info, described or spec, settings.max_tokens)
        known = [record for case in cases for label in setups if (record := records.done(case, label))]
        prompted = partial(with_tool_prompt, model, spec, options) if isinstance(model, LocalModel) else None
        with EvalProgress(list(setups), len(cases), known) as progress:
            await Runner(model, setups, records, checker, settings, prompted).run(cases, progress.add)
    finally:
        await model.close()


def describe_setups(records: "Records", setups: "dict[str, Setup]", info: "ModelInfo", model: str, max_tokens: int) -> None:
    """Say in the folder of the results what the setups are."""
    from dataclasses import asdict

    about = {"name": info.name, "description": info.description, "format": info.format, "weights": asdict(info.weights)}
    for label, setup in setups.items():
        description = {"model": model, **setup.describe(), "max_tokens": max_tokens}
        records.describe(label, description, {**about, "placement": info.placement, "context": info.context})
