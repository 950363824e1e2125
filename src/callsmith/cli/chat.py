"""`callsmith chat`: talk to a model in the terminal, and watch it call tools."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from callsmith.cli.options import (
    ContextOption,
    FormatFileOption,
    FormatOption,
    ModelOption,
    TemplateOption,
    ThreadsOption,
    ToolsOption,
    named_format,
)
from callsmith.core.errors import CallsmithError
from callsmith.core.values import Choice, Message, Request, Sampling

if TYPE_CHECKING:
    import asyncio

    from rich.console import Console

    from callsmith.core.ports import Model, Toolset

HELP = "/reset forgets the conversation, /tools lists the tools, /quit ends (or Ctrl-D)."


def chat(
    prompt: Annotated[str | None, typer.Argument(help="Ask this one thing and exit; - reads it from standard input.")] = None,
    model: ModelOption = None,
    tools: ToolsOption = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Offer no tools.")] = False,
    tool_choice: Annotated[str, typer.Option("--tool-choice", help="auto, required, none, or a tool's name.")] = "auto",
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="The longest answer.", show_default=False)] = None,
    format: FormatOption = None,
    format_file: FormatFileOption = None,
    chat_template: TemplateOption = None,
    context: ContextOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Chat with a model that has tools: by default a clock, a calculator and made-up weather."""
    import asyncio

    from rich.console import Console

    from callsmith.cli.fetching import ensure
    from callsmith.cli.toolsets import load_toolset
    from callsmith.models import Options, open_model
    from callsmith.models.catalogue import default_model
    from callsmith.tools.functions import Functions

    toolset = Functions() if no_tools else load_toolset(tools or "demo")
    asked = Request((), choice=_choice(tool_choice), sampling=Sampling(max_tokens=max_tokens))
    spec = model or default_model()
    ensure(spec)
    opened = open_model(spec, Options(named_format(format, format_file), chat_template, context, threads))
    talk = Talk(opened, toolset, asked, Console(highlight=False))
    try:
        with asyncio.Runner() as runner:
            if prompt is not None:
                runner.run(talk.say(sys.stdin.read() if prompt == "-" else prompt))
            else:
                _converse(talk, runner, spec)
    finally:
        opened.engine.close()


@dataclass(slots=True)
class Talk:
    """A conversation on a console. `request` holds all that has been said."""

    model: "Model"
    toolset: "Toolset"
    request: Request
    console: "Console"

    async def say(self, text: str) -> None:
        """One turn: what the user says, and all that happens until the model has answered."""
        from callsmith.cli.transcript import Transcript
        from callsmith.core.events import TurnEnded
        from callsmith.runtime.closing import closing
        from callsmith.runtime.loop import run

        transcript = Transcript(self.console)
        said = (*self.request.messages, Message.user(text))
        async with closing(run(self.model, self.toolset, replace(self.request, messages=said))) as events:
            async for event in events:
                transcript.show(event)
                if isinstance(event, TurnEnded):
                    self.request = replace(self.request, messages=(*said, *event.messages))

    async def obey(self, command: str) -> None:
        """A line that begins with a slash."""
        match command:
            case "/reset":
                self.request = replace(self.request, messages=())
                self.console.out("The conversation is forgotten.")
            case "/tools":
                for tool in await self.toolset.tools():
                    summary = tool.description.partition("\n")[0]
                    self.console.out(f"{tool.name}({', '.join(tool.parameters.get('properties', ()))}): {summary}")
            case _:
                self.console.out(HELP)


def _converse(talk: Talk, runner: "asyncio.Runner", spec: str) -> None:
    """Turn after turn. What goes wrong in one is told, and the next may be tried."""
    if sys.stdin.isatty():
        talk.console.out(f"{spec}. {HELP}", style="dim")
    for line in _lines():
        if line == "/quit":
            return
        try:
            runner.run(talk.obey(line) if line.startswith("/") else talk.say(line))
        except KeyboardInterrupt:
            talk.console.out("\n(stopped)", style="dim")
        except CallsmithError as error:
            typer.secho(f"error: {error}", err=True, fg="red")


def _lines() -> Iterator[str]:
    """What the user says: typed at a prompt, or line by line out of a pipe."""
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
