"""The trace: a ring buffer of the latest turns, and counters of all turns; both are bounded.

As a file it is one turn a line, as JSON, for `callsmith tools report`.
"""

import json
import logging
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from threading import Lock

from callsmith.core.errors import Unavailable, UsageError
from callsmith.core.failures import CACHED
from callsmith.core.serialize import dump, load
from callsmith.core.values import Json, Usage
from callsmith.runtime.telemetry.turns import INVALID, CallRecord, Ending, Outcome, Recorder, TurnRecord

CHARACTERS_PER_TOKEN = 4  # an average: no tokenizer is used
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds
OTHERS = "(others)"  # stands for all tools beyond _MOST_TOOLS
_MOST_TOOLS = 1_000  # counted by name: clients may bring tools of any number of names

_LOG = logging.getLogger(__name__)


def estimate_tokens(characters: int) -> int:
    """Estimate the tokens of a text from its length."""
    return -(-characters // CHARACTERS_PER_TOKEN)


@dataclass(slots=True)
class Histogram:
    """A histogram: the values up to each bound of BUCKETS, and in the last count those above all bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.total += value

    def copy(self) -> "Histogram":
        return Histogram(self.counts.copy(), self.total)


@dataclass(slots=True)
class ToolCounts:
    """Counters of one tool. `called` counts each call once; a call that waited for a person's decision has two outcomes.

    `tokens` is an estimate for arguments and results, `cached` are the calls that a cache has answered.
    """

    offered: int = 0
    called: int = 0
    repaired: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter[Outcome])
    seconds: Histogram = field(default_factory=Histogram)
    tokens: int = 0
    cached: int = 0

    @property
    def invalid(self) -> int:
        return sum(self.outcomes[outcome] for outcome in INVALID)

    @property
    def declined(self) -> int:
        return self.outcomes["declined"]

    @property
    def failed(self) -> int:
        return self.outcomes["failed"]

    @property
    def timeouts(self) -> int:
        return self.outcomes["timeout"]

    def add(self, call: CallRecord) -> None:
        if not call.resumed:
            self.called += 1
            self.repaired += bool(call.repairs)
        self.cached += call.code == CACHED
        self.outcomes[call.outcome] += 1
        if call.seconds is not None:
            self.seconds.add(call.seconds)
        self.tokens += estimate_tokens(call.arguments_size * (not call.resumed) + call.result_size)

    def copy(self) -> "ToolCounts":
        outcomes = self.outcomes.copy()
        return ToolCounts(self.offered, self.called, self.repaired, outcomes, self.seconds.copy(), self.tokens, self.cached)


@dataclass(slots=True)
class ModelCounts:
    """Counters of the turns of one model. `decisions` are those to call tools (True), and those not to."""

    reasons: Counter[Ending] = field(default_factory=Counter[Ending])
    usage: Usage = Usage()
    retries: int = 0
    unreadable: int = 0
    first: Histogram = field(default_factory=Histogram)
    seconds: Histogram = field(default_factory=Histogram)
    decisions: Counter[bool] = field(default_factory=Counter[bool])

    def add(self, turn: TurnRecord) -> None:
        self.reasons[turn.reason] += 1
        self.usage += turn.usage
        self.retries += turn.retries
        self.unreadable += turn.unreadable
        self.seconds.add(turn.seconds)
        if turn.first is not None:
            self.first.add(turn.first)
        if turn.decision is not None:
            self.decisions[turn.decision.calls] += 1

    def copy(self) -> "ModelCounts":
        first, seconds, decisions = self.first.copy(), self.seconds.copy(), self.decisions.copy()
        return ModelCounts(self.reasons.copy(), self.usage, self.retries, self.unreadable, first, seconds, decisions)


@dataclass(slots=True)
class Counters:
    """Counters over turns, by tool and by model. They only grow."""

    tools: dict[str, ToolCounts] = field(default_factory=dict[str, ToolCounts])
    models: dict[str, ModelCounts] = field(default_factory=dict[str, ModelCounts])

    def add(self, turn: TurnRecord) -> None:
        for name in turn.offered:
            self._tool(name).offered += 1
        for call in turn.calls:
            # A misspelled name counts as an invalid call of the tool that was meant, and not as a tool of its own.
            self._tool(call.meant or call.tool).add(call)
        self.models.setdefault(turn.model, ModelCounts()).add(turn)

    def copy(self) -> "Counters":
        tools = {name: counts.copy() for name, counts in self.tools.items()}
        return Counters(tools, {name: counts.copy() for name, counts in self.models.items()})

    def _tool(self, name: str) -> ToolCounts:
        counts = self.tools.get(name)
        if counts is None:
            name = name if len(self.tools) < _MOST_TOOLS else OTHERS
            counts = self.tools.setdefault(name, ToolCounts())
        return counts


class Trace:
    """A recorder that stores the latest turns and counts all of them. It is thread-safe."""

    def __init__(self, size: int = 10_000) -> None:
        self._lock = Lock()
        self._turns: deque[TurnRecord] = deque(maxlen=size)
        self._counters = Counters()

    def add(self, turn: TurnRecord) -> None:
        with self._lock:
            self._turns.append(turn)
            self._counters.add(turn)

    def turns(self) -> Sequence[TurnRecord]:
        """The latest turns, the oldest first."""
        with self._lock:
            return tuple(self._turns)

    def counters(self) -> Counters:
        """The counters of all turns, also of those that are no longer stored."""
        with self._lock:
            return self._counters.copy()


class CombinedRecorder:
    """Several recorders as one."""

    def __init__(self, *recorders: Recorder) -> None:
        self._recorders = recorders

    def add(self, turn: TurnRecord) -> None:
        for recorder in self._recorders:
            recorder.add(turn)


class TraceFile:
    """A recorder that appends to a file. Several processes may share the file: each line is one write.

    When the file cannot be written any more, that is logged once and turns are no longer recorded.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = Lock()
        try:
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror or error}") from error

    def add(self, turn: TurnRecord) -> None:
        line = json.dumps(write_turn(turn), separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file.closed:
                return
            try:
                self._file.write(line)
            except OSError as error:
                self._file.close()
                _LOG.warning("turns are no longer recorded in %s: %s", self._path, error.strerror or error)

    def close(self) -> None:
        with self._lock:
            self._file.close()


def read_trace(path: str | PathLike[str]) -> Iterator[TurnRecord | None]:
    """The turns of a file; None for a line that is none, as when a program was killed while it wrote."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.strip():
                    yield _read_line(line)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", field="trace") from error


def write_turn(turn: TurnRecord) -> dict[str, Json]:
    """A turn as JSON, with times to the microsecond; fields with their default value are left out."""
    document = dump(turn)
    inside: dict[str, Json] = {"usage": document.get("usage", {}), "calls": list(map(_round_numbers, document.get("calls", ())))}
    if turn.decision is not None:
        inside["decision"] = _round_numbers(document["decision"])
    return _round_numbers(document) | inside


def _round_numbers(record: dict[str, Json]) -> dict[str, Json]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in record.items()}


def _read_line(line: str) -> TurnRecord | None:
    """The turn, if it is one. Fields of later versions are passed over."""
    try:
        return load(TurnRecord, json.loads(line), ignore_unknown=True)
    except (UsageError, ValueError, RecursionError):
        return None
