"""`callsmith chat`: talk to a model in the terminal, watch it call tools, and be asked before it does something."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsmith.cli.inputs.options import alias_of, register_user_files
from callsmith.cli.inputs.setting_options import SettingsCommand, settings_of
from callsmith.core.errors import CallsmithError, LimitReached, Unavailable
from callsmith.core.values import Choice, Sampling

if TYPE_CHECKING:
    import asyncio

    from rich.console import Console

    from callsmith.cli.terminal.approvals import Approver
    from callsmith.core.events import RunEvent
    from callsmith.core.ports import Model, OpenedModel, Toolset
    from callsmith.runtime.conversation.conversation import Conversation, Settings
    from callsmith.runtime.telemetry.turns import Recorder
    from callsmith.server.settings import Llm

MOST_UNSEEN = 25  # approvals in one turn where no person gives them
HELP = "/reset forgets the conversation, /save FILE keeps it, /tools lists the tools, /quit ends (or Ctrl-D)."


class ChatCommand(SettingsCommand):
    """`callsmith chat`, with options for the settings of the model, its tools and the trace."""

    only = (
        "server.guards",
        "llm.model",
        "llm.format",
        "llm.format_file",
        "llm.presets",
        "llm.chat_template",
        "llm.context",
        "llm.threads",
        "llm.gpu_layers",
        "llm.tool_choice_policy",
        "llm.auto_guarded",
        "llm.in_reasoning",
        "llm.api",
        "llm.repair",
        "llm.tools",
        "llm.tools_budget",
        "mcp.config",
        "mcp.command",
        "mcp.args",
        "mcp.trust",
        "log.trace",
    )


def chat(
    context: typer.Context,
    prompt: Annotated[str | None, typer.Argument(help="Ask this one thing and exit; - reads it from standard input.")] = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Offer no tools.")] = False,
    tool_choice: Annotated[str, typer.Option("--tool-choice", help="auto, required, none, or a tool's name.")] = "auto",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Run calls that have side effects without asking.")] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", dir_okay=False, help="Save the conversation to this file; continue it if the file exists."),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="The longest answer.", show_default=False)] = None,
) -> None:
    """Chat with a model that has tools: by default a clock, a calculator, made-up weather and messages.

    You are asked before a call that has side effects runs.
    """
    import asyncio

    from rich.console import Console

    from callsmith.cli.inputs.mcp_servers import opened_host, servers, wait_until_started
    from callsmith.cli.inputs.toolsets import load_toolset
    from callsmith.cli.terminal.approvals import Approver
    from callsmith.runtime.discovery.find_tools import ToolCosts, limit_shown_tools
    from callsmith.runtime.telemetry.trace_file import TraceFile
    from callsmith.tools.functions import Functions
    from callsmith.tools.mcp.elicitation import ClientFeatures
    from callsmith.tools.wrap import Confirmed, Merged

    given = settings_of(context)
    llm, mcp = given.llm, given.mcp
    asked = () if no_tools else servers(mcp)
    nothing = no_tools or (asked and llm.tools is None)
    toolset = Confirmed(Functions() if nothing else load_toolset(llm.tools or "demo"))
    settings: Settings = {"choice": _choice(tool_choice), "sampling": Sampling(max_tokens=max_tokens)}
    settings["guards"] = ()  # they stand around the model already
    recorder = TraceFile(given.log.trace) if given.log.trace else None
    spec, opened = _open(llm)
    console = Console(highlight=False)
    approver = Approver(console, yes)
    features = ClientFeatures(approver.answer, opened)
    with asyncio.Runner() as runner, ExitStack() as stack:
        stack.callback(lambda: runner.run(opened.close()))
        host = stack.enter_context(opened_host(asked, features, runner))
        runner.run(wait_until_started(host))
        if failed := [status for status in host.status() if status.state == "failed"]:
            raise Unavailable(f"the MCP server {failed[0].name} has failed: {failed[0].error}", hint='Or set it to "disabled".')
        offered = Merged(("functions", toolset), ("mcp", Confirmed(host, host.policy))) if asked else toolset
        shown = limit_shown_tools(opened, offered, ToolCosts(), llm.tools_budget, guards=None if given.guards else ())
        setup = ChatSetup(*runner.run(shown), settings, save, recorder, alias_of(spec))
        session = ChatSession(setup, console, approver, runner)
        session.take_up()
        if prompt is not None:
            session.say(sys.stdin.read() if prompt == "-" else prompt)
        else:
            _converse(session, spec)


def _open(llm: "Llm") -> "tuple[str, OpenedModel]":
    """Open the model, and fetch its weights first if they are missing; also what it was asked for by."""
    from callsmith.cli.terminal.fetching import ensure
    from callsmith.models import Options, open_model
    from callsmith.models.weights.catalogue import default_model

    spec = llm.model or default_model()
    ensure(spec)
    format = register_user_files(llm)
    template = Path(llm.chat_template) if llm.chat_template else None
    options = Options(
        format,
        template,
        llm.context,
        llm.threads,
        gpu_layers=llm.gpu_layers,
        policy=llm.tool_choice_policy,
        auto_guarded=llm.auto_guarded or None,
        in_reasoning=llm.in_reasoning,
        api=llm.api,
        repair=llm.repair,
    )
    return spec, open_model(spec, options)


@dataclass(frozen=True, slots=True)
class ChatSetup:
    """What every conversation of this command is started with."""

    model: "Model"
    toolset: "Toolset"
    settings: "Settings"
    save: Path | None
    recorder: "Recorder | None"
    name: str

    def conversation(self, *, anew: bool) -> "Conversation":
        """The saved conversation, if there is one and no new one is asked for."""
        from callsmith.runtime.conversation.conversation import Conversation

        if self.save is not None and self.save.exists():
            if not anew:
                return Conversation.load(self.save, self.model, self.toolset, journal=self.save, **self.settings)
            self.save.unlink()
        return Conversation(self.model, self.toolset, journal=self.save, **self.settings)

    async def watched(self, events: "AsyncIterator[RunEvent]") -> "AsyncIterator[RunEvent]":
        """The events of a turn; with --trace the turn is recorded."""
        from callsmith.runtime.telemetry.turns import TurnInfo, record_turn

        if self.recorder is None:
            return events
        asked = TurnInfo(self.name, await self.toolset.tools(), self.settings.get("choice", Choice()))
        return record_turn(events, self.recorder, asked)


@dataclass(slots=True)
class ChatSession:
    """A conversation in a terminal. The user is asked for approvals between the steps of a turn."""

    setup: ChatSetup
    console: "Console"
    approver: "Approver"
    runner: "asyncio.Runner"
    conversation: "Conversation" = field(init=False)

    def __post_init__(self) -> None:
        self.conversation = self.setup.conversation(anew=False)

    def say(self, text: str) -> None:
        """Run one turn: the user's message, and everything until the model has answered."""
        self._show(self.conversation.stream(text))
        self._ask()

    def take_up(self) -> None:
        """Resume a turn that was left unfinished."""
        self._ask()
        if self.conversation.unfinished:
            self._show(self.conversation.stream_resume())
            self._ask()

    def run_command(self, line: str) -> None:
        """Run a command: a line that begins with a slash."""
        command, _, rest = line.partition(" ")
        match command:
            case "/reset":
                self.conversation = self.setup.conversation(anew=True)
                self.console.out("The conversation is forgotten.")
            case "/save" if rest.strip():
                self.conversation.save(rest.strip())
            case "/tools":
                for tool in self.runner.run(self.setup.toolset.tools()):
                    summary = tool.description.partition("\n")[0]
                    self.console.out(f"{tool.name}({', '.join(tool.parameters.get('properties', ()))}): {summary}")
            case _:
                self.console.out(HELP)

    def _ask(self) -> None:
        """Ask for decisions until no call waits. Where no person is there to see it, the number of approvals is limited."""
        rounds = 0
        while pending := self.conversation.pending:
            rounds += 1
            if rounds > MOST_UNSEEN and not self.approver.attended:
                raise LimitReached("confirmations", f"the model has asked for {MOST_UNSEEN} confirmations in one turn")
            self._show(self.conversation.stream_resume(self.approver.decide(pending)))

    def _show(self, events: "AsyncIterator[RunEvent]") -> None:
        from callsmith.cli.terminal.transcript import Transcript
        from callsmith.core.closing import closing

        async def show() -> None:
            transcript = Transcript(self.console)
            async with closing(await self.setup.watched(events)) as shown:
                async for event in shown:
                    transcript.show(event)

        self.runner.run(show())


def _converse(session: ChatSession, spec: str) -> None:
    """Run turn after turn. An error in one is printed, and the next may be tried."""
    if sys.stdin.isatty():
        session.console.out(f"{spec}. {HELP}", style="dim")
    for line in _lines():
        if line == "/quit":
            return
        try:
            if line.startswith("/"):
                session.run_command(line)
            else:
                session.say(line)
        except KeyboardInterrupt:
            session.console.out("\n(stopped)", style="dim")
        except CallsmithError as error:
            typer.secho(f"error: {error}", err=True, fg="red")


def _lines() -> Iterator[str]:
    """The user's lines: typed at a prompt, or read from a pipe."""
    if not sys.stdin.isatty():
        yield from filter(None, map(str.strip, sys.stdin))
        return
    with suppress(ImportError):
        import_module("readline")  # gives input() its history and line editing
    while True:
        try:
            line = input("\n> ").strip()
        except EOFError:
            return
        if line:
            yield line


def _choice(text: str) -> Choice:
    return Choice(text) if text == "auto" or text == "required" or text == "none" else Choice.only(text)
