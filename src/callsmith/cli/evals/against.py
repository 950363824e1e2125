"""`callsmith check URL --against REFERENCE`, and `--record`: a server held against a reference, on the same questions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from callsmith.cli.evals.cases import find_cases, print_rows
from callsmith.cli.evals.options import QUICK
from callsmith.cli.evals.progress import EvalProgress
from callsmith.cli.terminal.output import echo
from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.types.escaped_text import in_json
from callsmith.evals.against import report as reports
from callsmith.evals.against.answers import ReferenceAnswers, read_answers, write_answers
from callsmith.evals.against.comparison import AgainstReport, AskedServer, compare_servers
from callsmith.evals.against.measures import MEASURES, ComparedAnswer
from callsmith.evals.against.questions import Question, choose, from_case, own_questions, read_questions, repeat
from callsmith.evals.cases.sample import sample
from callsmith.evals.check.run import DIALECTS

BENCHMARK: Final = "bfcl"  # what --cases calls the benchmark's


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """What the options say about the questions, and how they are asked."""

    against: str
    against_key: str
    record: Path | None
    cases: str
    dialects: Sequence[str]
    only: Sequence[str]
    quick: bool
    per_category: int | None
    repeat: int
    tokens: int
    seconds: float
    concurrency: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that was asked, for the progress."""

    setup: str
    is_right: bool
    error: str


class _Progress:
    """What is shown while questions are asked."""

    def __init__(self) -> None:
        self.report: AgainstReport | None = None
        self._shown: EvalProgress | None = None

    def start(self, report: AgainstReport) -> None:
        self.report = report
        against = f", against {report.reference_model[:100]} of {report.reference}" if report.reference else ""
        echo(f"{report.server} at {report.url}, model {report.model[:100]}{against}: {len(report.questions)} questions")
        self._shown = EvalProgress([report.model], len(report.questions), with_scores=False)
        self._shown.__enter__()

    def add(self, answered: ComparedAnswer) -> None:
        assert self._shown is not None and self.report is not None
        self._shown.add(_Asked(self.report.model, True, answered.whole.error))

    def end(self) -> None:
        if self._shown is not None:
            self._shown.__exit__()


def hold_against(
    url: str,
    key: str,
    model: str,
    options: ComparisonOptions,
    thresholds: Sequence[str],
    as_json: Path | None,
    junit: Path | None,
    markdown: Path | None,
    *,
    verbose: bool,
) -> bool:
    """Ask both, show what came of it and write the reports. Whether all was asked, and the server is as the reference."""
    if len(options.dialects) > 1:
        raise UsageError("servers are compared in one dialect: name one with --dialect", field="dialect")
    dialect = (*options.dialects, "chat")[0]
    if dialect not in DIALECTS:
        raise UnknownName("dialect", dialect, DIALECTS, field="dialect")
    least, reference, progress = read_thresholds(thresholds), _find_reference(options), _Progress()
    comparing = compare_servers(
        AskedServer(url, key, model),
        find_questions(options),
        dialect=DIALECTS[dialect],
        reference=reference,
        tokens=options.tokens,
        seconds=options.seconds,
        concurrency=options.concurrency,
        least=least,
        on_start=progress.start,
        on_answer=progress.add,
    )
    interrupted = False
    try:
        report = asyncio.run(comparing)
    except KeyboardInterrupt:
        if progress.report is None:
            raise
        report, interrupted = progress.report, True
        report.stopped = "interrupted"
    finally:
        progress.end()
    _show(report, verbose=verbose)
    given = [item.whole for item in report.answers]
    if options.record is not None and (kept := write_answers(options.record, report.url, report.model, given)):
        echo(f"{kept} answers are in {options.record}: callsmith check URL --against {options.record}")
    if as_json is not None:
        as_json.write_text(in_json(reports.as_json(report), 2), "utf-8")
    if junit is not None:
        junit.write_text(reports.as_junit(report), "utf-8")
    if markdown is not None:
        markdown.write_text(reports.as_markdown(report), "utf-8")
    if interrupted:
        raise KeyboardInterrupt
    return report.is_finished and not report.failed


def find_questions(options: ComparisonOptions) -> list[Question]:
    """The questions that the options name."""
    path = Path(options.cases)
    if not options.cases:
        known = own_questions()
    elif options.cases == BENCHMARK and not path.exists():
        known = [from_case(case) for case in find_cases(None, ())]
    else:
        known = read_questions(path)
    most = QUICK if options.quick and options.per_category is None else options.per_category
    return repeat(sample(choose(known, options.only), per_category=most), options.repeat)


def read_thresholds(texts: Sequence[str]) -> dict[str, float]:
    """The shares that are good enough, by measure."""
    least: dict[str, float] = {}
    for text in texts:
        name, _, written = text.partition("=")
        if name not in (known := [measure.name for measure in MEASURES]):
            raise UnknownName("measure", name, known, field="threshold")
        try:
            share = float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise UsageError(f"{text!r} is no threshold: write {name}=0.9, or {name}=90%", field="threshold")
        least[name] = share
    return least


def _find_reference(options: ComparisonOptions) -> AskedServer | ReferenceAnswers | None:
    if not options.against:
        return None
    if options.against.startswith(("http://", "https://")):
        address, _, model = options.against.partition("#")
        return AskedServer(address, options.against_key, model)
    if not Path(options.against).exists():
        raise UsageError(
            f"{options.against!r} is no reference: neither an address (http://…) nor a file of answers", field="against"
        )
    return read_answers(Path(options.against))


def _show(report: AgainstReport, *, verbose: bool) -> None:
    print_rows(*reports.measures_table(report))
    if verbose:
        print_rows(*reports.categories_table(report))
    for item in report.measured():
        if item.wrong and (verbose or not item.is_enough):
            echo(f"{item.measure.name}: {item.measure.title}")
            for line in reports.examples(item, 1000 if verbose else 3):
                echo(f"    {line}")
    for head, remark in report.remarks.items():
        echo(f"{head}: {remark}")
    echo(reports.conclude(report))
