"""Telemetry: what became of a turn, read off its events by whoever watches.

    trace = Trace()
    async for event in watched(run(model, toolset, request), trace, Asked("qwen", tools)):
        ...
    trace.turns()[-1].calls

Nothing that was said is kept. Of arguments and results there are sizes and the names of declared parameters, of a name or a key
the model made up nothing; unless arguments are to be shown.
"""

import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, assert_never

from callsmith.core.closing import closing
from callsmith.core.errors import UnsupportedSchema
from callsmith.core.events import (
    CallArguments,
    CallDeferred,
    CallReady,
    CallStarted,
    ConfirmationNeeded,
    Notice,
    RunEvent,
    Stopped,
    StopReason,
    Text,
    Thought,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Unreadable,
)
from callsmith.core.schema import validate
from callsmith.core.values import TOOL_NAME, Call, Choice, Json, Mode, Result, Tool, Usage

E = TypeVar("E", bound=RunEvent)

# What became of a call. "invalid": its arguments do not fit; "unknown": there is no such tool; "declined": a person or a policy
# said no; "refused": a limit was reached; "passed_on": whoever asked runs it; "ignored": calls were not wanted any more.
Outcome: TypeAlias = Literal[
    "ok", "failed", "timeout", "invalid", "unknown", "unreadable", "declined", "refused",
    "waiting", "passed_on", "ignored", "cancelled",
]  # fmt: skip
Ending: TypeAlias = StopReason | Literal["cancelled", "error"]

INVALID: frozenset[Outcome] = frozenset({"invalid", "unknown", "unreadable"})
UNKNOWN = "(unknown)"  # stands for a name the model made up: no tool can be called so
MADE_UP = "?"  # stands for a key that the tool does not declare

