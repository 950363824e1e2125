"""The events of a run, written to a terminal as they come."""

from typing import TYPE_CHECKING, assert_never

from rich.console import Console

from callsmith.cli.terminal.screen import can_repaint
from callsmith.core.events import (
    CallArguments,
    CallDeferred,
    CallReady,
    CallStarted,
    ConfirmationNeeded,
    Notice,
    RunEvent,
    Started,
    Stopped,
    Text,
    Thought,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Unreadable,
)
from callsmith.core.types.escaped_text import show_hidden
from callsmith.core.values import Result

if TYPE_CHECKING:
    from callsmith.cli.terminal.markdown import BlockWriter

LONGEST_RESULT = 500
THOUGHT = "dim italic"


class Transcript:
    """Writes events: text as Markdown, thoughts dim, calls while their arguments grow, results behind an arrow.

    Where the output is no terminal, the text is written as it is.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._blocks: BlockWriter | None = None  # where text and thoughts are rendered
        self._kind = ""  # of what is being written; "" where something new begins
        self._is_at_start = True  # of a line

    def show(self, event: RunEvent) -> None:
        match event:
            case Text(text):
                self._write_words("text", text, "")
            case Thought(text):
                self._write_words("thought", text, THOUGHT)
            case CallStarted(_, name):
                self._line("call", f"→ {name} ", "bold cyan")
            case CallArguments(_, text):
                self._write("call", text, "cyan")
            case CallReady():
                self._end_line()
            case Unreadable(text, reason):
                self._line("unreadable", f"? {text}  ({reason})", "yellow")
            case ToolProgress(_, text):
                self._line("progress", f"  … {text}", "dim")
            case ToolFinished(result):
                self._result(result)
            case Notice(text):
                self._line("notice", f"! {text}", "yellow")
            case Stopped(reason):
                if reason == "length":
                    self._line("notice", "! the answer was cut off: no tokens left", "yellow")
                if reason == "filtered":
                    self._line("notice", "! the model's server has withheld the rest, or declined to answer", "yellow")
                self._end_line()
            case TurnEnded():
                self._end_line()
            case Started() | ToolStarted() | ConfirmationNeeded() | CallDeferred():
                pass  # the call is on the screen already, and who is to be asked is asked when the turn has paused
            case _:
                assert_never(event)

    def end(self) -> None:
        """End the line or the block that was begun."""
        self._end_line()

    def _result(self, result: Result) -> None:
        text = result.text if len(result.text) <= LONGEST_RESULT else f"{result.text[:LONGEST_RESULT]} …"
        self._line("result", f"← {result.name}: {text}", "green" if result.ok else "red")
        self._end_line()

    def _write_words(self, kind: str, text: str, style: str) -> None:
        """Go on with the model's words, rendered if the terminal can paint over what is not complete yet."""
        if not can_repaint(self._console):
            self._write(kind, text, style)
            return
        if self._kind != kind:
            self._end_line()
        if self._blocks is None:
            from callsmith.cli.terminal.markdown import BlockWriter

            text = text.lstrip("\n")
            if not text:
                return
            self._blocks = BlockWriter(self._console, style)
        self._blocks.feed(show_hidden(text.replace("\r", "")))
        self._kind = kind

    def _write(self, kind: str, text: str, style: str) -> None:
        """Go on where the last piece of the same kind ended."""
        if self._kind not in ("", kind):
            self._end_line()
        if not self._kind:
            text = text.lstrip("\n")
        if text:
            self._out(text, style)
            self._kind, self._is_at_start = kind, text.endswith("\n")

    def _line(self, kind: str, text: str, style: str) -> None:
        self._end_line()
        self._out(text, style)
        self._kind, self._is_at_start = kind, False

    def _end_line(self) -> None:
        if self._blocks:
            self._blocks.close()
        elif self._kind and not self._is_at_start:
            self._out("\n", "")
        self._blocks, self._kind, self._is_at_start = None, "", True

    def _out(self, text: str, style: str) -> None:
        self._console.out(show_hidden(text.replace("\r", "")), style=style or None, highlight=False, end="")
        self._console.file.flush()
