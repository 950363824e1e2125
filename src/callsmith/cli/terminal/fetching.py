"""Fetching weights, with a progress bar."""

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
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from callsmith.models.weights import fetch as weights
    from callsmith.models.weights.catalogue import catalogue, weights_folder
    from callsmith.models.weights.hub import parse

    entry = catalogue().get(spec)
    if entry is None and parse(spec) is None:
        raise UnknownName("model", spec, catalogue())
    what = f"{spec} ({entry.title}), {write_size(entry.size)}," if entry else spec
    echo(f"Fetching {what} into {weights_folder()}", err=True)
    with Progress(
        BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True)
    ) as progress:
        task = progress.add_task("fetch", total=entry.size if entry else None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total or None)

        return weights.fetch(spec, progress=report, force=force)