_BY_CODE: Mapping[str, Outcome] = {
    "bad_request": "invalid",
    "invalid_arguments": "invalid",
    "timeout": "timeout",
    "denied": "declined",
    "expired": "declined",
    "limit_reached": "refused",
    "cancelled": "cancelled",
    "interrupted": "cancelled",
}
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,64}")  # an id or a code that is one
_PIECES = frozenset({Text, Thought, CallArguments})  # there are many of them, and they tell nothing
_MOST_OFFERED = 128  # names kept of a turn: clients may bring any number of tools
_ALIKE = 0.7  # from how alike on a made-up name is taken for a slip of the pen


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call and what became of it. Sizes are in characters, times in seconds.

    `at` is when its tool began to run, or else when it was made, since the turn began; `seconds` how long the tool ran. `step`
    numbers the answer it stands in. `resumed`: it was made in an earlier turn, and answered in this one (step 0). `meant` is the
    tool whose name the model seems to have missed. `arguments` and `result` are None unless they are to be shown.
    """

    tool: str
    outcome: Outcome
    id: str = ""
    code: str = ""
    repairs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    arguments_size: int = 0
    result_size: int = 0
    step: int = 0
    at: float = 0.0
    seconds: float | None = None
    resumed: bool = False
    meant: str = ""
    arguments: str | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn: what was offered, what was called, and how it ended.

    `when` is in seconds since the epoch, `first` after how many of them the first event came. `offer` is a hash of all the
    tools' definitions, `notices` counts what a person was told; `noticed` are the words, where arguments are shown.
    """

    when: float
    model: str
    offered: tuple[str, ...] = ()
    offer: str = ""
    choice: Mode = "auto"
    external: bool = False
    calls: tuple[CallRecord, ...] = ()
    usage: Usage = Usage()
    first: float | None = None
    seconds: float = 0.0
    answers: int = 0
    retries: int = 0
    unreadable: int = 0
    notices: int = 0
    noticed: tuple[str, ...] = ()
    reason: Ending = "stop"
    error: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What events do not tell: which model was asked, with which tools. `external`: its calls go back to whoever asked."""

    model: str
    tools: Sequence[Tool] = ()
    choice: Choice = Choice()
    external: bool = False


class Recorder(Protocol):
    """Takes down turns. It is quick, and raises nothing: an answer is not to fail because of it."""

    def add(self, turn: TurnRecord) -> None: ...


async def watched(
    events: AsyncIterator[E], recorder: Recorder, asked: Asked, *, show_arguments: bool = False
) -> AsyncIterator[E]:
    """The same events; when the last one comes, or none will come any more, the turn is recorded.

    They are those of a run, or those of one answer (`asked.external`).
    """
    with recording(recorder, asked, show_arguments=show_arguments) as turn:
        async with closing(events):
            async for event in events:
                turn.see(event)
                yield event


class recording:
    """Records a turn whose events are shown to it one by one: `with recording(trace, asked) as turn: turn.see(event)`.

    The turn is recorded at its last event, or, if that has not come, when the block is left.
    """

    def __init__(self, recorder: Recorder, asked: Asked, *, show_arguments: bool = False) -> None:
        self._recorder = recorder
        self._watch = _Watch(asked, show_arguments)
        self._last = Stopped if asked.external else TurnEnded
        self._ended = False

    def see(self, event: RunEvent) -> None:
        """Note an event."""
        if type(event) not in _PIECES or self._watch.first is None:
            self._watch.see(event)
            if isinstance(event, self._last):
                self._ended = True
                self._recorder.add(self._watch.turn(event.reason))

    def __enter__(self) -> "recording":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._ended:
            failed = isinstance(error, Exception)
            self._recorder.add(self._watch.turn("error" if failed else "cancelled", type(error).__name__ if failed else ""))


class _Watch:
    """A turn under way."""

    def __init__(self, asked: Asked, show: bool) -> None:
        self._asked = asked
        self._tools = {tool.name: tool for tool in asked.tools}
        self._show = show
        self._when, self._began = time.time(), time.perf_counter()
        self.first: float | None = None
        self._calls: list[_Made] = []
        self._open: dict[str, _Made] = {}  # by call id; an id may come again once its call is answered
        self._named: dict[int, str] = {}  # the calls of this answer that have begun
        self._usage = Usage()
        self._answers = self._retries = self._unreadable = 0
        self._noticed: list[str] = []

    def see(self, event: RunEvent) -> None:
        if self.first is None:
            self.first = time.perf_counter() - self._began
        match event:
            case Text() | Thought() | CallArguments() | ToolProgress() | TurnEnded():
                pass
            case CallStarted(index, name):
                self._named[index] = name
            case CallReady(index, call, repairs):
                self._named.pop(index, None)
                self._ready(call, repairs)
            case Unreadable(text, _, index):
                self._unreadable += 1
                if index is not None and index in self._named:
                    self._begin(self._named.pop(index), "").outcome = "unreadable"
                    self._calls[-1].arguments_size = len(text)
            case Stopped(_, usage, report):
                self._named.clear()
                self._usage = self._usage + usage if self._answers else usage
                self._answers += 1
                self._retries += report.retries
            case ToolStarted(call):
                made = self._open.get(call.id) or self._resumed(call.name, call.id, call)
                made.started = time.perf_counter()
                made.at = made.started - self._began
            case ToolFinished(result):
                self._finished(self._open.pop(result.call_id, None) or self._resumed(result.name, result.call_id), result)
            case ConfirmationNeeded(call=call) | CallDeferred(call):
                (self._open.get(call.id) or self._resumed(call.name, call.id, call)).outcome = "waiting"
            case Notice(text):
                self._noticed.append(text)
            case _:
                assert_never(event)

    def turn(self, reason: Ending, error: str = "") -> TurnRecord:
        """What it has come to."""
        asked, otherwise = self._asked, _unanswered(reason)
        names = () if asked.choice.mode == "none" else asked.choice.names or self._tools
        return TurnRecord(
            self._when,
            asked.model,
            tuple(names)[:_MOST_OFFERED],
            _digest(_Same(asked.tools)),
            asked.choice.mode,
            asked.external,
            tuple(made.record(otherwise) for made in self._calls),
            self._usage,
            self.first,
            time.perf_counter() - self._began,
            self._answers,
            self._retries,
            self._unreadable,
            len(self._noticed),
            tuple(self._noticed) if self._show else (),
            reason,
            error,
        )

    def _ready(self, call: Call, repairs: tuple[str, ...]) -> None:
        made = self._open[call.id] = self._begin(call.name, call.id)
        made.repairs = repairs
        made.takes(call, self._tools.get(call.name), self._show)
        if self._asked.external and made.outcome is None:  # nobody else will look
            made.outcome = "passed_on" if _fits(self._tools[call.name], call) else "invalid"

    def _resumed(self, name: str, id: str, call: Call | None = None) -> "_Made":
        """A call out of the history: it stands before the first answer of this turn."""
        made = self._open[id] = self._begin(name, id)
        made.resumed, made.step = True, self._answers
        if call is not None:
            made.takes(call, self._tools.get(name), self._show)
        return made

    def _begin(self, name: str, id: str) -> "_Made":
        made = _Made(name, id if _PLAIN.fullmatch(id) else "", self._answers + 1, time.perf_counter() - self._began)
        if name not in self._tools:
            made.outcome = "unknown"
            made.meant = next(iter(get_close_matches(name[:256], self._tools, 1, _ALIKE)), "")
            made.tool = name if made.meant and TOOL_NAME.fullmatch(name) else UNKNOWN
        self._calls.append(made)
        return made

    def _finished(self, made: "_Made", result: Result) -> None:
        if made.started is not None:
            made.seconds = time.perf_counter() - made.started
        if made.outcome != "unknown":
            made.outcome = "ok" if result.ok else _BY_CODE.get(result.code, "failed")
        made.code = result.code if _PLAIN.fullmatch(result.code) else ""
        text = _text(result)
        made.result_size = len(text)
        if self._show:
            made.result = text


@dataclass(slots=True)
class _Made:
    """A call on its way to its record."""

    tool: str
    id: str
    step: int
    at: float
    outcome: Outcome | None = None
    code: str = ""
    repairs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    arguments_size: int = 0
    result_size: int = 0
    started: float | None = None
    seconds: float | None = None
    resumed: bool = False
    meant: str = ""
    arguments: str | None = None
    result: str | None = None

    def takes(self, call: Call, tool: Tool | None, show: bool) -> None:
        """Note its arguments; a key is told only where the tool declares it, for any other is the model's own words."""
        known: Any = tool.parameters.get("properties") if tool else None
        self.keys = tuple([key if known and key in known else MADE_UP for key in call.arguments])
        self.arguments_size = len(call.text)
        if show:
            self.arguments = call.text

    def record(self, otherwise: Outcome) -> CallRecord:
        self.outcome = self.outcome or otherwise
        return CallRecord(*_RECORDED(self))


