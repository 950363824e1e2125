"""Records of turns, made from the events of a run or an answer.

    trace = Trace()
    async for event in record_turn(run(model, toolset, request), trace, TurnInfo("qwen", tools)):
        ...
    trace.turns()[-1].calls

Texts are not recorded. Of arguments and results only their sizes and the names of declared parameters are; names and keys that
the model made up are not, unless `show_arguments` is set.
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
    Started,
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
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import TOOL_NAME, Call, Choice, Json, Mode, Result, Tool, Usage

E = TypeVar("E", bound=RunEvent)

# The outcome of a call. "invalid": its arguments do not fit; "unknown": there is no such tool; "declined": a person or a policy
# denied it; "refused": a limit was reached; "passed_on": the client runs it; "ignored": calls were not allowed any more.
Outcome: TypeAlias = Literal[
    "ok", "failed", "timeout", "invalid", "unknown", "unreadable", "declined", "refused",
    "waiting", "passed_on", "ignored", "cancelled",
]  # fmt: skip
Ending: TypeAlias = StopReason | Literal["cancelled", "error"]

INVALID: frozenset[Outcome] = frozenset({"invalid", "unknown", "unreadable"})
UNKNOWN = "(unknown)"  # stands for a name the model made up: no tool can have this name
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
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,64}")  # an id or a code that can be recorded
_PIECES = frozenset({Text, Thought, CallArguments})  # frequent events that add nothing to the record
_MOST_OFFERED = 128  # names recorded of a turn: clients may bring any number of tools
_ALIKE = 0.7  # the similarity from which on a made-up name counts as a misspelled one


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The record of a call. Sizes are in characters, times in seconds.

    `at` is when its tool began to run, or else when it was made, since the turn began; `seconds` how long the tool ran. `step`
    is the number of the answer it is in. `resumed`: it was made in an earlier turn and answered in this one (step 0). `meant`
    is the tool whose name the model seems to have misspelled. `arguments` and `result` are None unless `show_arguments` is set.
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
    """The record of a turn: the tools offered, the calls made, and how it ended.

    `when` is in seconds since the epoch, `first` the seconds until the first event. `offer` is a hash of all the tools'
    definitions, `notices` the number of notices for a person; `noticed` are their texts, where `show_arguments` is set.
    `decision` is whether its first answer was to call tools, where that was decided beforehand.
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
    decision: CallDecision | None = None


@dataclass(frozen=True, slots=True)
class TurnInfo:
    """What the events of a turn do not say: the model and the tools. `external`: its calls go back to the client."""

    model: str
    tools: Sequence[Tool] = ()
    choice: Choice = Choice()
    external: bool = False


class Recorder(Protocol):
    """Receives the records of turns. `add` must be fast and must not raise: it runs inside the answer."""

    def add(self, turn: TurnRecord) -> None: ...


async def record_turn(
    events: AsyncIterator[E], recorder: Recorder, info: TurnInfo, *, show_arguments: bool = False
) -> AsyncIterator[E]:
    """Pass on the events of a run, or of one answer (`info.external`), and record the turn at its end, however it ends."""
    with recording(recorder, info, show_arguments=show_arguments) as turn:
        async with closing(events):
            async for event in events:
                turn.see(event)
                yield event


class recording:
    """Records a turn whose events are passed to it one by one: `with recording(trace, info) as turn: turn.see(event)`.

    The turn is recorded at its last event or, if that has not come, when the block is left.
    """

    def __init__(self, recorder: Recorder, info: TurnInfo, *, show_arguments: bool = False) -> None:
        self._recorder = recorder
        self._watcher = _TurnWatcher(info, show_arguments)
        self._last = Stopped if info.external else TurnEnded
        self._ended = False

    def see(self, event: RunEvent) -> None:
        """Note an event."""
        if type(event) not in _PIECES or self._watcher.first is None:
            self._watcher.observe(event)
            if isinstance(event, self._last):
                self._ended = True
                self._recorder.add(self._watcher.record(event.reason))

    def __enter__(self) -> "recording":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._ended:
            failed = isinstance(error, Exception)
            self._recorder.add(self._watcher.record("error" if failed else "cancelled", type(error).__name__ if failed else ""))


