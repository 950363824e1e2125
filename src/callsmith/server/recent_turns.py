"""The latest turns of each caller, in memory."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from callsmith.runtime.telemetry.turns import TurnRecord


@dataclass(frozen=True, slots=True)
class CallerTurn:
    """A turn, whose it was, and the id of the request."""

    turn: TurnRecord
    caller: str
    request: str


class RecentTurns:
    """Rings of turns, one for each caller: nobody's turns make room for another's."""

    def __init__(self, size: int = 1_000) -> None:
        self._size = max(0, size)
        self._rings: dict[str, deque[CallerTurn]] = {}

    def recorder(self, caller: str, request: str) -> "RequestRecorder":
        """What records the turns of one request."""
        return RequestRecorder(self, caller, request)

    def add(self, turn: CallerTurn) -> None:
        self._rings.setdefault(turn.caller, deque(maxlen=self._size)).append(turn)

    def latest(self, callers: Iterable[str] | None = None) -> list[CallerTurn]:
        """The turns of these callers, or of all, the latest first."""
        wanted = self._rings.keys() if callers is None else callers
        turns = [turn for caller in wanted for turn in self._rings.get(caller, ())]
        return sorted(turns, key=lambda turn: turn.turn.when, reverse=True)


@dataclass(frozen=True, slots=True)
class RequestRecorder:
    """A recorder of the turns of one request."""

    turns: RecentTurns
    caller: str
    request: str

    def add(self, turn: TurnRecord) -> None:
        self.turns.add(CallerTurn(turn, self.caller, self.request))
