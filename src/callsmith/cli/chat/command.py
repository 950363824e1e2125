"""The command: its options, the model and the tools they name, and turn after turn."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsmith.cli.inputs.completion import complete_choice
from callsmith.cli.inputs.options import alias_of, example
from callsmith.cli.inputs.setting_options import SettingsCommand, settings_of
from callsmith.cli.terminal.output import echo_lines
from callsmith.core.errors import CallsmithError, Unavailable, UsageError
from callsmith.core.options import EngineOptions, options_in

if TYPE_CHECKING:
    from rich.console import Console

    from callsmith.cli.chat.session import ChatSession
    from callsmith.core.ports import OpenedModel
    from callsmith.core.values import Choice
    from callsmith.runtime.conversation.conversation import ConversationOptions
    from callsmith.server.settings import Settings as ServerSettings

app = typer.Typer()


class ChatCommand(SettingsCommand):
    """`callsmith chat`, with options for the settings of the model, its tools and the trace."""

    only = (
        "server.guards",
        "llm.model",
        "llm.default_model",
        "llm.format",
        "llm.format_file",
        "llm.presets",
        "llm.chat_template",
        *(option.name for option in options_in("llm", EngineOptions)),
        "llm.tool_choice_policy",
        "llm.auto_guarded",
        "llm.tool_prompt",
        "llm.call_bias",
        "llm.in_reasoning",
        "llm.api",
        "llm.repair",
        "llm.tools",
        "llm.tools_budget",
        "mcp.config",
        "mcp.command",
        "mcp.args",
        "mcp.trust",
        "mcp.allow",
        "log.trace",
    )


@app.command(
    cls=ChatCommand,
    epilog=example("callsmith chat --tools mytools --save talk.json", 'callsmith chat "Summarise this." < notes.txt'),
)
def chat(
    context: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(help="Ask this one thing and exit; what is piped in is appended. - is standard input alone."),
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="Instructions to the model.", show_default=False)] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0, help="How freely it chooses its words; 0: not at all.", show_default=False),
    ] = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Offer no tools.")] = False,
    tool_choice: Annotated[
        str, typer.Option("--tool-choice", autocompletion=complete_choice, help="auto, required, none, or a tool's name.")
    ] = "auto",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Run calls that have side effects without asking.")] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", dir_okay=False, help="Save the conversation to this file; continue it if the file exists."),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="The longest answer.", show_default=False)] = None,
) -> None:
    """Chat with a model that has tools: by default a clock, a calculator, made-up weather and messages.

    You are asked before a call that has side effects runs. /help in the chat lists what else it can do.
    """
    import asyncio

    from rich.console import Console

    from callsmith.cli.chat.session import ChatSession, ChatSetup, CurrentModel
    from callsmith.cli.inputs.default_model import pick_default
    from callsmith.cli.inputs.mcp_servers import opened_host, servers, wait_until_started
    from callsmith.cli.inputs.toolsets import load_toolset
    from callsmith.cli.terminal.approvals import Approver
    from callsmith.core.values import Sampling
    from callsmith.runtime.telemetry.trace import TraceFile
    from callsmith.tools.functions import Functions
    from callsmith.tools.mcp.elicitation import ClientFeatures
    from callsmith.tools.wrap import Confirmed, Merged

    options = settings_of(context)
    llm, mcp = options.llm, options.mcp
    configured = () if no_tools else servers(mcp)
    nothing = no_tools or (configured and llm.tools is None)
    toolset = Confirmed(Functions() if nothing else load_toolset(llm.tools or "demo"))
    sampling = Sampling(max_tokens=max_tokens, temperature=temperature)
    # The guards stand around the model already.
    settings: ConversationOptions = {"choice": _choice(tool_choice), "sampling": sampling, "guards": ()}
    recorder = TraceFile(options.log.trace) if options.log.trace else None
    console = Console(highlight=False)
    open_one = partial(_open, options, console)
    spec = llm.model or pick_default(llm.default_model)
    current = CurrentModel(spec, open_one(spec))
    approver = Approver(console, yes)
    features = ClientFeatures(approver.answer, current)
    with asyncio.Runner() as runner, ExitStack() as stack:
        stack.callback(lambda: runner.run(current.opened.close()))
        host = stack.enter_context(opened_host(configured, features, runner))
        runner.run(wait_until_started(host))
        if failed := [status for status in host.status() if status.state == "failed"]:
            raise Unavailable(f"the MCP server {failed[0].name} has failed: {failed[0].error}", hint='Or set it to "disabled".')
        offered = Merged(("functions", toolset), ("mcp", Confirmed(host, host.policy))) if configured else toolset
        setup = ChatSetup(open_one, alias_of, offered, llm.tools_budget, options.guards, settings, system, save, recorder, host)
        session = ChatSession(setup, current, console, approver, runner)
        if prompt is not None:
            session.take_up()
            session.say(_with_input(prompt))
        else:
            _converse(session)


def _open(settings: "ServerSettings", console: "Console", spec: str) -> "OpenedModel":
    """Open a model, and fetch its weights first if they are missing."""
    from callsmith.cli.inputs.served_models import model_options
    from callsmith.cli.terminal.fetching import ensure
    from callsmith.cli.terminal.screen import StatusLine
    from callsmith.models import open_model

    ensure(spec)
    options = model_options(settings.llm, settings)
    with StatusLine(console, lambda: f"loading {spec}"):
        return open_model(spec, options)


def _with_input(prompt: str) -> str:
    """The question, and below it what was piped in; what was piped in alone for `-`."""
    from callsmith.cli.chat.line_editor import piped_text

    piped = piped_text()
    return piped if prompt == "-" else "\n\n".join(filter(None, (prompt, piped.rstrip("\n"))))


def _converse(session: "ChatSession") -> None:
    """Run turn after turn. An error in one is printed, and the next may be tried."""
    from callsmith.cli.chat.commands import is_command, run_command

    if sys.stdin.isatty():
        session.greet()
    session.take_up()
    for line in _messages(session):
        try:
            if is_command(line):
                run_command(session, line)
            else:
                session.say(line)
        except EOFError:
            return
        except KeyboardInterrupt:
            session.tell("(stopped)")
        except CallsmithError as error:
            echo_lines(f"error: {error}", err=True, fg="red")


def _messages(session: "ChatSession") -> Iterator[str]:
    """What the user says: typed at a prompt, or read from a pipe, where every line is a message."""
    from callsmith.cli.chat.commands import complete_line
    from callsmith.cli.chat.line_editor import open_editor

    if not sys.stdin.isatty():
        try:
            yield from filter(None, map(str.strip, sys.stdin))
        except UnicodeDecodeError as error:
            raise UsageError(f"what comes from standard input is no text: {error}") from error
        return
    editor = open_editor(session.runner, partial(complete_line, session, _model_names))
    if editor.hint:
        session.tell(editor.hint)
    while True:
        try:
            if line := editor.read().strip():
                yield line
        except EOFError:
            return
        except KeyboardInterrupt:
            session.tell("(Ctrl-D or /quit leaves)")


def _model_names() -> list[str]:
    from callsmith.models.weights.found import list_model_names

    return list_model_names()


def _choice(text: str) -> "Choice":
    from callsmith.core.values import Choice

    return Choice(text) if text == "auto" or text == "required" or text == "none" else Choice.only(text)
