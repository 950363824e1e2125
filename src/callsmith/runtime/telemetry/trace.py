"""The trace: a ring buffer of the latest turns, and counters of all turns. Both are bounded."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from callsmith.core.failures import CACHED
from callsmith.core.values import Usage
from callsmith.runtime.telemetry.turns import INVALID, CallRecord, Ending, Outcome, Recorder, TurnRecord

CHARACTERS_PER_TOKEN = 4  # an average: no tokenizer is used
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds
OTHERS = "(others)"  # stands for all tools beyond _MOST_TOOLS
_MOST_TOOLS = 1_000  # counted by name: clients may bring tools of any number of names


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
        counts = self.models.get(turn.model)
        if counts is None:
            counts = self.models[turn.model] = ModelCounts()
        counts.add(turn)

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
