"""`callsmith bus offer`: corpora and tools of this machine as capabilities of a bus."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsmith.cli.bus.node import connect, node_settings
from callsmith.cli.inputs.options import pairs
from callsmith.cli.terminal.output import echo
from callsmith.core.errors import UsageError

if TYPE_CHECKING:
    from callsmith.capabilities.corpus import Corpora
    from callsmith.core.ports import Toolset
    from callsmith.server.settings import Settings


def offer_capabilities(
    context: typer.Context,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            "--corpus", metavar="NAME=FOLDER", help="Text files that can be searched; again for more.", show_default=False
        ),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="What the names of the tools' capabilities begin with.")] = (
        "experimental.tools"
    ),
    database: Annotated[
        Path | None, typer.Option("--database", help="Where the index of the corpora is. Default: in memory.", show_default=False)
    ] = None,
) -> None:
    """Offer corpora (rag.query, rag.list_corpora) and tools (each as PREFIX.NAME) on a bus, until Ctrl-C.

    Whoever calls a tool that has side effects asks their person first: that is not done here.
    """
    from callsmith.capabilities.corpus import Corpora
    from callsmith.cli.inputs.toolsets import load_toolset

    settings = node_settings(context)
    folders = {name: Path(folder) for name, folder in pairs("--corpus", corpus).items()}
    toolset = load_toolset(settings.llm.tools) if settings.llm.tools else None
    if not folders and toolset is None:
        raise UsageError("nothing to offer: give --corpus NAME=FOLDER, or --tools MODULE")
    corpora = Corpora(database)
    for name, folder in folders.items():
        done = corpora.index(name, folder)
        echo(f"Corpus {name}: {done.changed} documents indexed, {done.unchanged} as they were, {done.removed} removed.")
    asyncio.run(_offer(settings, corpora if folders else None, toolset, prefix))


async def _offer(settings: "Settings", corpora: "Corpora | None", toolset: "Toolset | None", prefix: str) -> None:
    from callsmith.bus.offer import offer

    async with connect(settings, calls_only=False) as bus:
        if corpora is not None:
            corpora.register(bus)
        if toolset is not None:
            await offer(bus, toolset, prefix)
        names = ", ".join(sorted(one.descriptor.reference for one in bus.offers() if one.is_local))
        echo(f"Offering {names} as {bus.node}. Ctrl-C ends it.")
        await asyncio.Event().wait()
