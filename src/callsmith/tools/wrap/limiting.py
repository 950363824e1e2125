"""Timeouts, rate limits and long results: Timed, Limited, Shortened."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from weakref import WeakKeyDictionary

from callsmith.core.closing import closing
from callsmith.core.events import ToolProgress
from callsmith.core.failures import make_failure
from callsmith.core.ports import Context
from callsmith.core.types.escaped_text import cut_text
from callsmith.core.values import Call, Result
from callsmith.tools.functions import Tools
from callsmith.tools.wrap.wrapper import Item, Wrapper

_MOST_CONVERSATIONS = 10_000  # whose budgets are stored


class Timed(Wrapper):
    """Stops a call that takes longer than `seconds` and answers it with a timeout."""

    def __init__(self, toolset: Tools, seconds: float) -> None:
        super().__init__(toolset)
        self._seconds = seconds

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        clock, remaining = asyncio.get_running_loop().time, self._seconds
        async with closing(self._toolset.call(call, context)) as items:
            while True:
                # Only the tool's own time counts, not the time the reader takes between two items.
                began, timeout = clock(), asyncio.timeout(remaining)
                try:
                    async with timeout:
                        item = await anext(items, None)
                except TimeoutError:
                    if not timeout.expired():
                        raise  # the tool's own
                    item = make_failure(call, "timeout", f"{call.name} gave no answer within {self._seconds:g} s")
                remaining -= clock() - began
                if item is not None:
                    yield item
                if item is None or not isinstance(item, ToolProgress):
                    return


class Shortened(Wrapper):
    """Cuts results and progress that have more than `most` characters, and says in them how much is missing."""

    def __init__(self, toolset: Tools, most: int) -> None:
        super().__init__(toolset)
        self._most = most

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        async with closing(self._toolset.call(call, context)) as items:
            async for item in items:
                yield self._shorten(item)

    def _shorten(self, item: Item) -> Item:
        if isinstance(item, ToolProgress):
            return item if len(item.text) <= self._most else replace(item, text=cut_text(item.text, self._most))
        if not isinstance(item, Result):
            return item
        try:
            text = item.text
        except (TypeError, ValueError, RecursionError):  # no JSON: whoever reads it says so
            return item
        return item if len(text) <= self._most else replace(item, content=cut_text(text, self._most))


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit: `calls` in any `seconds`."""

    calls: int
    seconds: float


class Limited(Wrapper):
    """Limits calls: `parallel` at a time (others wait), `rate`, and in each conversation `budgets` of calls by pattern of name.

    Calls over the rate or the budget are refused, with the reason.
    """

    def __init__(
        self, toolset: Tools, *, parallel: int | None = None, budgets: Mapping[str, int] | None = None, rate: Rate | None = None
    ) -> None:
        super().__init__(toolset)
        self._parallel = parallel
        self._budgets = dict(budgets or {})
        self._rate = rate
        self._recent: deque[float] = deque()
        self._spent: OrderedDict[tuple[str, str], Counter[str]] = OrderedDict()
        # A semaphore belongs to the event loop it was first waited on in.
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        why = self._budget_exceeded(call, context) or self._rate_exceeded()
        if why:
            yield make_failure(call, "limit_reached", why)
            return
        self._spent[context.subject, context.conversation].update(self._matching_budgets(call))
        async with self._parallel_slot(), closing(self._toolset.call(call, context)) as items:
            async for item in items:
                yield item

    def _parallel_slot(self) -> "asyncio.Semaphore | nullcontext[None]":
        if self._parallel is None:
            return nullcontext()
        return self._semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._parallel))

    def _rate_exceeded(self) -> str:
        if self._rate is None:
            return ""
        now = asyncio.get_running_loop().time()
        while self._recent and self._recent[0] <= now - self._rate.seconds:
            self._recent.popleft()
        if len(self._recent) >= self._rate.calls:
            wait = self._recent[0] + self._rate.seconds - now
            return f"no more than {self._rate.calls} calls in {self._rate.seconds:g} s; again in {wait:.1f} s"
        self._recent.append(now)
        return ""

    def _budget_exceeded(self, call: Call, context: Context) -> str:
        whose = (context.subject, context.conversation)
        spent = self._spent.setdefault(whose, Counter())
        self._spent.move_to_end(whose)
        if len(self._spent) > _MOST_CONVERSATIONS:
            self._spent.popitem(last=False)
        for pattern in self._matching_budgets(call):
            if spent[pattern] >= self._budgets[pattern]:
                return f"the {self._budgets[pattern]} calls this conversation has for {pattern} are spent"
        return ""

    def _matching_budgets(self, call: Call) -> list[str]:
        """The patterns of the budgets that the call counts against."""
        return [pattern for pattern in self._budgets if fnmatchcase(call.name, pattern)]
