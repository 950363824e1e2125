"""The trace: the latest turns, and what they and all before them come to. It never grows beyond its bounds."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from callsmith.core.values import Usage
from callsmith.runtime.telemetry.turns import INVALID, CallRecord, Ending, Outcome, Recorder, TurnRecord

CHARACTERS_A_TOKEN = 4  # about: no tokenizer is asked
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds
OTHERS = "(others)"  # stands for all tools beyond those that are counted by name
_MOST_TOOLS = 1_000  # counted by name: clients may bring tools of any number of names


def about_tokens(characters: int) -> int:
    """How many tokens so much text takes: an estimate."""
    return -(-characters // CHARACTERS_A_TOKEN)


@dataclass(slots=True)
class Histogram:
    """How many values lay below each bound; the last count is of those above all."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS, value)] += 1
        self.total += value

    def copy(self) -> "Histogram":
        return Histogram(self.counts.copy(), self.total)


@dataclass(slots=True)
class ToolCounts:
    """What became of one tool. `called` counts each call once; one that waited for a person has two outcomes, that and its end.

    `tokens` is an estimate of what arguments and results take up.
    """

    offered: int = 0
    called: int = 0
    repaired: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter[Outcome])
    seconds: Histogram = field(default_factory=Histogram)
    tokens: int = 0

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
        self.outcomes[call.outcome] += 1
        if call.seconds is not None:
            self.seconds.add(call.seconds)
        self.tokens += about_tokens(call.arguments_size * (not call.resumed) + call.result_size)

    def copy(self) -> "ToolCounts":
        outcomes = self.outcomes.copy()
        return ToolCounts(self.offered, self.called, self.repaired, outcomes, self.seconds.copy(), self.tokens)


@dataclass(slots=True)
class ModelCounts:
    """What became of the turns of one model."""

    reasons: Counter[Ending] = field(default_factory=Counter[Ending])
    usage: Usage = Usage()
    retries: int = 0
    unreadable: int = 0
    first: Histogram = field(default_factory=Histogram)
    seconds: Histogram = field(default_factory=Histogram)

    def add(self, turn: TurnRecord) -> None:
        self.reasons[turn.reason] += 1
        self.usage += turn.usage
        self.retries += turn.retries
        self.unreadable += turn.unreadable
        self.seconds.add(turn.seconds)
        if turn.first is not None:
            self.first.add(turn.first)

    def copy(self) -> "ModelCounts":
        first, seconds = self.first.copy(), self.seconds.copy()
        return ModelCounts(self.reasons.copy(), self.usage, self.retries, self.unreadable, first, seconds)


@dataclass(slots=True)
class Counters:
    """Sums over turns, by tool and by model. They only ever grow."""

    tools: dict[str, ToolCounts] = field(default_factory=dict[str, ToolCounts])
    models: dict[str, ModelCounts] = field(default_factory=dict[str, ModelCounts])

    def add(self, turn: TurnRecord) -> None:
        for name in turn.offered:
            self._tool(name).offered += 1
        for call in turn.calls:
            # A slip of the pen counts as a wrong call of the tool that was meant, and not as a tool of its own.
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
    """A recorder that keeps the latest turns, and counts all of them. Any thread may add and read."""

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
        """What all turns come to, also those that are not kept any more."""
        with self._lock:
            return self._counters.copy()


class Several:
    """Recorders as one."""

    def __init__(self, *recorders: Recorder) -> None:
        self._recorders = recorders

    def add(self, turn: TurnRecord) -> None:
        for recorder in self._recorders:
            recorder.add(turn)
