"""Reading what the user types: with history, several lines and completion where prompt_toolkit is installed, else plainly."""

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from callsmith.core.errors import UsageError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent

PROMPT = "> "
PLAIN_HINT = "For history, several lines and completion: pip install 'callsmith[terminal]'"


class LineEditor(Protocol):
    """Asks the user for a message. An EOFError if there will be no more, a KeyboardInterrupt where the user has dropped it."""

    hint: str  # what the user should know of it

    def read(self) -> str: ...


class Complete(Protocol):
    """What the word at the end of a text may be completed to, each with a remark."""

    def __call__(self, text: str) -> Iterable[tuple[str, str]]: ...


def open_editor(runner: asyncio.Runner, complete: Complete) -> LineEditor:
    """The best editor there is. Without prompt_toolkit, or where the output is no terminal, it is Python's own `input`."""
    if find_spec("prompt_toolkit") is None:
        return PlainEditor(PLAIN_HINT)
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return PlainEditor()
    return PromptEditor(runner.run, complete, history_file())


def history_file() -> Path:
    """Where the lines that were typed are stored between runs."""
    if xdg := os.environ.get("XDG_STATE_HOME"):
        return Path(xdg) / "callsmith" / "chat_history"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "callsmith" / "chat_history"
    return Path.home() / ".local" / "state" / "callsmith" / "chat_history"


class PlainEditor:
    """`input`, with the line editing that Python's readline gives it."""

    def __init__(self, hint: str = "") -> None:
        self.hint = hint
        with suppress(ImportError):
            import_module("readline")

    def read(self) -> str:
        return input(f"\n{PROMPT}")


class PromptEditor:
    """A prompt with history, completion and several lines: Enter sends, Alt-Enter begins a line, Ctrl-C clears, Ctrl-D leaves."""

    hint = ""

    def __init__(self, run: "Callable[[Coroutine[Any, Any, str]], str]", complete: Complete, history: Path) -> None:
        self._run = run
        self._session = _session(complete, history)

    def read(self) -> str:
        return self._run(self._session.prompt_async(f"\n{PROMPT}"))


def _session(complete: Complete, history: Path) -> "PromptSession[str]":
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.key_binding import KeyBindings

    class Names(Completer):
        """Commands, and the names that go with them."""

        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
            before: str = document.text_before_cursor
            word = before[max(map(before.rfind, " \n\t")) + 1 :]
            for name, remark in complete(before):
                yield Completion(name, -len(word), display_meta=remark)

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: "KeyPressEvent") -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def begin_line(event: "KeyPressEvent") -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def clear(event: "KeyPressEvent") -> None:
        if not event.current_buffer.text:
            event.app.exit(exception=KeyboardInterrupt())
        event.current_buffer.reset()

    _ = send, begin_line, clear
    return PromptSession(
        history=_history(history),
        key_bindings=keys,
        multiline=True,
        prompt_continuation="  ",
        completer=Names(),
        complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith("/")),
        enable_history_search=False,
    )


def _history(path: Path) -> "History":
    """The history of earlier runs, in a file that nobody else may read; where it cannot be written, of this run alone."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
        return FileHistory(path)
    except OSError:
        return InMemoryHistory()


def piped_text() -> str:
    """What is piped into the command, or read from a file by the shell; empty where there is nothing of that kind."""
    try:
        if sys.stdin.isatty() or _is_device(sys.stdin.fileno()):
            return ""
    except (OSError, ValueError):  # no file behind it, as in a program that calls the command
        pass
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"what comes from standard input is no text: {error}") from error


def _is_device(number: int) -> bool:
    return stat.S_ISCHR(os.fstat(number).st_mode)
