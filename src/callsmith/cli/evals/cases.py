"""The cases that commands ask, fetched where they have to be; and tables of what came of them."""

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from callsmith.cli.terminal.output import echo, echo_lines, print_table
from callsmith.core.errors import UsageError
from callsmith.evals.bfcl import fetch
from callsmith.evals.bfcl.checker import Checker
from callsmith.evals.bfcl.load import MULTI_TURN, SINGLE_TURN, load_cases
from callsmith.evals.cases.case import Case, read_cases
from callsmith.evals.run.record import Records


def find_cases(file: Path | None, categories: Sequence[str], *, with_conversations: bool = False) -> list[Case]:
    """The cases of a file, or the benchmark's; only of these categories, if there are any. `with_conversations`: also those of
    several turns, which take long."""
    if file is None:
        return load_cases(_fetch_benchmark(), categories or ([*SINGLE_TURN, *MULTI_TURN] if with_conversations else SINGLE_TURN))
    cases = read_cases(file)
    if missing := set(categories) - {case.category for case in cases}:
        raise UsageError(f"{file} has no case of {', '.join(sorted(missing))}", field="categories")
    return [case for case in cases if not categories or case.category in categories]


@contextmanager
def open_records(folder: Path) -> Generator[Records, None, None]:
    """The records in a folder, closed in the end; if the run is stopped, it says how to go on."""
    records = Records(folder)
    try:
        yield records
    except KeyboardInterrupt:
        echo_lines(f"\nStopped. What was answered is in {folder}; the same command goes on from there.", err=True)
        raise
    finally:
        records.close()


@asynccontextmanager
async def open_checker() -> AsyncGenerator[Checker | None, None]:
    """The benchmark's checker, if the benchmark has been fetched."""
    checker = Checker(fetch.benchmark_folder()) if fetch.is_fetched() else None
    try:
        yield checker
    finally:
        if checker is not None:
            await checker.close()


def _fetch_benchmark() -> Path:
    """The folder of the benchmark, which is fetched if it is not there."""
    from callsmith.core.types.quantities import write_size

    if not fetch.is_fetched():
        wheels = ", ".join(fetch.PINS)
        echo(f"Fetching {wheels} ({write_size(fetch.SIZE)}) into {fetch.benchmark_folder()}", err=True)
    return fetch.fetch()


def print_rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print_table(tuple(heads), [tuple(row) for row in rows])