_RECORDED = attrgetter(*(one.name for one in fields(CallRecord)))


def _unanswered(reason: Ending) -> Outcome:
    """What became of a call that nobody said anything about."""
    match reason:
        case "cancelled" | "error":
            return "cancelled"
        case "calls" | "confirmation":
            return "passed_on"
        case "stop" | "length" | "limit":
            return "ignored"
        case _:
            assert_never(reason)


def _fits(tool: Tool, call: Call) -> bool:
    try:
        return not validate(tool.parameters, call.arguments)
    except UnsupportedSchema:
        return True  # nobody can say


def _text(result: Result) -> str:
    """The result as a model reads it. One that came from a caller may be anything."""
    try:
        return result.text
    except (TypeError, ValueError, RecursionError):
        return ""


class _Same:
    """Tools that are the very same objects. A toolset offers them again and again; so do clients, and the server knows them."""

    __slots__ = ("ids", "tools")

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools = tuple(tools)  # while they are held, nothing else can have their ids
        self.ids = tuple(map(id, self.tools))

    def __hash__(self) -> int:
        return hash(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.ids == other.ids


@lru_cache(maxsize=16)
def _digest(same: _Same) -> str:
    """The same for the same definitions in the same order: that is what a model sees."""
    shown: list[Json] = [(tool.name, tool.description, tool.parameters) for tool in same.tools]
    return blake2b(repr(shown).encode("utf-8", "replace"), digest_size=8).hexdigest() if shown else ""
