"""A chat at the terminal: turns with a model that may be switched, and questions about calls between their steps."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from callsmith.cli.terminal.approvals import echo_keys
from callsmith.cli.terminal.screen import StatusLine
from callsmith.cli.terminal.transcript import Transcript
from callsmith.core.closing import closing
from callsmith.core.errors import LimitReached, Unavailable
from callsmith.core.events import RunEvent, Started, Text, ToolFinished, ToolStarted
from callsmith.core.ports import Model, ModelInfo, OpenedModel, Toolset
from callsmith.core.types.escaped_text import show_hidden
from callsmith.core.values import Choice, Request
from callsmith.runtime.conversation.conversation import Conversation, ConversationOptions
from callsmith.runtime.discovery import ToolCosts, limit_shown_tools
from callsmith.runtime.telemetry.turns import Recorder, TurnInfo, record_turn

if TYPE_CHECKING:
    from rich.console import Console

    from callsmith.cli.terminal.approvals import Approver
    from callsmith.core.events import ModelEvent
    from callsmith.tools.mcp import McpHost

MOST_UNSEEN = 25  # approvals in one turn where no person gives them


@dataclass(slots=True)
class CurrentModel:
    """The model the chat is with just now, and what it was asked for by."""

    spec: str
    opened: OpenedModel

    @property
    def info(self) -> ModelInfo:
        return self.opened.info

    def stream(self, request: Request) -> "AsyncIterator[ModelEvent]":
        return self.opened.stream(request)


@dataclass(frozen=True, slots=True)
class ChatSetup:
    """What every conversation of this chat is started with. `open` opens a model, and `alias` is what records call it.

    `instructions` are None where the user has given none.
    """

    open: Callable[[str], OpenedModel]
    alias: Callable[[str], str]
    tools: Toolset
    tools_budget: int | None
    has_guards: bool
    settings: ConversationOptions
    instructions: str | None
    save: Path | None
    recorder: Recorder | None
    host: "McpHost | None" = None


@dataclass(slots=True)
class ChatSession:
    """A conversation in a terminal. The user is asked for approvals between the steps of a turn."""

    setup: ChatSetup
    current: CurrentModel
    console: "Console"
    approver: "Approver"
    runner: asyncio.Runner
    model: Model = field(init=False)
    toolset: Toolset = field(init=False)  # as it is shown to the model
    tool_names: tuple[str, ...] = field(init=False)
    conversation: Conversation = field(init=False)
    attached: list[str] = field(default_factory=list[str])  # what goes along with what is said next

    def __post_init__(self) -> None:
        self._show_tools()
        save, instructions = self.setup.save, self.setup.instructions
        self.conversation = self._begin() if save is None or not save.exists() else self._load(save, save)
        if instructions is not None and instructions != self.conversation.instructions:
            self.runner.run(self.conversation.instruct(instructions))

    def tell(self, text: str, style: str = "dim") -> None:
        """Print something of our own, wrapped by words where it is on a screen."""
        from rich.text import Text as StyledText

        self.console.print(StyledText(show_hidden(text), style), soft_wrap=not self.console.is_terminal)

    def say(self, text: str) -> None:
        """Run one turn: the user's message, and everything until the model has answered."""
        whole = "\n\n".join((*self.attached, text))
        self.attached.clear()
        self._show(self.conversation.stream(whole))
        self._ask()

    def take_up(self) -> None:
        """Resume a turn that was left unfinished."""
        self._ask()
        if self.conversation.unfinished:
            self._show(self.conversation.stream_resume())
            self._ask()

    def greet(self) -> None:
        """Say what the chat is with, and what was said last in a conversation that is continued."""
        tools = f"{len(self.tool_names)} tools" if self.tool_names else "no tools"
        self.tell(f"{self.current.spec}, {tools}. /help lists the commands, Ctrl-D leaves.")
        messages = self.conversation.messages
        if not messages:
            return
        self.tell(f"Going on with {self.setup.save} ({len(messages)} messages).")
        question = next((message.content for message in reversed(messages) if message.role == "user"), "")
        transcript = Transcript(self.console)
        self.tell(f"\n> {question}")
        if messages[-1].role == "assistant" and messages[-1].content:
            transcript.show(Text(messages[-1].content))
        transcript.end()

    def forget(self) -> None:
        """Begin a new conversation in place of this one, with the same instructions."""
        instructions = self.conversation.instructions
        if self.setup.save is not None:
            try:
                self.setup.save.unlink(missing_ok=True)
            except OSError as error:
                raise Unavailable(f"cannot delete {self.setup.save}: {error.strerror or error}") from error
        self.conversation = self._begin(instructions)

    def retry(self) -> None:
        """Ask once more what was asked last."""
        self.say(self.runner.run(self.conversation.rewind()))

    def switch_model(self, spec: str) -> None:
        """Go on with another model. If it cannot be opened, the present one stays."""
        opened = self.setup.open(spec)
        before, self.current.spec, self.current.opened = self.current.opened, spec, opened
        self._show_tools()
        if self.setup.save is not None and self.setup.save.exists():
            self.conversation = self._load(self.setup.save, self.setup.save)
        else:
            with TemporaryDirectory() as folder:
                copy = Path(folder) / "conversation.json"
                self.conversation.save(copy)
                self.conversation = self._load(copy, None)
        self.runner.run(before.close())

    def _show_tools(self) -> None:
        """Choose the tools that the model is shown; it has to search for the rest."""
        guards = None if self.setup.has_guards else ()
        narrowing = limit_shown_tools(self.current.opened, self.setup.tools, ToolCosts(), self.setup.tools_budget, guards=guards)
        self.model, self.toolset = self.runner.run(narrowing)
        self.tool_names = tuple(tool.name for tool in self.runner.run(self.toolset.tools()))

    def _begin(self, instructions: str = "") -> Conversation:
        settings, save = self.setup.settings, self.setup.save
        return Conversation(self.model, self.toolset, instructions=instructions, journal=save, **settings)

    def _load(self, path: Path, journal: Path | None) -> Conversation:
        return Conversation.load(path, self.model, self.toolset, journal=journal, **self.setup.settings)

    def _ask(self) -> None:
        """Ask for decisions until no call waits. Where no person is there to see it, the number of approvals is limited."""
        rounds = 0
        while pending := self.conversation.pending:
            rounds += 1
            if rounds > MOST_UNSEEN and not self.approver.attended:
                raise LimitReached("confirmations", f"the model has asked for {MOST_UNSEEN} confirmations in one turn")
            self._show(self.conversation.stream_resume(self.approver.decide(pending)))

    def _show(self, events: AsyncIterator[RunEvent]) -> None:
        async def show() -> None:
            transcript, running = Transcript(self.console), set[str]()
            async with closing(await self._record(events)) as recorded:
                with StatusLine(self.console, self._describe_wait) as status:
                    async for event in recorded:
                        if isinstance(event, Started):
                            continue
                        status.clear()
                        transcript.show(event)
                        if isinstance(event, ToolStarted):
                            running.add(event.call.id)
                        elif isinstance(event, ToolFinished):
                            running.discard(event.result.call_id)
                            if not running:  # the model reads the results now
                                status.start()

        with echo_keys(False):
            try:
                self.runner.run(show())
            finally:
                self.approver.withdraw()

    def _describe_wait(self) -> str:
        progress = self.current.info.prefill
        done, total = progress() if progress else (0, 0)
        return f"reading the prompt, {done:,} of {total:,} tokens" if done < total else "waiting for the answer"

    async def _record(self, events: AsyncIterator[RunEvent]) -> AsyncIterator[RunEvent]:
        """The events of a turn; with --trace the turn is recorded."""
        if self.setup.recorder is None:
            return events
        tools, choice = await self.toolset.tools(), self.setup.settings.get("choice", Choice())
        return record_turn(events, self.setup.recorder, TurnInfo(self.setup.alias(self.current.spec), tools, choice))
