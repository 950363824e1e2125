"""`callsmith tune`: which tool prompt suits a model, and from which threshold on it calls; found on one half of the cases, and
reported on the other."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from callsmith.cli.evals.options import (
    AT_ONCE,
    QUICK,
    CasesFile,
    Categories,
    Concurrency,
    MaxTokens,
    Out,
    Seconds,
    split_names,
    with_engine_options,
)
from callsmith.cli.inputs.completion import complete_models
from callsmith.cli.inputs.options import example
from callsmith.cli.terminal.output import echo, echo_lines

if TYPE_CHECKING:
    from callsmith.core.ports import ModelInfo
    from callsmith.evals.bfcl.checker import Checker
    from callsmith.evals.cases.case import Case
    from callsmith.evals.run.record import Records
    from callsmith.evals.run.runner import Runner, RunSettings
    from callsmith.evals.run.setup import Setup
    from callsmith.evals.scores.tuning import Tuning
    from callsmith.models import Options
    from callsmith.models.local import LocalModel

ALWAYS: Final = 30.0  # log odds, as a bias: more than any score is below 0
TRIAL: Final = 3  # cases that are asked to see how long all will take
SHORT: Final = 20.0  # seconds: after a trial that was shorter, so many are asked as can be at once

app = typer.Typer()


@app.command(epilog=example("callsmith tune qwen2.5-coder-1.5b --quick", "callsmith tune mine.gguf --cases mine.jsonl --store"))
@with_engine_options
def tune(
    model: Annotated[str, typer.Argument(autocompletion=complete_models, help="The model, as for serve; one that runs here.")],
    cases: CasesFile = None,
    categories: Categories = "",
    per_category: Annotated[
        int | None, typer.Option("--per-category", min=1, help="A sample of so many of each category, in each half.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"A sample of {QUICK} of each category, in each half.")] = False,
    prompts: Annotated[
        str, typer.Option("--prompts", help="Tool prompts to try, with commas between them. Default: all, also your own.")
    ] = "",
    out: Out = Path("tune-results"),
    store: Annotated[bool, typer.Option("--store", help="Keep it: it counts from now on when these weights are opened.")] = False,
    concurrency: Concurrency = None,
    max_tokens: MaxTokens = 512,
    seconds: Seconds = 300.0,
    engine: Any = None,
) -> None:
    """Find how tools are best put to a model, and when it calls. The same command again goes on where it was stopped."""
    import asyncio

    from callsmith.cli.evals.cases import find_cases, open_records
    from callsmith.cli.inputs.options import alias_of
    from callsmith.evals.run.runner import RunSettings
    from callsmith.evals.scores.tuning import choose, list_expected, split
    from callsmith.models import Options

    names, name = _tool_prompts(prompts), alias_of(model)
    _refuse_remote(model)
    chosen = _sample(find_cases(cases, split_names(categories)), QUICK if quick and per_category is None else per_category)
    expects = list_expected(chosen)
    split(expects)
    settings = RunSettings(max_tokens, seconds, concurrency or AT_ONCE)
    options = Options(**engine, live=settings.concurrency, tool_prompt=names[0])
    setups = {f"{name}/{prompt}": _setup(prompt) for prompt in names}
    with open_records(out) as records:
        info = asyncio.run(_ask(model, options, setups, chosen, records, settings, store=store))
    answered = {prompt: [record for record in records.all() if record.setup == f"{name}/{prompt}"] for prompt in names}
    tuning = choose(answered, expects)
    _show(tuning, name, out)
    if store:
        _store(tuning, name, info)


def _tool_prompts(chosen: str) -> list[str]:
    """The tool prompts to try: first the template's own way, with which the others are compared."""
    from callsmith.evals.scores.tuning import TEMPLATE
    from callsmith.models.tool_prompts import tool_prompt_named, tool_prompts

    names = [tool_prompt_named(name).name for name in split_names(chosen)] or list(tool_prompts())
    return list(dict.fromkeys([TEMPLATE, *names]))


def _setup(prompt: str) -> "Setup":
    """One way of asking: calls are held by a grammar, and made whatever the model would have decided."""
    from callsmith.evals.run.setup import Setup
    from callsmith.evals.scores.tuning import TEMPLATE

    return Setup(prompt, "auto", constrained=True, prompt=prompt, bias=None if prompt == TEMPLATE else ALWAYS)


def _sample(cases: "Sequence[Case]", per_category: int | None) -> "list[Case]":
    """So many of each category in each half, in an order in which both halves are asked alike."""
    from callsmith.core.errors import UsageError
    from callsmith.evals.cases.sample import half_of, sample

    if long := next((case for case in cases if len(case.turns) > 1), None):
        raise UsageError(f"{long.id} is a conversation: thresholds are found on single questions", field="categories")
    halves = ([case for case in cases if half_of(case.id) == half] for half in ("tuning", "held-out"))
    return sample([case for half in halves for case in sample(half, per_category=per_category)])


