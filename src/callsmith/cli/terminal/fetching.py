"""Fetching weights and other large files, with a progress bar."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from callsmith.cli.terminal.output import echo
from callsmith.core.errors import Unavailable, UnknownName
from callsmith.core.types.quantities import write_size


def ensure(spec: str) -> None:
    """Fetch the weights of a catalogue name or a hub file, unless they are there, if there is an engine that can run them."""
    from callsmith.models.remote.providers import parse_spec
    from callsmith.models.weights.catalogue import catalogue
    from callsmith.models.weights.disk import find_file
    from callsmith.models.weights.fetch import locate
    from callsmith.models.weights.hub import parse

    if parse_spec(spec) or find_file(spec) or (spec not in catalogue() and parse(spec) is None):
        return  # of another server, a file of the user's own, or nothing that could be fetched
    try:
        locate(spec)
    except Unavailable:
        from callsmith.engines.llama.libllama import load

        load()  # if it is missing or does not work, say so before a gigabyte is fetched
        fetch(spec)


def fetch(spec: str, *, force: bool = False) -> Path:
    """Fetch weights, printing their size, their place and the progress."""
    from callsmith.models.weights import fetch as weights
    from callsmith.models.weights.catalogue import catalogue, weights_folder
    from callsmith.models.weights.hub import parse

    entry = catalogue().get(spec)
    if entry is None and parse(spec) is None:
        raise UnknownName("model", spec, catalogue())
    what = f"{spec} ({entry.title}), {write_size(entry.size)}," if entry else spec
    echo(f"Fetching {what} into {weights_folder()}", err=True)
    with download_bar(entry.size if entry else None) as report:
        return weights.fetch(spec, progress=report, force=force)


@contextmanager
def download_bar(size: int | None) -> Generator[Callable[[int, int], None], None, None]:
    """A progress bar on stderr. What it gives is called with how many bytes are there, and of how many (0: not known)."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("fetch", total=size)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
