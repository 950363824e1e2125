"""The cases that commands ask, fetched where they have to be; and tables of what came of them."""

from collections.abc import Sequence
from pathlib import Path

from callsmith.cli.terminal.output import echo, print_table
from callsmith.core.errors import UsageError
from callsmith.evals.bfcl import fetch
from callsmith.evals.bfcl.load import MULTI_TURN, SINGLE_TURN, load_cases
from callsmith.evals.cases.case import Case, read_cases


def find_cases(file: Path | None, categories: Sequence[str], *, with_conversations: bool = False) -> list[Case]:
    """The cases of a file, or the benchmark's; only of these categories, if there are any. `with_conversations`: also those of
    several turns, which take long."""
    if file is None:
        return load_cases(_fetch_benchmark(), categories or ([*SINGLE_TURN, *MULTI_TURN] if with_conversations else SINGLE_TURN))
    found = [case for case in read_cases(file) if not categories or case.category in categories]
    if not found:
        raise UsageError(f"{file} has no case of {', '.join(categories)}", field="categories")
    return found


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
