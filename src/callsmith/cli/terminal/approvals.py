"""Asking at the terminal whether a call may run; and handling keys that are pressed while nobody is asked."""

import asyncio
import json
import os
import select
import shlex
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock
from typing import TYPE_CHECKING, cast

from callsmith.cli.terminal.output import echo
from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.types.escaped_text import one_line
from callsmith.core.values import Json
from callsmith.tools.mcp.elicitation import ElicitationReply, ElicitationRequest

if TYPE_CHECKING:
    from rich.console import Console

QUESTION = "  Run it? y(es), n(o, and why), e(dit the arguments), a(lways in this conversation): "
NOBODY = "the user is not at a terminal and cannot be asked"
HINT = "  (denied: nobody can be asked here; --yes runs such calls without asking)"
NO_ANSWER = "the user did not answer"


@dataclass(frozen=True, slots=True)
class Approver:
    """Asks the user to approve calls. Without a terminal calls are denied, unless --yes was given."""

    console: "Console"
    yes: bool = False
    _lock: Lock = field(default_factory=Lock, init=False)  # two questions at once would get each other's answers
    _open: set[Event] = field(default_factory=set[Event], init=False)  # one of each question of a server that waits

    @property
    def attended(self) -> bool:
        """Whether a person is at the terminal and is asked."""
        return not self.yes and sys.stdin.isatty()

    def decide(self, pending: Iterable[ConfirmationNeeded]) -> dict[str, Decision]:
        """The user's decisions, by call id."""
        with self._lock:
            return {question.call.id: self._decide(question) for question in pending}

    async def answer(self, question: ElicitationRequest) -> ElicitationReply:
        """The user's reply to an MCP server that asks for input during a call."""

        withdrawn = Event()

        def alone() -> ElicitationReply:
            with self._lock, echo_keys(True):
                return ElicitationReply("cancel") if withdrawn.is_set() else self._answer(question, withdrawn)

        self._open.add(withdrawn)
        try:
            return await asyncio.to_thread(alone)
        finally:
            withdrawn.set()
            self._open.discard(withdrawn)

    def withdraw(self) -> None:
        """Ask no longer what servers wanted to know: the turn has ended. Ctrl-C does not reach the threads that ask."""
        for withdrawn in tuple(self._open):
            withdrawn.set()
        if self._lock.acquire(timeout=1):  # the thread has left the terminal as it was; without termios it may still read
            self._lock.release()

    def _answer(self, question: ElicitationRequest, withdrawn: Event) -> ElicitationReply:
        text = f"? {question.server} asks: {question.message}"
        self.console.out(one_line(f"{text} ({question.url})" if question.url else text), style="yellow", highlight=False)
        if not sys.stdin.isatty():
            self.console.out(HINT, style="yellow", highlight=False)
            return ElicitationReply("decline")
        fields = cast("Mapping[str, Mapping[str, Json]]", (question.schema or {}).get("properties") or {})
        content: dict[str, Json] = {}
        try:
            for name, wanted in fields.items():
                words = one_line(str(wanted.get("title") or wanted.get("description") or name))
                if typed := _read_line(f"  {words} [{json.dumps(wanted.get('default', ''))}]: ", withdrawn).strip():
                    content[name] = _parse_typed(typed, wanted)
            agreed = _read_line("  Send it? y(es), n(o): ", withdrawn).strip().lower() in ("y", "yes")
            return ElicitationReply("accept", content) if agreed else ElicitationReply("decline")
        except (EOFError, KeyboardInterrupt):
            self.console.out("")
            return ElicitationReply("cancel")

    def _decide(self, question: ConfirmationNeeded) -> Decision:
        arguments = json.dumps(question.call.arguments, ensure_ascii=False)
        self.console.out(one_line(f"? {question.call.name} {arguments}: {question.reason}"), style="yellow", highlight=False)
        if self.yes:
            return Approved()
        if not sys.stdin.isatty():
            self.console.out(HINT, style="yellow", highlight=False)
            return Denied(NOBODY)
        try:
            return self._ask(question)
        except (EOFError, KeyboardInterrupt):
            self.console.out("")
            return Denied(NO_ANSWER)

    def _ask(self, question: ConfirmationNeeded) -> Decision:
        while True:
            word, _, rest = input(QUESTION).strip().partition(" ")
            match word.lower():
                case "y" | "yes":
                    return Approved()
                case "a" | "always":
                    return Approved(remember=True)
                case "n" | "no":
                    return Denied(rest.strip())
                case "e" | "edit":
                    changed = self._edit(rest, question.call.arguments)
                    if changed is not None:
                        return Approved(changed)
                case _:
                    pass

    def _edit(self, typed: str, arguments: Mapping[str, Json]) -> Mapping[str, Json] | None:
        """The user's arguments: typed behind the letter, in an editor, or on the next line. None if they are not valid."""
        text = typed.strip()
        try:
            if not text and (editor := os.environ.get("VISUAL") or os.environ.get("EDITOR")):
                text = _open_editor(editor, json.dumps(arguments, ensure_ascii=False, indent=2))
            elif not text:
                text = input("  The arguments, as JSON: ")
            changed = json.loads(text)
        except OSError as error:
            self.console.out(one_line(f"  The editor cannot be used: {error}"), style="red", highlight=False)
            return None
        except (ValueError, RecursionError) as error:
            self.console.out(one_line(f"  That is not JSON: {error}"), style="red", highlight=False)
            return None
        if not isinstance(changed, dict):
            self.console.out("  Arguments are a JSON object.", style="red", highlight=False)
            return None
        return cast("dict[str, Json]", changed)


def _read_line(prompt: str, withdrawn: Event) -> str:
    """`input` in a thread that can be told to wait no longer. An EOFError then."""
    try:
        keyboard = sys.stdin.fileno()
    except (OSError, ValueError):  # there is no file behind it
        keyboard = -1
    if keyboard < 0 or not os.isatty(keyboard) or find_spec("termios") is None:
        return input(prompt)
    echo(prompt, nl=False)
    while not select.select([keyboard], [], [], 0.1)[0]:
        if withdrawn.is_set():
            raise EOFError
    if line := sys.stdin.readline():
        return line.rstrip("\n")
    raise EOFError


def _parse_typed(text: str, schema: Mapping[str, Json]) -> Json:
    """The typed text as a value of the schema's type; one that does not fit is asked for again."""
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _open_editor(editor: str, text: str) -> str:
    """The text as the user has edited it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "arguments.json"
        path.write_text(text, "utf-8")
        try:
            command = shlex.split(editor)
        except ValueError as error:
            raise OSError(f"{editor!r} cannot be read: {error}") from error
        if status := subprocess.run([*command, str(path)], check=False).returncode:
            raise OSError(f"{editor} ended with exit code {status}")  # as after :cq in vi: nothing was agreed to
        return path.read_text("utf-8")


@contextmanager
def echo_keys(wanted: bool) -> Generator[None, None, None]:
    """Let the terminal show the keys that are pressed, or not: in an answer that grows they would stand between its words."""
    try:
        keyboard = sys.stdin.fileno()
    except (OSError, ValueError):  # there is no file behind it
        keyboard = -1
    if keyboard < 0 or not os.isatty(keyboard) or find_spec("termios") is None:
        yield
        return
    import termios

    before = termios.tcgetattr(keyboard)
    flags = before[3] | termios.ECHO if wanted else before[3] & ~termios.ECHO
    termios.tcsetattr(keyboard, termios.TCSANOW, [*before[:3], flags, *before[4:]])
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, before)