def _refuse_remote(spec: str, is_remote: bool | None = None) -> None:
    """A UsageError for a model of which no log probabilities are seen; `is_remote` where that is known."""
    from callsmith.core.errors import UsageError
    from callsmith.models.remote.providers import parse_spec

    if parse_spec(spec) is not None if is_remote is None else is_remote:
        raise UsageError(
            f"{spec} gives no log probabilities here, and from them it is found when to call. Tune its weights on this machine "
            "(a GGUF file, or a name that `callsmith models` lists), or compare ways of asking it with `callsmith eval --setup`",
            field="model",
        )


async def _ask(
    spec: str,
    options: "Options",
    setups: "dict[str, Setup]",
    cases: "list[Case]",
    records: "Records",
    settings: "RunSettings",
    *,
    store: bool,
) -> "ModelInfo":
    """Ask all that was not asked before; what is known of the model."""
    from callsmith.cli.evals.cases import open_checker
    from callsmith.cli.terminal.fetching import ensure
    from callsmith.core.errors import UsageError
    from callsmith.models.opening import open_local

    ensure(spec)
    model = open_local(spec, options)
    try:
        _refuse_remote(spec, is_remote=not model.engine.info.logprobs)
        if store and not model.info.weights.size:
            raise UsageError(f"{spec} is no file of weights: what is found of it cannot be kept", field="store")
        async with open_checker() as checker:
            await _ask_all(model, spec, options, setups, cases, records, settings, checker)
        return model.info
    finally:
        await model.close()


async def _ask_all(
    model: "LocalModel",
    spec: str,
    options: "Options",
    setups: "dict[str, Setup]",
    cases: "list[Case]",
    records: "Records",
    settings: "RunSettings",
    checker: "Checker | None",
) -> None:
    from functools import partial

    from callsmith.cli.evals.eval import describe_setups
    from callsmith.cli.evals.progress import EvalProgress
    from callsmith.evals.run.runner import Runner
    from callsmith.models.opening import with_tool_prompt

    describe_setups(records, setups, model.info, spec, settings.max_tokens)
    prompted = partial(with_tool_prompt, model, spec, options)
    runner = Runner(model, setups, records, checker, settings, prompted)

    def missing(case: "Case") -> int:
        return sum(records.done(case, label) is None for label in setups)

    waiting = await _say_how_long(runner, [case for case in cases if missing(case)], missing, settings.concurrency)
    if waiting:
        known = [record for case in cases for label in setups if (record := records.done(case, label))]
        with EvalProgress(list(setups), len(cases), known, with_scores=False) as progress:
            await runner.run(waiting, progress.add)


async def _say_how_long(runner: "Runner", cases: "list[Case]", missing: "Callable[[Case], int]", at_once: int) -> "list[Case]":
    """Ask a few cases, and say how long the others will take, by how many answers each is missing; these are returned."""
    answered, seconds = list[object](), 0.0
    for number in (TRIAL, at_once):
        tried, cases = cases[:number], cases[number:]
        if not tried:
            break
        echo(f"Asking {len(tried)} cases to see how long all of them take", err=True)
        answered.clear()
        began = time.monotonic()
        await runner.run(tried, answered.append)
        seconds = time.monotonic() - began
        if seconds > SHORT or at_once <= TRIAL:
            break
    if cases and answered:
        remaining = seconds / len(answered) * sum(map(missing, cases))
        ways = max(map(missing, cases))
        echo(f"About {_duration(remaining)} for {len(cases)} more cases in {ways} way{'s' if ways > 1 else ''}", err=True)
    return cases


def _duration(seconds: float) -> str:
    """`40 seconds`, `12 minutes`, `3.5 hours`"""
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 90 * 60 else f"{seconds / 3600:.1f} hours"


def _show(tuning: "Tuning", name: str, out: Path) -> None:
    from callsmith.cli.evals.cases import print_rows
    from callsmith.evals.scores.report import comparison_table
    from callsmith.evals.scores.tuning import against_template, preset_lines, ways_table, write_tuning

    echo(f"{name}, tuned on {tuning.tuned_on} cases; on the {tuning.held_out} others:")
    print_rows(*ways_table(tuning))
    for comparison in against_template(tuning)[:1]:
        echo(f"{comparison.second} against {comparison.first}:")
        print_rows(*comparison_table(comparison))
    echo_lines("\n".join(preset_lines(tuning)))
    echo(f"{write_tuning(out, name, tuning)} has all ways, records.jsonl every answer", err=True)


def _store(tuning: "Tuning", name: str, info: "ModelInfo") -> None:
    from callsmith.models.weights.measured import Measured, store_measured

    scores = {prompt: way["held_out"] for prompt, way in tuning.as_json()["ways"].items()}
    kept = Measured(name, auto_guarded=True, tool_prompt=tuning.best.prompt, threshold=tuning.best.threshold, scores=scores)
    echo(f"kept in {store_measured(info.name, info.weights.size, kept)}", err=True)
