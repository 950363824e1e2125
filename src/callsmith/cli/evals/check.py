"""`callsmith check`: whether a server's tool calling is right, whatever server it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsmith.cli.evals.options import PerCategory
from callsmith.cli.inputs.options import example
from callsmith.cli.terminal.output import echo
from callsmith.core.types.escaped_text import in_json, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from callsmith.evals.check.run import CheckReport, Finding

WRONG = 1  # the exit code where something is wrong with the server

app = typer.Typer()


@app.command(
    epilog=example(
        "callsmith check http://127.0.0.1:8000/v1 --junit report.xml",
        "callsmith check http://127.0.0.1:8000/v1 --against https://api.example.com/v1#model",
    )
)
def check(
    url: Annotated[str, typer.Argument(help="The server: http://127.0.0.1:8000/v1")] = "",
    model: Annotated[str, typer.Option("--model", help="The model to ask for. Default: the first that is listed.")] = "",
    key: Annotated[str, typer.Option("--key", envvar="CALLSMITH_CHECK_KEY", help="The API key of the server.")] = "",
    dialect: Annotated[
        list[str] | None, typer.Option("--dialect", help="chat, responses, anthropic or ollama. Default: all that it speaks.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only probes (or cases, or categories) of this name or pattern: 'choices.*'."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only a fifth of the probes: those that find the most. Or 4 cases of each category.")
    ] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=1000, help="Ask everything so often, and tell the rates.")] = 1,
    tokens: Annotated[int, typer.Option("--tokens", min=16, help="Tokens of an answer; a model that reasons needs more.")] = 256,
    seconds: Annotated[float, typer.Option("--timeout", min=1, help="Seconds that one answer may take.")] = 120.0,
    as_json: Annotated[Path | None, typer.Option("--json", dir_okay=False, help="Write all that was found to this file.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", dir_okay=False, help="Write JUnit's XML to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", dir_okay=False, help="Write a report card to this file.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show all probes, and the exchanges of those that are wrong.")
    ] = False,
    list_probes: Annotated[bool, typer.Option("--list", help="List the probes and exit.")] = False,
    against: Annotated[
        str, typer.Option("--against", help="Hold it against a reference: URL or URL#MODEL, or a file that --record has written.")
    ] = "",
    against_key: Annotated[
        str, typer.Option("--against-key", envvar="CALLSMITH_AGAINST_KEY", help="The API key of the reference.")
    ] = "",
    record: Annotated[
        Path | None,
        typer.Option("--record", dir_okay=False, help="Keep the answers of this server, as a reference for --against."),
    ] = None,
    cases: Annotated[
        str, typer.Option("--cases", help="What is asked with --against and --record: a file, or bfcl. Default: 48 questions.")
    ] = "",
    per_category: PerCategory = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=256, help="Cases at once, with --against and --record.")
    ] = 4,
    threshold: Annotated[
        list[str] | None, typer.Option("--threshold", help="The least share that is good enough by a measure: arguments=0.8.")
    ] = None,
) -> None:
    """Check whether a server's tool calling is right: vLLM, SGLang, llama-server, Ollama, LM Studio, LiteLLM, callsmith, any.

    What depends on the server is kept apart from what depends on the model. The exit code is 1 if something is wrong with the
    server. With --against, both are asked the same questions instead, and the exit code is 1 if the server does not answer as
    the reference.
    """
    import asyncio

    from rich.console import Console

    from callsmith.core.errors import UsageError
    from callsmith.evals.check import report as reports
    from callsmith.evals.check import run

    if list_probes:
        for known_probe in run.known_probes():
            echo(f"{known_probe.name:<34}{known_probe.title}")
        return
    if not url:
        raise UsageError("the address of a server is missing: callsmith check http://127.0.0.1:8000/v1", field="url")
    for name, path in (("json", as_json), ("junit", junit), ("markdown", markdown), ("record", record)):
        if path is not None and not path.parent.is_dir():  # said before anything is asked: afterwards it would be lost
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}", field=name)
    if against or record:
        from callsmith.cli.evals.against import ComparisonOptions, hold_against

        options = ComparisonOptions(
            against,
            against_key,
            record,
            cases,
            dialect or (),
            only or (),
            quick,
            per_category,
            repeat,
            tokens,
            seconds,
            concurrency,
        )
        finished = hold_against(url, key, model, options, threshold or (), as_json, junit, markdown, verbose=verbose)
        raise typer.Exit(0 if finished else WRONG)
    if alone := next(
        (name for name, value in (("cases", cases), ("per-category", per_category), ("threshold", threshold)) if value), ""
    ):
        raise UsageError(f"--{alone} belongs to --against or --record", field=alone)
    progress = _Progress(Console(highlight=False, soft_wrap=True), verbose)
    checking = run.check(
        url,
        key=key,
        model=model,
        dialects=dialect or (),
        only=[*(only or ()), *(run.QUICK if quick else ())],
        repeat=repeat,
        tokens=tokens,
        seconds=seconds,
        on_start=progress.start,
        on_finding=progress.add,
    )
    interrupted = False
    try:
        report = asyncio.run(checking)
    except KeyboardInterrupt:
        if progress.report is None:
            raise
        report, interrupted = progress.report, True
        report.stopped = "interrupted"
    progress.end(report)
    if as_json is not None:
        as_json.write_text(in_json(reports.as_json(report), 2), "utf-8")
    if junit is not None:
        junit.write_text(reports.as_junit(report), "utf-8")
    if markdown is not None:
        markdown.write_text(reports.markdown(report), "utf-8")
    if interrupted:
        raise KeyboardInterrupt
    if report.of("wrong") or report.stopped or report.late:
        raise typer.Exit(WRONG)


class _Progress:
    """What is shown while the probes run, and behind them: on a terminal also how far it is, and how long it will take."""

    def __init__(self, console: "Console", verbose: bool) -> None:
        self._console, self._verbose = console, verbose
        self._dialect = ""
        self._status: Status | None = None
        self.report: CheckReport | None = None

    def start(self, report: "CheckReport") -> None:
        self.report = report
        title = f"{report.server} at {report.url}, model {report.model[:100]}: {len(report.planned)} probes"
        self._say(f"{title}, {', '.join(report.dialects)}")
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()

    def add(self, finding: "Finding") -> None:
        from callsmith.evals.check.report import MARKS, explain

        assert self.report is not None
        if finding.dialect.name != self._dialect:
            self._dialect = finding.dialect.name
            inline = not self._verbose and self._status is None
            self._console.print(f"\n{finding.dialect.title} ", end="" if inline else "\n")
        if self._verbose:
            self._say(f"  {MARKS[finding.verdict]} {finding.probe.name:<34}{finding.probe.title}")
        elif self._status is None:
            self._console.print(MARKS[finding.verdict], end="")
        elif finding.verdict == "wrong":
            self._say(*explain(self.report, finding)[:2])
        if self._status is not None:
            done = len(self.report.findings)
            remaining = self.report.seconds / done * (len(self.report.planned) - done)
            self._status.update(f"{done} of {len(self.report.planned)}, about {_spell(remaining)} left; {finding.name}")

    def end(self, report: "CheckReport") -> None:
        from callsmith.evals.check.report import explain, summary

        if self._status is not None:
            self._status.stop()
        self._console.print("\n")
        for finding in report.of("wrong", "weak"):
            self._say(*explain(report, finding))
            if self._verbose and finding.verdict == "wrong":
                for exchange in finding.exchanges:
                    self._console.print(in_json(exchange, 2), markup=False)
        self._console.print("")
        self._say(*summary(report))

    def _say(self, *lines: str) -> None:
        self._console.print("\n".join(map(one_line, lines)), markup=False)


def _spell(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
