"""Replays: an envelope that was signed is accepted once, and only near the time at which it was signed."""

import time
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock

from callsmith.wire.capability.errors import BusError

_SECONDS = 60.0  # by which the time of an envelope may differ from ours


class ReplayWindow:
    """The ids of requests that were accepted lately. Safe for threads.

    There is room for `most` ids for each known sender, for all who call with tokens made from one, and for all strangers: keys
    are free, so strangers without end must not take the room of others. Without room a request is refused: forgetting an id
    would let it in again. What was signed before `since`, by default before there was this window, may have been accepted by
    the process that was here before, and is refused.
    """

    def __init__(self, most: int = 250_000, *, clock: Callable[[], float] = time.time, since: float | None = None) -> None:
        self._most = most
        self._clock = clock
        self._since = clock() if since is None else since
        self._ids: dict[str, dict[bytes, float]] = {}  # digests of ids, with the time from which they are stale anyway
        self._next_sweep = 64
        self._lock = Lock()

    def __len__(self) -> int:
        return sum(map(len, self._ids.values()))

    def accept(self, sender: str, request_id: str, timestamp: float, *, room: str) -> None:
        """Remember a request whose signature is verified; a BusError invalid_signature if it is stale or was accepted before.

        `room` says whose room it takes: "" is that of all strangers.
        """
        now = self._clock()
        if not request_id:
            raise BusError("invalid_signature", "a signed envelope has a request_id, and none twice")
        if not abs(now - timestamp) <= _SECONDS:
            raise BusError("invalid_signature", f"the envelope is of another time: clocks may differ by {_SECONDS:g} seconds")
        if timestamp < self._since:
            raise BusError("invalid_signature", "the envelope was signed before this node was started: sign it again")
        digest = blake2b(f"{sender}\n{request_id}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            ids = self._ids.get(room)
            if ids is None:
                self._sweep(now)
                ids = self._ids[room] = {}
            while ids and ids[oldest := next(iter(ids))] < now:
                del ids[oldest]
            if digest in ids:
                raise BusError("invalid_signature", "the envelope is replayed: its request_id was used before")
            if len(ids) >= self._most:
                raise BusError("rate_limited", "too many signed calls in a short time", seconds=1)
            ids[digest] = timestamp + _SECONDS

    def _sweep(self, now: float) -> None:
        """Forget those of whom all is stale; each time there are twice as many."""
        if len(self._ids) >= self._next_sweep:
            self._ids = {room: ids for room, ids in self._ids.items() if max(ids.values(), default=0.0) >= now}
            self._next_sweep = max(64, 2 * len(self._ids))
