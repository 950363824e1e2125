"""A round of calls: validated, run side by side under deadlines, and each answered exactly once, whatever happens."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, assert_never

from callsmith.core.closing import closing
from callsmith.core.errors import LimitReached, UnsupportedSchema, UsageError
from callsmith.core.events import CallDeferred, ConfirmationNeeded, Notice, ToolEvent, ToolFinished, ToolProgress, ToolStarted
from callsmith.core.failures import make_failure, unknown_tool
from callsmith.core.ports import Context, Toolset
from callsmith.core.schema import validate
from callsmith.core.types.field_checks import check_fields, replace, replacer
from callsmith.core.values import Call, Message, Result, Tool
from callsmith.runtime.nesting import enter_tool
from callsmith.runtime.results import log_raised, make_error_result, pause_before_retry, reason_to_retry, result_message

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # for whoever sets up logging, as the server does; not for a terminal

Outcome: TypeAlias = Result | ConfirmationNeeded | CallDeferred

_GRACE = 0.15  # seconds a tool may take to stop after it was cancelled before it is left behind
_UNREAD = 1000  # events nobody has taken yet, from which on progress is dropped; results never are


@check_fields
@dataclass(frozen=True, slots=True)
class Limits:
    """How far a run may go.

    `iterations` bounds the rounds of calls, `parallel` the calls at a time, and `depth` the runs inside tools of runs (None: as
    many as the outermost run may have iterations). A call may take `seconds` (a tool's own timeout wins), and be silent for
    `silence` of them, which each progress it reports begins anew. The model reads `result_characters` of a result. A call that
    only reads, or whose tool is idempotent, is tried up to `retries` times again where its failure may pass. `tokens`, over all
    answers together, and `deadline`, in seconds, bound the whole run.
    """

    iterations: int = 6
    parallel: int = 4
    seconds: float = 30.0
    silence: float | None = None
    result_characters: int = 40_000
    depth: int | None = None
    tokens: int | None = None
    deadline: float | None = None
    retries: int = 2

    def __post_init__(self) -> None:
        if self.retries < 0:  # a call that is never tried has no result
            raise UsageError(f"retries: expected 0 or more, got {self.retries}", field="retries")


STANDARD_LIMITS, NO_CONTEXT = Limits(), Context()
_replace_context: Callable[..., Context] = replacer(Context)


@dataclass(slots=True, eq=False)
class _CallAttempt:
    """A call on its way to its one outcome."""

    place: int
    call: Call
    tool: Tool | None
    outcome: Outcome | None = None
    message: Message | None = None
    given_up: bool = False
    task: "asyncio.Task[None] | None" = None
    timer: asyncio.TimerHandle | None = None
    silent_since: float = 0.0
    seconds: float = 0.0  # it may take
    latest: float = 0.0  # when it must be over
    taken: "asyncio.Future[None] | None" = None  # done when the consumer has seen that it starts

    @property
    def serial(self) -> bool:
        return self.tool is not None and self.tool.side_effects

    @property
    def doubt(self) -> str:
        """What is added for a tool that may have acted before it was given up."""
        ran = self.task is not None and (self.taken is None or self.taken.done())
        return "; it may have taken effect all the same" if self.serial and ran else ""

    def give_up(self) -> None:
        """Cancel it. What it reports from now on is dropped."""
        self.given_up = True
        if self.timer:
            self.timer.cancel()
        if self.task and not self.task.done():
            self.task.cancel()
            _left_behind.add(self.task)
            self.task.add_done_callback(_left_behind.discard)


_left_behind: "set[asyncio.Task[None]]" = set()  # an event loop does not keep its tasks alive by itself


class Round:
    """The `calls` of one answer. Iterate `run()` for what happens; afterwards `results` and `messages` stand in the calls' order.

    Calls run side by side, except those of tools with side effects: among themselves they run one after another, in their order.
    A call that needs a person's approval is among `waiting` instead of the results, one that the caller runs among `deferred`.
    `find_earlier` gives the result of an identical call that was made before in the same turn.
    Closing the iterator cancels what still runs: tasks are given a moment to end, threads are left behind, and late results are
    dropped.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        tools: Mapping[str, Tool],
        toolset: Toolset,
        limits: Limits,
        find_earlier: Callable[[Call], str | None] = lambda call: None,
    ) -> None:
        self.calls = calls
        self._tools = tools
        self._find_earlier = find_earlier
        self._toolset = toolset
        self._limits = limits
        self._attempts = [_CallAttempt(place, call, tools.get(call.name)) for place, call in enumerate(calls)]
        self._free: deque[_CallAttempt] = deque()
        self._serial: deque[_CallAttempt] = deque()
        for attempt in self._attempts:
            (self._serial if attempt.serial else self._free).append(attempt)
        self._running: list[_CallAttempt] = []
        self._open = len(self._attempts)
        self._over = False  # nothing is started any more
        self._context = NO_CONTEXT
        self._unread: deque[tuple[ToolEvent, asyncio.Future[None] | None]] = deque()
        self._reader: asyncio.Future[None] | None = None  # done when there is something to read

    @property
    def results(self) -> list[Result]:
        """The results there are, in the order of the calls."""
        return [attempt.outcome for attempt in self._attempts if isinstance(attempt.outcome, Result)]

    @property
    def messages(self) -> list[Message]:
        """The results as the model reads them."""
        return [attempt.message for attempt in self._attempts if attempt.message is not None]

    @property
    def waiting(self) -> list[ConfirmationNeeded]:
        """The calls that need a person's approval."""
        return [attempt.outcome for attempt in self._attempts if isinstance(attempt.outcome, ConfirmationNeeded)]

    @property
    def deferred(self) -> list[Call]:
        """The calls that the caller runs itself."""
        return [attempt.call for attempt in self._attempts if isinstance(attempt.outcome, CallDeferred)]

    async def run(self, context: Context, until: float | None = None) -> AsyncGenerator[ToolEvent, None]:
        """What happens to all calls, as it happens. At `until`, in the loop's time, what is not done yet is given up."""
        self._context, loop = context, asyncio.get_running_loop()
        clock = loop.call_at(until, self._too_late) if until is not None else None
        try:
            self._start()
            while self._open or self._unread:
                if not self._unread:
                    self._reader = loop.create_future()
                    await self._reader
                event, acknowledged = self._unread.popleft()
                yield event
                if acknowledged is not None and not acknowledged.done():
                    acknowledged.set_result(None)
        finally:
            self._over = True
            if clock:
                clock.cancel()
            await self._clear()

    def _start(self) -> None:
        """Start what may run. Calls that make no sense are answered here and never run."""
        while not self._over and len(self._running) < max(1, self._limits.parallel) and (attempt := self._next()):
            if wrong := self._refusal(attempt):
                self._settle(attempt, wrong)
            else:
                self._launch(attempt)

    def _next(self) -> _CallAttempt | None:
        """The first call that waits; one with side effects only while no other such call runs."""
        free, serial = self._free, self._serial
        if serial and not any(attempt.serial for attempt in self._running):
            return serial.popleft() if not free or serial[0].place < free[0].place else free.popleft()
        return free.popleft() if free else None

    def _refusal(self, attempt: _CallAttempt) -> Result | None:
        call, tool = attempt.call, attempt.tool
        if tool is None:
            return unknown_tool(call, self._tools)
        try:
            complaints = validate(tool.parameters, call.arguments)
        except UnsupportedSchema as error:  # nothing runs on arguments that cannot be checked
            return make_error_result(call, error)
        if complaints:
            return make_failure(call, "bad_request", "; ".join(map(str, complaints)), label="invalid_arguments")
        return None

    def _launch(self, attempt: _CallAttempt) -> None:
        assert attempt.tool is not None
        loop, now = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        attempt.silent_since = now
        attempt.seconds = self._limits.seconds if attempt.tool.timeout is None else attempt.tool.timeout
        attempt.latest = now + attempt.seconds
        attempt.timer = loop.call_at(min(attempt.latest, self._silent_until(attempt)), self._look, attempt)
        self._running.append(attempt)
        attempt.task = loop.create_task(self._work(attempt))

    async def _work(self, attempt: _CallAttempt) -> None:
        """Run the call, in a task of its own: a tool that ignores its cancellation cannot hold us up."""
        around, call, tool = self._context, attempt.call, attempt.tool
        assert tool is not None
        context = _replace_context(
            around,
            depth=around.depth + 1,
            tool=tool,
            starting=partial(self._announce, attempt),
            cancelled=lambda: attempt.given_up or around.cancelled(),
            find_earlier=lambda: self._find_earlier(call),
        )
        enter_tool(context)
        # A tool with side effects only if it is idempotent, for the same call has the same id.
        retries = self._limits.retries if tool.idempotent or not tool.side_effects else 0
        try:
            for number in range(1, retries + 2):
                if not (why := await self._try(attempt, context, is_last=number > retries)):
                    return
                self._progress(attempt, ToolProgress(call.id, f"attempt {number} of {retries + 1} failed: {why}"))
                await asyncio.sleep(pause_before_retry(number))
        except LimitReached as error:
            self._finish(attempt, make_failure(call, "limit_reached", str(error)))
        except (Exception, SystemExit) as error:  # the one place: whatever a tool does wrong is reported to the model
            log_raised(_log, "the tool %s raised %s", call, error)
            self._finish(attempt, make_error_result(call, error))
        except GeneratorExit:  # the event loop is gone, and with it whoever would read an answer
            raise
        except BaseException as error:  # not to be stopped, but the call has its answer
            lost = make_failure(call, "internal_error", f"{call.name} was cancelled{attempt.doubt}")
            self._finish(attempt, lost if isinstance(error, asyncio.CancelledError) else make_error_result(call, error))
            raise
        finally:
            attempt.task = None  # whose context leads back here: nothing is left for the garbage collector

    async def _try(self, attempt: _CallAttempt, context: Context, *, is_last: bool) -> str:
        """Make the call. Where it failed and may go well a little later, what went wrong; then it has no outcome yet."""
        call = attempt.call
        try:
            async with closing(self._toolset.call(call, context)) as items:
                async for item in items:
                    match item:
                        case Result():
                            if not is_last and (why := reason_to_retry(item)):
                                return why
                            own = (item.call_id, item.name) == (call.id, call.name)
                            self._finish(attempt, item if own else replace(item, call_id=call.id, name=call.name))
                            return ""
                        case ToolProgress():
                            self._progress(attempt, replace(item, call_id=call.id))
                            await asyncio.sleep(0)  # a tool that never waits must not keep the others from their turn
                        case ConfirmationNeeded() | CallDeferred():
                            self._finish(attempt, replace(item, call=call))
                            return ""
                        case _:
                            assert_never(item)
        except Exception as error:
            if is_last or attempt.outcome is not None or not (why := reason_to_retry(error)):
                raise
            return why
        self._finish(attempt, make_failure(call, "internal_error", f"{call.name} ended without a result"))
        return ""

    async def _announce(self, attempt: _CallAttempt) -> None:
        """Report that the tool starts, and wait until the consumer has seen it: a journal can be written first."""
        if attempt.taken is None:
            loop = asyncio.get_running_loop()
            attempt.taken = loop.create_future()
            self._report(ToolStarted(attempt.call), attempt.taken)
            await attempt.taken
            attempt.silent_since = loop.time()

    def _progress(self, attempt: _CallAttempt, progress: ToolProgress) -> None:
        attempt.silent_since = now = asyncio.get_running_loop().time()
        if progress.waits:
            attempt.latest = now + attempt.seconds
        if attempt.outcome is None and len(self._unread) < _UNREAD:
            self._report(progress)

    def _finish(self, attempt: _CallAttempt, outcome: Outcome) -> None:
        self._settle(attempt, outcome)
        self._start()

    def _settle(self, attempt: _CallAttempt, outcome: Outcome) -> None:
        """Give a call its one outcome; any later one is dropped."""
        if attempt.outcome is not None:
            return
        cut = 0
        if isinstance(outcome, Result):
            try:
                attempt.message, cut = result_message(outcome, self._limits.result_characters)
            except (TypeError, ValueError, RecursionError) as error:
                outcome = make_failure(
                    attempt.call, "internal_error", f"the tool answered with something that is no JSON: {error}"
                )
                attempt.message, cut = result_message(outcome, self._limits.result_characters)
        attempt.outcome = outcome
        self._open -= 1
        if attempt.timer:
            attempt.timer.cancel()
        if attempt in self._running:
            self._running.remove(attempt)
        if not isinstance(outcome, Result):
            self._report(outcome)
            return
        if attempt.taken is None and outcome.ok and not outcome.code:
            self._report(ToolStarted(attempt.call))  # the toolset does not say when a tool starts; it answered well, so it has
        self._report(ToolFinished(outcome))
        if cut:
            self._report(Notice(f"the result of {outcome.name} is too long: the model does not read {cut:,} characters of it"))

    def _report(self, event: ToolEvent, acknowledged: "asyncio.Future[None] | None" = None) -> None:
        self._unread.append((event, acknowledged))
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _look(self, attempt: _CallAttempt) -> None:
        """See whether a call has been silent for too long, or takes too long in all."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if attempt.taken is not None and not attempt.taken.done():  # it waits for us, and not we for it
            attempt.silent_since, attempt.latest = now, now + attempt.seconds
        silent_until = self._silent_until(attempt)
        due = min(silent_until, attempt.latest)
        if now < due:
            attempt.timer = loop.call_at(due, self._look, attempt)
            return
        silent = f"gave no answer and no sign of life for {self._limits.silence or 0.0:g} s"
        why = silent if silent_until < attempt.latest else f"gave no answer within {attempt.seconds:g} s"
        self._finish(attempt, make_failure(attempt.call, "timeout", f"{attempt.call.name} {why}{attempt.doubt}"))
        attempt.give_up()

    def _silent_until(self, attempt: _CallAttempt) -> float:
        """When a call has been silent for too long."""
        return math.inf if self._limits.silence is None else attempt.silent_since + self._limits.silence

    def _too_late(self) -> None:
        """The whole run is out of time: answer what is open."""
        self._over = True
        for attempt in self._attempts:
            if attempt.outcome is None:
                why = f"there was no time left for {attempt.call.name}{attempt.doubt}"
                self._settle(attempt, make_failure(attempt.call, "limit_reached", why))
                attempt.give_up()

    async def _clear(self) -> None:
        """Stop what still runs. What has answered may still be tidying up and gets the same short time for it."""
        for attempt in self._attempts:
            if attempt.outcome is None:
                attempt.give_up()
        late = {attempt.task: attempt for attempt in self._attempts if attempt.task and not attempt.task.done()}
        if late:
            await asyncio.wait(late, timeout=_GRACE)
            for task, attempt in late.items():
                if not task.done():
                    attempt.give_up()
