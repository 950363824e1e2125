"""Admission: whose answers are given, how many at a time and in a minute, and how long each may take.

A place is had by an answer that is being given, and not while it waits for a person. Where all are taken, there is a quarter more
for callers who have none. What a caller may ask for in a minute, answers and tokens, refills all the time.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from math import ceil
from types import TracebackType
from typing import Final, TypeVar

from callsmith.core.errors import QueueFull, RateLimited, TimedOut
from callsmith.engines.lru import LRU
from callsmith.runtime.deadline import DeadlinePassed, finish_by
from callsmith.server.settings import CallerLimits

T = TypeVar("T")

_NO_LIMITS = CallerLimits()
_LATEST_WEIGHT = 0.2  # how much the latest answer counts in what one takes on average
_WAITING_FACTOR = 16  # as many answers as there are places, times this, may wait for a person

_MINUTE: Final = 60.0
_MOST_CALLERS: Final = 10_000  # that are remembered


class AdmissionGate:
    """The places for answers, and who has them."""

    def __init__(self) -> None:
        self.active = 0
        self.waiting = 0  # for a person: without a place
        self._by_caller: Counter[str] = Counter()
        self._returning: deque[asyncio.Future[None]] = deque()  # those that waited for a person, and want a place again
        self._average = 1.0  # seconds an answer takes

    def check(self, most: int, caller: str = "", limits: CallerLimits = _NO_LIMITS, waiting: Collection[str] = ()) -> None:
        """`QueueFull` if one more answer is too many, besides those that wait to be admitted: `waiting` has their callers."""
        own = sum(other == caller for other in waiting)
        if limits.concurrent is not None and self._by_caller[caller] + own >= limits.concurrent:
            raise RateLimited("concurrent", f"{limits.concurrent} answers are being given to this caller", self._average)
        places = most if self._by_caller[caller] else most + most // 4
        if self.active + len(waiting) + len(self._returning) >= places or self.waiting >= most * _WAITING_FACTOR:
            raise QueueFull(most, self._average)

    @asynccontextmanager
    async def admit(
        self, most: int, caller: str = "", limits: CallerLimits = _NO_LIMITS, seconds: float | None = None
    ) -> "AsyncGenerator[Place, None]":
        """A place, while the block lasts, for an answer that may take so many seconds; `QueueFull` if there is none."""
        self.check(most, caller, limits)
        clock = asyncio.get_running_loop().time
        began, place = clock(), Place(self, most, caller, Deadline(seconds))
        self._take(caller)
        try:
            yield place
        finally:
            if place.is_held:
                self.release(caller)
            self._average += _LATEST_WEIGHT * (clock() - began - self._average)

    def _take(self, caller: str) -> None:
        self.active += 1
        self._by_caller[caller] += 1

    def release(self, caller: str) -> None:
        self.active -= 1
        self._by_caller[caller] -= 1
        if not self._by_caller[caller]:
            del self._by_caller[caller]
        self._wake()

    async def take_again(self, most: int, caller: str) -> None:
        """Take a place, as soon as there is one."""
        while self.active >= most:
            self._returning.append(free := asyncio.get_running_loop().create_future())
            try:
                await free
            except asyncio.CancelledError:
                self._wake()  # it may have been this one's turn
                raise
        self._take(caller)

    def _wake(self) -> None:
        while self._returning:
            if not (first := self._returning.popleft()).done():
                first.set_result(None)
                break


class Place:
    """The place of an answer, and its deadline."""

    def __init__(self, gate: AdmissionGate, most: int, caller: str, deadline: "Deadline") -> None:
        self.deadline = deadline
        self.is_held = True
        self._gate = gate
        self._most = most
        self._caller = caller

    async def wait_for_person(self, work: Awaitable[T]) -> T:
        """What the work comes to. It waits for a person: meanwhile it has no place, and time does not count."""
        gate = self._gate
        gate.release(self._caller)
        self.is_held = False
        gate.waiting += 1
        self.deadline.pause()
        try:
            outcome = await work
        finally:
            gate.waiting -= 1
            self.deadline.resume()
        await gate.take_again(self._most, self._caller)
        self.is_held = True
        return outcome


class Deadline:
    """So many seconds from now, after which an answer that is not complete is an error; None: any number.

    An answer pays for one timer, and not for each of its events: `with deadline` around the loop over them, `pass_on` before an
    event is passed on, and `go_on` before the next one is waited for.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._until = None if seconds is None else self._loop.time() + seconds
        self._left = 0.0  # while it is paused
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None  # in which the answer is given
        self._is_waiting = False  # for the next event
        self._cancelled: asyncio.Task[object] | None = None
        self._is_over = False

    async def wait_for(self, work: Awaitable[T]) -> T:
        """What the work comes to, if that is in time."""
        try:
            return await finish_by(self._until, work)
        except DeadlinePassed:
            raise self._timeout_error() from None

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        if self._until is not None:
            self._start()
            self.go_on()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.pass_on()
        self._stop()
        if self._cancelled is not None and self._cancelled.uncancel() == 0 and kind is asyncio.CancelledError:
            raise self._timeout_error() from None  # it was the deadline, and nothing else besides

    def go_on(self) -> None:
        """From here on the next event is waited for."""
        if self._is_over:
            raise self._timeout_error()
        self._is_waiting = True

    def pass_on(self) -> None:
        """From here on nothing is waited for."""
        self._is_waiting = False

    def pause(self) -> None:
        if self._until is not None:
            self._left = self._until - self._loop.time()
            self._stop()

    def resume(self) -> None:
        if self._until is not None:
            self._until = self._loop.time() + self._left
            self._start()

    def _start(self) -> None:
        assert self._until is not None
        self._timer = self._loop.call_at(self._until, self._expire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self._is_over = True
        if self._is_waiting and self._task is not None and not self._task.cancelling():
            self._cancelled = self._task
            self._task.cancel()

    def _timeout_error(self) -> TimedOut:
        return TimedOut(f"there was no complete answer within {self._seconds:g} s")


class _Allowance:
    """What is left of so many a minute."""

    def __init__(self, most: int, now: float) -> None:
        self.most = most
        self._left = float(most)
        self._at = now

    def left(self, now: float) -> float:
        """How much is left; less than nothing where more was used than there was."""
        self._left = min(float(self.most), self._left + (now - self._at) * self.most / _MINUTE)
        self._at = now
        return self._left

    def use(self, amount: int) -> None:
        self._left -= amount

    def wait(self, now: float, amount: float = 1.0) -> float:
        """The seconds until so much is left."""
        return max(0.0, (amount - self.left(now)) * _MINUTE / self.most) if self.most else _MINUTE


class RateLimits:
    """What every caller has left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._allowances = LRU[_Allowance](_MOST_CALLERS)

    def admit(self, caller: str, limits: CallerLimits) -> dict[str, str]:
        """Count one more answer, or refuse it; the headers that say what is left."""
        now, headers = self._clock(), dict[str, str]()
        rates = {"requests": limits.requests_per_minute, "tokens": limits.tokens_per_minute}
        allowances = [(kind, self._of(caller, kind, most, now)) for kind, most in rates.items() if most is not None]
        waits = {kind: allowance.wait(now) for kind, allowance in allowances}
        refused = max(waits, key=lambda kind: waits[kind], default="")
        if not refused or not waits[refused]:
            refused = ""
            for kind, allowance in allowances:
                allowance.use(1 if kind == "requests" else 0)
        for kind, allowance in allowances:
            headers[f"x-ratelimit-limit-{kind}"] = str(allowance.most)
            headers[f"x-ratelimit-remaining-{kind}"] = str(max(0, int(allowance.left(now))))
            headers[f"x-ratelimit-reset-{kind}"] = f"{ceil(allowance.wait(now, allowance.most))}s"
        if refused:
            most = dict(allowances)[refused].most
            raise RateLimited(refused, f"this caller has used its {most} {refused} a minute", waits[refused], headers)
        return headers

    def use_tokens(self, caller: str, limits: CallerLimits, tokens: int) -> None:
        """Count the tokens of an answer, once they are known."""
        if limits.tokens_per_minute is not None:
            self._of(caller, "tokens", limits.tokens_per_minute, self._clock()).use(tokens)

    def _of(self, caller: str, kind: str, most: int, now: float) -> _Allowance:
        key = (caller, kind, most)
        return self._allowances.get(key) or self._allowances.put(key, _Allowance(most, now))