class _TurnWatcher:
    """Collects the record of a turn while its events pass."""

    def __init__(self, info: TurnInfo, show: bool) -> None:
        self._info = info
        self._tools = {tool.name: tool for tool in info.tools}
        self._show = show
        self._when, self._began = time.time(), time.perf_counter()
        self.first: float | None = None
        self._calls: list[_CallInProgress] = []
        self._open: dict[str, _CallInProgress] = {}  # by call id; an id may come again once its call is answered
        self._named: dict[int, str] = {}  # the calls of this answer that have begun
        self._usage = Usage()
        self._answers = self._retries = self._unreadable = 0
        self._noticed: list[str] = []
        self._decision: CallDecision | None = None

    def observe(self, event: RunEvent) -> None:
        if self.first is None:
            self.first = time.perf_counter() - self._began
        match event:
            case Started(_, decision):
                self._decision = self._decision or decision
            case Text() | Thought() | CallArguments() | ToolProgress() | TurnEnded():
                pass
            case CallStarted(index, name):
                self._named[index] = name
            case CallReady(index, call, repairs):
                self._named.pop(index, None)
                self._enter_call(call, repairs)
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
                self._decision = self._decision or report.decision
            case ToolStarted(call):
                record = self._open.get(call.id) or self._resume_call(call.name, call.id, call)
                record.started = time.perf_counter()
                record.at = record.started - self._began
            case ToolFinished(result):
                self._finish_call(self._open.pop(result.call_id, None) or self._resume_call(result.name, result.call_id), result)
            case ConfirmationNeeded(call=call) | CallDeferred(call):
                (self._open.get(call.id) or self._resume_call(call.name, call.id, call)).outcome = "waiting"
            case Notice(text):
                self._noticed.append(text)
            case _:
                assert_never(event)

    def record(self, reason: Ending, error: str = "") -> TurnRecord:
        """The record of the turn, now that it has ended."""
        info, otherwise = self._info, _default_outcome(reason)
        names = () if info.choice.mode == "none" else info.choice.names or self._tools
        return TurnRecord(
            self._when,
            info.model,
            tuple(names)[:_MOST_OFFERED],
            _digest(_ToolIdentities(info.tools)),
            info.choice.mode,
            info.external,
            tuple(call.record(otherwise) for call in self._calls),
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
            self._decision,
        )

    def _enter_call(self, call: Call, repairs: tuple[str, ...]) -> None:
        record = self._open[call.id] = self._begin(call.name, call.id)
        record.repairs = repairs
        record.note_arguments(call, self._tools.get(call.name), self._show)
        if self._info.external and record.outcome is None:  # nobody else validates it here
            record.outcome = "passed_on" if _is_valid(self._tools[call.name], call) else "invalid"

    def _resume_call(self, name: str, id: str, call: Call | None = None) -> "_CallInProgress":
        """Add a call from the history: it was made before the first answer of this turn."""
        record = self._open[id] = self._begin(name, id)
        record.resumed, record.step = True, self._answers
        if call is not None:
            record.note_arguments(call, self._tools.get(name), self._show)
        return record

    def _begin(self, name: str, id: str) -> "_CallInProgress":
        record = _CallInProgress(name, id if _PLAIN.fullmatch(id) else "", self._answers + 1, time.perf_counter() - self._began)
        if name not in self._tools:
            record.outcome = "unknown"
            record.meant = next(iter(get_close_matches(name[:256], self._tools, 1, _ALIKE)), "")
            record.tool = name if record.meant and TOOL_NAME.fullmatch(name) else UNKNOWN
        self._calls.append(record)
        return record

    def _finish_call(self, record: "_CallInProgress", result: Result) -> None:
        if record.started is not None:
            record.seconds = time.perf_counter() - record.started
        if record.outcome != "unknown":
            record.outcome = "ok" if result.ok else _BY_CODE.get(result.code, "failed")
        record.code = result.code if _PLAIN.fullmatch(result.code) else ""
        text = _text(result)
        record.result_size = len(text)
        if self._show:
            record.result = text


@dataclass(slots=True)
class _CallInProgress:
    """What is known of a call so far; `record` makes the record."""

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

    def note_arguments(self, call: Call, tool: Tool | None, show: bool) -> None:
        """Note its arguments; a key is recorded only where the tool declares it, since others are the model's own text."""
        known: Any = tool.parameters.get("properties") if tool else None
        self.keys = tuple([key if known and key in known else MADE_UP for key in call.arguments])
        self.arguments_size = len(call.text)
        if show:
            self.arguments = call.text

    def record(self, otherwise: Outcome) -> CallRecord:
        self.outcome = self.outcome or otherwise
        return CallRecord(*_RECORDED(self))


_RECORDED = attrgetter(*(recorded.name for recorded in fields(CallRecord)))


def _default_outcome(reason: Ending) -> Outcome:
    """The outcome of a call that no event has settled."""
    match reason:
        case "cancelled" | "error":
            return "cancelled"
        case "calls" | "confirmation":
            return "passed_on"
        case "stop" | "length" | "filtered" | "limit":
            return "ignored"
        case _:
            assert_never(reason)


def _is_valid(tool: Tool, call: Call) -> bool:
    try:
        return not validate(tool.parameters, call.arguments)
    except UnsupportedSchema:
        return True  # it cannot be checked


def _text(result: Result) -> str:
    """The result's text; empty where it cannot be written, as a caller's own may be anything."""
    try:
        return result.text
    except (TypeError, ValueError, RecursionError):
        return ""


class _ToolIdentities:
    """A cache key for tools: equal for the very same objects, which toolsets and the server pass again and again."""

    __slots__ = ("ids", "tools")

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools = tuple(tools)  # as long as they are referenced, no other object can have their ids
        self.ids = tuple(map(id, self.tools))

    def __hash__(self) -> int:
        return hash(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ToolIdentities) and self.ids == other.ids


@lru_cache(maxsize=16)
def _digest(same: _ToolIdentities) -> str:
    """A hash of the definitions in their order."""
    definitions: list[Json] = [(tool.name, tool.description, tool.parameters) for tool in same.tools]
    return blake2b(repr(definitions).encode("utf-8", "replace"), digest_size=8).hexdigest() if definitions else ""
