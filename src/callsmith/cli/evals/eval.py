"""`callsmith eval`: how well models call tools, in one setup or several, by the Berkeley benchmark or by cases of one's own."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.inputs.examples import example

if TYPE_CHECKING:
    from callsmith.evals.bfcl.checker import Checker
    from callsmith.evals.cases.case import Case
    from callsmith.evals.run.record import Records
    from callsmith.evals.run.runner import Settings
    from callsmith.evals.run.setup import Setup
    from callsmith.models import Options

QUICK = 4  # cases of each category
_NAMED = re.compile(r"([A-Za-z0-9._-]+)=(.+)", re.DOTALL)

eval_app = typer.Typer(help="How well models call tools.", rich_markup_mode=None)


@eval_app.callback(invoke_without_command=True)
def evaluate(
    context: typer.Context,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="What to ask, as for serve, also NAME=MODEL. Default: the default model.")
    ] = None,
    setup: Annotated[
        list[str] | None,
        typer.Option("--setup", help="How to ask: default, free, free-repaired, guarded, required, or NAME=choice:auto,…"),
    ] = None,
    cases: Annotated[
        Path | None, typer.Option("--cases", exists=True, dir_okay=False, help="Cases of your own. Default: the benchmark's.")
    ] = None,
    categories: Annotated[str, typer.Option("--categories", help="Only these, with commas between them.")] = "",
    per_category: Annotated[int | None, typer.Option("--per-category", min=1, help="A sample of so many of each.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"A sample of {QUICK} of each category.")] = False,
    ids: Annotated[str, typer.Option("--ids", help="Only these cases, with commas between them.")] = "",
    seed: Annotated[int, typer.Option("--seed", help="Of the sample.")] = 0,
    out: Annotated[Path, typer.Option("--out", file_okay=False, help="Where results go; those that are there are kept.")] = Path(
        "eval-results"
    ),
    concurrency: Annotated[int | None, typer.Option("--concurrency", min=1, help="Cases at once. Default: 8.")] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Tokens that one answer may have.")] = 512,
    seconds: Annotated[float, typer.Option("--timeout", min=1, help="Seconds that one case may take.")] = 300.0,
    context_tokens: Annotated[int | None, typer.Option("--context", min=1, help="Tokens of prompt and answer together.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads of the engine.")] = None,
    gpu_layers: Annotated[int | None, typer.Option("--gpu-layers", min=0, help="Layers on GPUs. Default: all that fit.")] = None,
    format: Annotated[str | None, typer.Option("--format", help="The format of the model, where it is not found.")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the model by callsmith serve, and ask it over HTTP.")] = False,
) -> None:
    """Ask models the cases and score their calls. The same command again goes on where it was stopped."""
    if context.invoked_subcommand:
        return
    import asyncio

    from callsmith.evals.run.record import Records
    from callsmith.evals.run.runner import Settings
    from callsmith.evals.run.setup import read_setups
    from callsmith.models import Options

    names = [name.strip() for name in categories.split(",") if name.strip()]
    listed = [name.strip() for name in ids.split(",") if name.strip()]
    setups = read_setups(setup or ["default"])
    chosen = _choose(cases, names, listed, QUICK if quick and per_category is None else per_category, seed)
    settings = Settings(max_tokens, seconds, concurrency or 8)
    options = Options(context=context_tokens, threads=threads, gpu_layers=gpu_layers, format=format, live=settings.concurrency)
    records = Records(out)
    try:
        asyncio.run(_evaluate(_models(model), options, setups, chosen, records, settings, serve=serve))
    except KeyboardInterrupt:
        typer.echo(f"\nStopped. What was answered is in {out}; the same command goes on from there.", err=True)
        raise
    finally:
        records.close()
    _report(out)


@eval_app.command("compare", epilog=example("callsmith eval compare free guarded --out eval-results"))
def compare_setups(
    first: Annotated[str, typer.Argument(help="A setup, as the report names it, or the end of its name.")],
    second: Annotated[str, typer.Argument(help="The setup that is held against it.")],
    out: Annotated[Path, typer.Option("--out", file_okay=False, help="The folder of the results.")] = Path("eval-results"),
    show_ids: Annotated[bool, typer.Option("--ids", help="List the cases that were gained and lost.")] = False,
) -> None:
    """Compare two setups on the cases that both were asked."""
    from callsmith.evals.run.record import read_records
    from callsmith.evals.scores.comparison import compare
    from callsmith.evals.scores.report import comparison_table

    found = compare(read_records(out), first, second)
    typer.echo(f"{found.second} against {found.first}, {found.overall.n} cases")
    _print_table(*comparison_table(found))
    if show_ids:
        typer.echo(f"gained: {', '.join(found.gains) or 'none'}\nlost: {', '.join(found.losses) or 'none'}")


@eval_app.command("report", epilog=example("callsmith eval report --out eval-results"))
def write_report(
    out: Annotated[Path, typer.Option("--out", file_okay=False, help="The folder of the results.")] = Path("eval-results"),
) -> None:
    """Write the reports anew from the records, and show the scores."""
    _report(out)


@eval_app.command("policy", epilog=example("callsmith eval policy qwen2.5-coder-1.5b --out eval-results --store"))
def suggest_policy(
    model: Annotated[str, typer.Argument(help="The model, as the report names it.")],
    out: Annotated[Path, typer.Option("--out", file_okay=False, help="The folder of the results.")] = Path("eval-results"),
    store: Annotated[bool, typer.Option("--store", help="Keep it: it counts from now on when the model is opened.")] = False,
) -> None:
    """Say which choice policy and which constraint suit a model, by its scores: lines for a preset."""
    from callsmith.evals.run.record import read_plan, read_records
    from callsmith.evals.scores.policy import suggest
    from callsmith.models.weights.measured import Measured, store_measured

    found = suggest(read_records(out), model)
    for reason in found.reasons:
        typer.echo(f"# {reason}")
    typer.echo(found.lines)
    if store:
        about = read_plan(out)["setups"][f"{model}/{found.setup}"]["about"]
        scores = {name: one.as_json() for name, one in found.scores.items()}
        kept = Measured(model, found.policy, found.auto_guarded, scores)
        typer.echo(f"kept in {store_measured(about['name'], about['weights']['size'], kept)}", err=True)


def _report(out: Path) -> None:
    from callsmith.evals.run.record import read_plan, read_records
    from callsmith.evals.scores.report import scores_table, write_reports

    scores = write_reports(out, read_records(out), read_plan(out))
    _print_table(*scores_table(scores.values()))
    typer.echo(f"report.html, report.md, results.json and every answer (records.jsonl) are in {out}")


def _print_table(heads: Any, rows: Any) -> None:
    from rich.text import Text

    from callsmith.cli.tools import print_table

    print_table(heads, [tuple(Text(cell) for cell in row) for row in rows])


def _models(specs: list[str] | None) -> dict[str, str]:
    """The models to ask, by the names under which they are reported."""
    from callsmith.cli.inputs.options import alias_of
    from callsmith.core.errors import UsageError
    from callsmith.models.weights.catalogue import default_model

    found: dict[str, str] = {}
    for text in specs or [default_model()]:
        named = _NAMED.fullmatch(text)
        name, spec = (named[1], named[2]) if named else (alias_of(text), text)
        if name in found:
            raise UsageError(f"two models are called {name!r}: write --model OTHER={spec}", field="model")
        found[name] = spec
    return found


def _choose(file: Path | None, categories: list[str], ids: list[str], per_category: int | None, seed: int) -> "list[Case]":
    from callsmith.core.errors import UsageError
    from callsmith.evals.bfcl.load import MULTI_TURN, SINGLE_TURN, load_cases
    from callsmith.evals.cases.case import read_cases
    from callsmith.evals.cases.sample import sample

    if file is None:
        wanted = categories or ([*SINGLE_TURN, *MULTI_TURN] if ids else SINGLE_TURN)
        found = load_cases(_fetch_benchmark(), wanted)
    else:
        found = [case for case in read_cases(file) if not categories or case.category in categories]
        if not found:
            raise UsageError(f"{file} has no case of {', '.join(categories)}", field="categories")
    return sample(found, per_category=per_category, ids=ids, seed=seed)


def _fetch_benchmark() -> Path:
    """The folder of the benchmark, which is fetched if it is not there."""
    from callsmith.core.types.quantities import write_size
    from callsmith.evals.bfcl import fetch

    if not fetch.is_fetched():
        wheels = ", ".join(fetch.PINS)
        typer.echo(f"Fetching {wheels} ({write_size(fetch.SIZE)}) into {fetch.benchmark_folder()}", err=True)
    return fetch.fetch()


async def _evaluate(
    models: dict[str, str],
    options: "Options",
    setups: "list[Setup]",
    cases: "list[Case]",
    records: "Records",
    settings: "Settings",
    *,
    serve: bool,
) -> None:
    """Ask one model after the other."""
    from callsmith.cli.evals.served import served
    from callsmith.cli.terminal.fetching import ensure
    from callsmith.evals.bfcl import fetch
    from callsmith.evals.bfcl.checker import Checker

    checker: Checker | None = Checker(fetch.benchmark_folder()) if fetch.is_fetched() else None
    try:
        for name, spec in models.items():
            ensure(spec)
            labels = {f"{name}/{setup.name}": setup for setup in setups}
            if not serve:
                await _ask_model(spec, options, labels, cases, records, settings, checker)
                continue
            async with served(spec, options) as url:
                await _ask_model(url, options, labels, cases, records, settings, checker, described=f"callsmith serve {spec}")
    finally:
        if checker is not None:
            await checker.close()


async def _ask_model(
    spec: str,
    options: "Options",
    setups: "dict[str, Setup]",
    cases: "list[Case]",
    records: "Records",
    settings: "Settings",
    checker: "Checker | None",
    described: str = "",
) -> None:
    """Ask a model all cases that were not asked before. `described` is what the results say it is, where its spec does not."""
    from dataclasses import asdict

    from callsmith.cli.evals.progress import EvalProgress
    from callsmith.evals.run.runner import Runner
    from callsmith.models import open_model

    model = open_model(spec, options)
    try:
        info = model.info
        about = {"name": info.name, "description": info.description, "format": info.format, "weights": asdict(info.weights)}
        for label, setup in setups.items():
            description = {"model": described or spec, **setup.describe(), "max_tokens": settings.max_tokens}
            records.describe(label, description, {**about, "placement": info.placement, "context": info.context})
        known = [found for case in cases for label in setups if (found := records.done(case, label))]
        with EvalProgress(list(setups), len(cases), known) as shown:
            await Runner(model, setups, records, checker, settings).run(cases, shown.add)
    finally:
        await model.close()
