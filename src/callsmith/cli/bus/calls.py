"""`callsmith bus list`, `call`, `chat` and `offer`: what is on a bus, using it from a terminal, and adding to it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.bus.node import authority_with, connect, node_settings
from callsmith.cli.inputs.options import pairs
from callsmith.cli.terminal.output import echo
from callsmith.core.errors import CallsmithError, UsageError
from callsmith.core.types.tables import Table

if TYPE_CHECKING:
    from callsmith.capabilities.corpus import Corpora
    from callsmith.core.capability.authority import Authority
    from callsmith.core.ports import Toolset
    from callsmith.core.values import Request
    from callsmith.server.settings import Settings

TokenOption = Annotated[
    str | None, typer.Option("--token", help="A token that the call is made with, or a file with one.", show_default=False)
]


def list_offers(context: typer.Context) -> None:
    """List the nodes of a bus and what they offer."""
    import asyncio

    settings = node_settings(context)

    async def offers() -> list[Any]:
        async with connect(settings) as bus:
            return list(bus.offers())

    listed = sorted(asyncio.run(offers()), key=lambda offer: (offer.node, offer.descriptor.name, offer.descriptor.version))
    for node in dict.fromkeys(item.node for item in listed):
        echo(node)
        for offer in listed:
            if offer.node == node:
                params = "".join(f" {name}={json.dumps(value)}" for name, value in offer.descriptor.params.items())
                line = f"  {offer.descriptor.reference:34} {offer.descriptor.description}{params if len(params) < 120 else ''}"
                echo(line.replace("\n", " "))
    if not listed:
        echo("Nothing is offered.", err=True)


def call_capability(
    context: typer.Context,
    capability: Annotated[str, typer.Argument(help="The capability and its version, as rag.query@1.0.")],
    body: Annotated[str, typer.Argument(help='The body: {"params": {…}, "input": {…}}.')] = "{}",
    stream: Annotated[bool, typer.Option("--stream", help="Print the frames of the answer as they come, one a line.")] = False,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Seconds to wait.", show_default=False)] = None,
    session: Annotated[str, typer.Option("--session", help="Calls of one session stay with one node.")] = "",
    token: TokenOption = None,
) -> None:
    """Call a capability, and print its answer as JSON."""
    from callsmith.wire.capability.envelopes import parse_reference
    from callsmith.wire.capability.errors import BusError
    from callsmith.wire.capability.frames import encode_frame

    settings = node_settings(context)
    try:
        name, version = parse_reference(capability)
    except BusError as error:
        raise UsageError(error.message) from error
    content = _parse_body(body)
    authority = authority_with(token, settings)

    async def run() -> None:
        async with connect(settings, name) as bus:
            if not stream:
                answer = await bus.call(name, version, content, session_id=session, timeout=timeout, authority=authority)
                echo(json.dumps(answer, ensure_ascii=False))
                return
            async for frame in bus.stream(name, version, content, session_id=session, timeout=timeout, authority=authority):
                echo(encode_frame(frame).decode())
                frame.raise_error()

    _run_with_codes(run())


def chat_over_bus(
    context: typer.Context,
    question: Annotated[str, typer.Argument(help="What to ask.")],
    tools: Annotated[
        list[str] | None,
        typer.Option("--tool", help="A built-in tool, or a pattern of capabilities, as experimental.home.*.", show_default=False),
    ] = None,
    model: Annotated[str, typer.Option("--model", help="The model. Default: the first that a node has.")] = "",
    tool_choice: Annotated[str, typer.Option("--tool-choice", help="auto, required, none, or a tool's name.")] = "auto",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="The longest answer.")] = 1024,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Run calls that have side effects without asking.")] = False,
    token: TokenOption = None,
) -> None:
    """Ask a model of the bus one question. It may call tools, which are capabilities of any node; you are asked before one with
    side effects runs.
    """
    from callsmith.core.values import Choice, Message, Request, Sampling

    settings = node_settings(context)
    choice = Choice(tool_choice) if tool_choice in ("auto", "required", "none") else Choice.only(tool_choice)
    request = Request((Message.user(question),), choice=choice, sampling=Sampling(max_tokens=max_tokens))
    _run_with_codes(_chat(settings, model, request, tools or [], yes, authority_with(token, settings)))


async def _chat(
    settings: "Settings", name: str, request: "Request", tools: list[str], yes: bool, authority: "Authority | None"
) -> None:
    """Ask the model; the user is asked for approvals between the steps."""
    import asyncio

    from rich.console import Console

    from callsmith.capabilities.executor import BusModel
    from callsmith.cli.terminal.approvals import Approver
    from callsmith.cli.terminal.transcript import Transcript
    from callsmith.core.closing import closing
    from callsmith.core.events import ConfirmationNeeded, TurnEnded
    from callsmith.core.ports import Context
    from callsmith.runtime.loop import run
    from callsmith.server.parts.bus.node import bus_tools
    from callsmith.tools.wrap import Confirmed

    console = Console(highlight=False)
    approver, transcript = Approver(console, yes), Transcript(console)
    async with connect(settings, "llm.chat") as bus:
        bus_toolset = bus_tools(bus, tools)
        toolset = Confirmed(bus_toolset) if bus_toolset else None
        context, waiting = Context(authority=authority), list[ConfirmationNeeded]()
        while True:
            waiting.clear()
            async with closing(run(BusModel(bus, name, authority=authority), toolset, request, context=context)) as events:
                async for event in events:
                    transcript.show(event)
                    if isinstance(event, ConfirmationNeeded):
                        waiting.append(event)
                    elif isinstance(event, TurnEnded):
                        request = replace(request, messages=(*request.messages, *event.messages))
            if not waiting:
                return
            decisions = await asyncio.to_thread(approver.decide, waiting)
            questions = {needed.call.id: needed.tool for needed in waiting if needed.tool is not None}
            context = replace(context, decisions=decisions, asked=questions)


def _parse_body(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the body is no JSON: {error}") from error
    return dict(Table.of(value, 'the body, {"params": {…}, "input": {…}}').data)


def _run_with_codes(work: Any) -> None:
    """Run the work; an error of the bus is reported with its code."""
    import asyncio

    from callsmith.wire.capability.errors import BusError

    try:
        asyncio.run(work)
    except BusError as error:
        raise CallsmithError(f"{error.code}: {error.message}") from error


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
    import asyncio

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
    import asyncio

    from callsmith.bus.offer import offer

    async with connect(settings, calls_only=False) as bus:
        if corpora is not None:
            corpora.register(bus)
        if toolset is not None:
            await offer(bus, toolset, prefix)
        names = ", ".join(sorted(offer.descriptor.reference for offer in bus.offers() if offer.is_local))
        echo(f"Offering {names} as {bus.node}. Ctrl-C ends it.")
        await asyncio.Event().wait()
