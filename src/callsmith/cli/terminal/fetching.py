"""Fetching weights and other large files, with a progress bar."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from callsmith.cli.terminal.output import echo, echo_lines
from callsmith.core.errors import Unavailable, UnknownName
from callsmith.core.types.quantities import write_size


def ensure(spec: str) -> None:
    """Fetch the weights of a catalogue name or of a model on a hub, unless they are there, if there is an engine that can run
    them. What is chosen among a repository's models is told."""
    from callsmith.models.remote.providers import parse_spec
    from callsmith.models.weights.catalogue import catalogue
    from callsmith.models.weights.hub_names import parse

    if not parse_spec(spec) and (spec in catalogue() or parse(spec)):  # not of another server, and something that can be fetched
        find_or_fetch(spec, for_engine=True)


def find_or_fetch(spec: str, *, for_engine: bool = False) -> Path:
    """The weights, fetched if they are not there."""
    from callsmith.models.opening import find_weights
    from callsmith.models.weights.catalogue import catalogue
    from callsmith.models.weights.disk import find_path

    try:
        return Path(find_weights(spec)[1])
    except Unavailable:
        if spec not in catalogue() and find_path(spec):
            raise  # a file of the user's own that is damaged
        return fetch(spec, for_engine=for_engine)


def fetch(spec: str, *, force: bool = False, for_engine: bool = False) -> Path:
    """Fetch weights, printing what they are, their size and the progress. `for_engine`: not if nothing here can run them."""
    from callsmith.engines.cache_folder import hub_cache_folder
    from callsmith.models.weights import fetch as weights
    from callsmith.models.weights import hub
    from callsmith.models.weights.catalogue import catalogue, weights_folder
    from callsmith.models.weights.hub_models import hub_models

    entry, name = catalogue().get(spec), hub.parse(spec)
    if entry:
        if for_engine:
            _check_engine("llama")
        echo(f"Fetching {spec} ({entry.title}), {write_size(entry.size)}, into {weights_folder()}", err=True)
        with download_bar(entry.size) as report:
            return weights.fetch(spec, progress=report, force=force)
    if name is None:
        raise UnknownName("model", spec, [*catalogue(), *hub_models()])
    plan = hub.plan_download(name)
    if for_engine:
        _check_engine("transformers" if plan.variant.is_checkpoint else "llama")
    echo_lines(f"{plan.describe()}\nFetching it into {hub_cache_folder()}", err=True)
    with download_bar(plan.size) as report:
        return hub.download(plan, report, force=force)


def _check_engine(scheme: str) -> None:
    """If the engine is missing or does not work, say so before a gigabyte is fetched."""
    from callsmith.engines import find_engine

    find_engine(scheme)
    if scheme == "llama":
        from callsmith.engines.llama.libllama import load

        load()


@contextmanager
def download_bar(size: int | None) -> Generator[Callable[[int, int], None], None, None]:
    """A progress bar on stderr. What it gives is called with how many bytes are there, and of how many (0: not known)."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("fetch", total=size)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
