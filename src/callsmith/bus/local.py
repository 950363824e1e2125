"""LocalProvider: a capability of this node at work, with its checks, its places and its deadline."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar

from callsmith.bus.descriptor import Descriptor
from callsmith.bus.flow import Deadlines, FrameQueue, screen_frames
from callsmith.bus.port import Answer, CapabilityCall, Handler
from callsmith.core.capability.authority import SELF, Authority
from callsmith.core.capability.execution import Audit, Execution, hash_arguments
from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError
from callsmith.wire.capability.chat import TOOLS_CALL, read_target
from callsmith.wire.capability.envelopes import write_version
from callsmith.wire.capability.errors import BusError, as_bus_error
from callsmith.wire.capability.frames import Frame

T = TypeVar("T")

_log = logging.getLogger(__name__)

GRACE = 0.2  # seconds a handler may take to stop after it was cancelled, before it is left behind
_WINDOW = 64  # frames that a handler may be ahead of the reader
_left_behind: "set[asyncio.Task[Any]]" = set()  # an event loop does not keep its tasks alive by itself
_current: ContextVar[Authority] = ContextVar("callsmith_authority", default=SELF)


def current_authority() -> Authority:
    """The authority of the call that is being handled; the node's own outside of any."""
    return _current.get()


class LocalProvider:
    """A capability and its handler. What goes wrong is raised as a BusError; what nobody foresaw is logged."""

    def __init__(self, descriptor: Descriptor, handler: Handler, audit: Callable[[], Audit | None]) -> None:
        self.descriptor = descriptor
        self._audit = audit
        self._handler = handler
        self._in_flight = 0
        self._deadlines = Deadlines()

    async def answer(self, call: CapabilityCall, *, inline: bool = False) -> Answer:
        """The answer to a call. Of a handler that streams, it is what the last frame says.

        `inline`: in the task that asks, for one that nobody waits for, should the handler ignore its cancellation.
        """
        self._admit(call)
        latest = asyncio.get_running_loop().time() + self.descriptor.timeout_seconds
        deadline = latest if call.deadline is None else min(call.deadline, latest)
        try:
            if inline:
                answer = await self._inline(call, deadline)
            else:
                answer = await self._within(self._handle(call, self._answer), deadline)
        except (Exception, SystemExit) as error:  # other people's code: whatever it raises is an error of the wire
            raise self._failure(error) from error
        finally:
            self._in_flight -= 1
        self._check_answer(answer)
        return answer

    async def frames(self, call: CapabilityCall) -> AsyncGenerator[Sequence[Frame], None]:
        """The frames of an answer, in bursts; the last is "done". Of a handler that does not stream, there is just that one."""
        self._admit(call)
        queue, loop = FrameQueue(self._deadlines), asyncio.get_running_loop()
        writing = loop.create_task(self._handle(call, partial(self._write_frames, queue=queue)))
        writing.add_done_callback(partial(self._end, queue))
        try:
            while True:
                # Between two frames there is as much time as for a whole answer, as long as the deadline allows it.
                now = loop.time()
                until = now + self.descriptor.timeout_seconds
                burst = await queue.next_burst(until if call.deadline is None else min(until, call.deadline))
                if not burst or (call.deadline is not None and now >= call.deadline and not writing.done()):
                    raise BusError("timeout", f"{self.descriptor.name} gave no sign of life in time", sent=True)
                for frames in screen_frames(burst, self._check_frame):
                    yield frames
                    if frames[-1].is_end:
                        return
        except (Exception, SystemExit) as error:  # as above
            raise self._failure(error) from error
        finally:
            try:
                await _stop(writing)
            finally:  # whoever reads may be cancelled once more meanwhile
                self._in_flight -= 1

    def _admit(self, call: CapabilityCall) -> None:
        """Take a place; the caller gives it back."""
        self.descriptor.check_request(call.body)
        if self._in_flight >= self.descriptor.max_concurrent:
            most = self.descriptor.max_concurrent
            raise BusError("capacity_exceeded", f"{self.descriptor.name} answers {most} calls at a time", seconds=0.5)
        self._in_flight += 1

    async def _handle(self, call: CapabilityCall, take: Callable[[CapabilityCall], Awaitable[T]]) -> T:
        return await self._begin(call, take)

    def _begin(self, call: CapabilityCall, take: Callable[[CapabilityCall], Awaitable[T]]) -> Awaitable[T]:
        """Run the handler on the caller's authority, with a record for the audit log."""
        _current.set(call.authority)
        audit = self._audit()
        return take(call) if audit is None else _audited(audit, self.descriptor, call, take)

    def _answer(self, call: CapabilityCall) -> Awaitable[Answer]:
        answering = self._handler(call)
        if isinstance(answering, CoroutineType) or not isinstance(answering, AsyncIterator):  # the latter takes long to ask
            return answering  # pyright: ignore[reportUnknownVariableType]
        return self._answer_of(answering)

    async def _answer_of(self, stream: AsyncIterator[Frame]) -> Answer:
        async with closing(stream) as frames:
            async for frame in frames:
                frame.raise_error()
                if frame.event == "done":
                    return frame.data if "output" in frame.data else {"output": dict(frame.data), "meta": {}}
        raise self._lost()

    async def _write_frames(self, call: CapabilityCall, queue: FrameQueue) -> None:
        answering = self._handler(call)
        if not isinstance(answering, AsyncIterator):
            queue.put(Frame("done", await answering))
            return
        async with closing(answering) as frames:
            async for frame in frames:
                if queue.waiting >= _WINDOW:
                    await queue.wait_for_room(_WINDOW)
                queue.put(frame)

    async def _inline(self, call: CapabilityCall, deadline: float) -> Answer:
        """The answer of the handler, which is cancelled at its deadline."""
        task, is_late = asyncio.current_task(), False
        assert task is not None

        def cancel() -> None:
            nonlocal is_late
            is_late = True
            task.cancel()

        self._deadlines.add(deadline, cancel)
        try:
            return await self._begin(call, self._answer)
        except asyncio.CancelledError:
            if is_late and task.uncancel() == 0:
                raise self._timeout() from None
            if task.cancelling():  # somebody else wants it to end too
                raise
            raise self._lost() from None
        finally:
            self._deadlines.remove(cancel)

    async def _within(self, work: Coroutine[Any, Any, T], deadline: float) -> T:
        """The result of the work, in a task of its own: a handler that ignores its cancellation cannot hold anybody up."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        task, expire = loop.create_task(_announcing(ended, work)), partial(_set, ended)
        self._deadlines.add(deadline, expire)
        try:
            await ended
        finally:
            self._deadlines.remove(expire)
            is_late = not task.done()
            if is_late:
                await _stop(task)
        if task.done() and not task.cancelled():
            return task.result()
        raise self._timeout() if is_late else self._lost()

    def _lost(self) -> BusError:
        """Of a handler that has ended without an answer: of itself, or since something that it waited for was cancelled."""
        return BusError("internal_error", f"{self.descriptor.name} ended without its last frame", sent=True)

    def _timeout(self) -> BusError:
        return BusError("timeout", f"{self.descriptor.name} gave no answer in time", sent=True)

    def _end(self, queue: FrameQueue, writing: "asyncio.Task[None]") -> None:
        queue.fail((None if writing.cancelled() else writing.exception()) or self._lost())

    def _check_frame(self, frame: Frame) -> None:
        self.descriptor.check_frame(frame)
        if frame.event == "done" and "output" in frame.data:
            self._check_answer(frame.data)

    def _check_answer(self, answer: Answer) -> None:
        if not isinstance(answer, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BusError("internal_error", f"{self.descriptor.name} answered with something that is no object", sent=True)
        self.descriptor.check_response(answer)

    def _failure(self, error: BaseException) -> BusError:
        if not isinstance(error, CallsmithError):
            _log.error("%s raised %s", self.descriptor.name, type(error).__name__, exc_info=error)
        failure = as_bus_error(error)
        failure.has_run |= self.descriptor.side_effects and not self.descriptor.idempotent
        if failure.has_run or failure.code not in ("capacity_exceeded", "rate_limited"):
            failure.sent = True
        return failure


async def _audited(
    audit: Audit, descriptor: Descriptor, call: CapabilityCall, take: Callable[[CapabilityCall], Awaitable[T]]
) -> T:
    async with _audit_call(audit, descriptor, call):
        return await take(call)


@asynccontextmanager
async def _audit_call(audit: Audit, descriptor: Descriptor, call: CapabilityCall) -> AsyncGenerator[None, None]:
    """Report that a capability runs, before it does and when it has ended."""
    authority, began = call.authority, time.perf_counter()
    target, version = read_target(call.input) if descriptor.name == TOOLS_CALL else ("", None)
    execution = Execution(
        f"exec_{call.request_id}",
        "capability",
        descriptor.name,
        hash_arguments(call.body),
        time.time(),
        source="bus",
        side_effects=descriptor.side_effects,
        subject=authority.subject,
        via=authority.via,
        conversation=call.session_id,
        trace_id=authority.trace_id,
        target_capability=target,
        target_version=write_version(version) if version else "",
    )
    await audit(execution)
    outcome = "internal_error"
    try:
        yield
        outcome = "ok"
    except asyncio.CancelledError:
        outcome = "cancelled"
        raise
    except CallsmithError as error:
        outcome = as_bus_error(error).code
        raise
    finally:
        await audit(replace(execution, outcome=outcome, seconds=round(time.perf_counter() - began, 6)))


async def _announcing(ended: "asyncio.Future[None]", work: Coroutine[Any, Any, T]) -> T:
    """Do the work and say at once that it has ended, which a callback of its task would say a turn of the loop later."""
    try:
        return await work
    finally:
        _set(ended)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _stop(task: "asyncio.Task[Any]") -> None:
    """Cancel a task, and wait a moment for its end."""
    if not task.done():
        task.cancel()
        _left_behind.add(task)
        task.add_done_callback(_left_behind.discard)
        await asyncio.wait((task,), timeout=GRACE)
    if task.done() and not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not warn about it
