"""The events of a run, written to a terminal as they come."""

from typing import assert_never

from rich.console import Console

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
from callsmith.core.values import Result
from callsmith.tools.review import show_hidden

LONGEST_RESULT = 500
_JOINER = "\u200d"


class Transcript:
    """Writes events: text plain, thoughts dim, calls while their arguments grow, results behind an arrow."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._kind = ""  # of what stands on the current line; "" at the beginning of a line

    def show(self, event: RunEvent) -> None:
        match event:
            case Text(text):
                self._write("text", text, "")
            case Thought(text):
                self._write("thought", text, "dim italic")
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
                self._end_line()
            case TurnEnded():
                self._end_line()
            case Started() | ToolStarted() | ConfirmationNeeded() | CallDeferred():
                pass  # the call is on the screen already, and who is to be asked is asked when the turn has paused
            case _:
                assert_never(event)

    def _result(self, result: Result) -> None:
        text = result.text if len(result.text) <= LONGEST_RESULT else f"{result.text[:LONGEST_RESULT]} …"
        self._line("result", f"← {result.name}: {text}", "green" if result.ok else "red")

    def _write(self, kind: str, text: str, style: str) -> None:
        """Go on where the last piece of the same kind ended."""
        if self._kind not in ("", kind):
            self._end_line()
        if not self._kind:
            text = text.lstrip("\n")
        if text:
            self._out(text, style)
            self._kind = "" if text.endswith("\n") else kind

    def _line(self, kind: str, text: str, style: str) -> None:
        self._end_line()
        self._out(text, style)
        self._kind = kind

    def _end_line(self) -> None:
        if self._kind:
            self._out("\n", "")
        self._kind = ""

    def _out(self, text: str, style: str) -> None:
        self._console.out(_visible(text), style=style or None, highlight=False, end="")
        self._console.file.flush()


def _visible(text: str) -> str:
    """What a model or a tool says, with nothing in it that the terminal would obey; joined emoji stay as they are."""
    return _JOINER.join(show_hidden(part) for part in text.replace("\r", "").split(_JOINER))
