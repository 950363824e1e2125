"""`LazyModel`: a model that is opened when it is first asked, and closed when nobody has asked for a while or room is needed.

    model = LazyModel("qwen", lambda: open_model("qwen2.5-coder-1.5b"), unload_after=300)
    async with in_use(model) as opened: ...        # not unloaded meanwhile

Whoever comes while it is being opened waits for that one opening, and may go away again without harm to the others. A failed
opening is an error for those who waited for it, and is tried again for the next. An answer that is being given is never cut
off: the model is unloaded behind it.
"""

import asyncio
import ctypes
import logging
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, ModelError, Unavailable
from callsmith.core.events import ModelEvent
from callsmith.core.ports import Model, ModelInfo, OpenedModel, model_info
from callsmith.core.types.quantities import write_size
from callsmith.core.values import Completion, Request

_PATIENCE: Final = 30.0  # seconds that a load waits for models in use
_RETRY: Final = 5.0  # seconds after which a client that was refused may ask again
_PROGRESS: Final = 10.0  # seconds between two lines in the log while a model is being loaded
_UNKNOWN: Final = ModelInfo()
_log = logging.getLogger(__name__)


def return_free_memory() -> None:
    """Give memory that is free back to the system. The C library of Linux would hold back a tenth of a model and more."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class MemoryBudget:
    """The bytes that loaded models may take together; None: any number. The one that was not asked for longest makes room."""

    def __init__(self, limit: int | None = None, *, patience: float = _PATIENCE) -> None:
        self._limit = limit
        self._patience = patience
        self._models: set[LazyModel] = set()
        self._changed = asyncio.Event()

    @property
    def used(self) -> int:
        return sum(model.memory for model in self._models)

    def add(self, model: "LazyModel") -> None:
        """Count a model that is loaded, whether there is room or not."""
        self._models.add(model)

    def remove(self, model: "LazyModel") -> None:
        self._models.discard(model)
        self.notify()

    def notify(self) -> None:
        """Let those that wait for room look again: a model is idle, or unloaded."""
        self._changed.set()

    def check(self, model: "LazyModel") -> None:
        """Raise `Unavailable` if the model would not fit even alone."""
        if self._limit is not None and model.memory > self._limit:
            raise Unavailable(
                f"{model.name} needs about {write_size(model.memory)}, and models may take {write_size(self._limit)} together",
                hint="Allow more with --memory, or give the model a smaller context.",
            )

    async def make_room(self, model: "LazyModel") -> None:
        """Count a model that is about to be loaded; what is idle is unloaded for it, and what is in use is waited for."""
        self.check(model)
        limit = self._limit
        try:
            async with asyncio.timeout(self._patience):
                while limit is not None and self.used + model.memory > limit:
                    await self._free(self.used + model.memory - limit)
        except TimeoutError:
            busy = ", ".join(sorted(model.name for model in self._models if not model.is_idle))
            raise Unavailable(
                f"there is no room for {model.name} now: {busy} in use; try again later", retryable=True, seconds=_RETRY
            ) from None
        self._models.add(model)

    async def _free(self, needed: int) -> None:
        """Unload the model that was not asked for longest; if all idle ones together would not do, wait for another."""
        idle = sorted((model for model in self._models if model.is_idle and model.memory), key=lambda model: model.last_used)
        if sum(item.memory for item in idle) >= needed:
            await asyncio.shield(idle[0].unload())
        else:
            self._changed.clear()
            await self._changed.wait()


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """Whether a model is loaded, and its state so far. `expires_in` is in how many seconds it will be unloaded if
    nobody asks, None: not by itself. `error` is why it could not be loaded the last time."""

    state: Literal["loaded", "loading", "unloaded", "failed"] = "loaded"
    expires_in: float | None = None
    loads: int = 0
    unloads: int = 0
    failures: int = 0
    error: str = ""


def in_use(model: Model) -> AbstractAsyncContextManager[Model]:
    """The model, loaded, and not unloaded before the block is left."""
    return model.use() if isinstance(model, LazyModel) else nullcontext(model)


def model_status(model: Model) -> ModelStatus:
    """Whether the model is loaded; one that is not lazy is, or is about to be."""
    return model.status if isinstance(model, LazyModel) else ModelStatus("loaded" if model_info(model).ready else "loading")


class LazyModel:
    """A model that is in memory while it is asked. `described` is what is known of it before it is opened; `unload_after` are
    the seconds for which it stays loaded when nobody asks, None: for ever."""

    def __init__(
        self,
        name: str,
        open: Callable[[], OpenedModel],
        described: ModelInfo = _UNKNOWN,
        *,
        unload_after: float | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self.name = name
        self.memory = described.memory
        self.last_used = 0.0
        self._open = open
        self.info = described  # of one that was never loaded, what its file says
        self._unload_after = unload_after
        self._requested_stay: float | None = None  # what a request has said instead
        self._has_request = False
        self._budget = budget or MemoryBudget()
        self._model: OpenedModel | None = None
        self._users = 0
        self._changing = asyncio.Lock()  # while it is opened or closed
        self._loading: asyncio.Task[None] | None = None
        self._waits_for_room = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._status = ModelStatus("unloaded")
        self._closed = False

    @property
    def status(self) -> ModelStatus:
        if self._model is None:
            return replace(self._status, state="loading") if self._loading else self._status
        seconds = self._timer.when() - asyncio.get_running_loop().time() if self._timer else self._stays
        return replace(self._status, state="loaded", expires_in=seconds)

    @property
    def is_idle(self) -> bool:
        """Whether it is loaded and nobody uses it."""
        return self._model is not None and not self._users

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """The answer as events; it is loaded first, if need be."""
        return self._events(lambda opened: opened.stream(request))

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[OpenedModel, None]:
        self._users += 1
        self._stop_timer()
        try:
            yield self._model or await self._wait_until_loaded()
        finally:
            self._users -= 1
            if not self._users:
                self._start_idle_time()

    def stay_for(self, seconds: float | None) -> None:
        """Stay loaded for so long after the next answer and those behind it, None: for ever; until it is unloaded, or this is
        said again."""
        self._requested_stay, self._has_request = seconds, True

    def unload_when_idle(self) -> None:
        """Unload the model, if it is loaded, as soon as nobody uses it. What takes no memory here stays."""
        if self._model is not None or self._loading is not None:
            self.stay_for(0)
        self.count_idle_time()

    async def unload(self) -> None:
        """Close the model unless it is in use; who asks for it meanwhile waits, and has it opened again."""
        await asyncio.shield(self._start(self._unload()))

    def load_now(self) -> None:
        """Open the model before there is an event loop; once there is one, `count_idle_time` lets it be unloaded."""
        self._budget.add(self)
        self._take_over(self._open())

    def count_idle_time(self) -> None:
        """Count from now on for how long nobody has asked."""
        if self.is_idle:
            self._start_idle_time()

    async def close(self) -> None:
        """Close the model for good. Answering afterwards is an error."""
        self._closed = True
        self._stop_timer()
        async with self._changing:
            await self._free()

    @property
    def _stays(self) -> float | None:
        """How long it stays loaded when nobody asks. What takes no memory here stays."""
        return None if not self.memory else self._requested_stay if self._has_request else self._unload_after

    async def _wait_until_loaded(self) -> OpenedModel:
        while self._model is None:
            if self._loading is None:
                self._loading = self._start(self._load())
            await asyncio.shield(self._loading)
        return self._model

    async def _load(self) -> None:
        task = asyncio.current_task()
        try:
            async with self._changing:
                if self._closed:
                    raise Unavailable(f"{self.name} is closed: the server is shutting down", retryable=True)
                if self._model is None:
                    self._waits_for_room = True
                    await self._budget.make_room(self)
                    self._waits_for_room = False
                    await self._open_logged()
        except Exception as error:  # whatever it is, those who wait must get it
            raise self._note_failure(error) from error
        finally:
            self._waits_for_room = False
            if self._loading is task:
                self._loading = None
        if not self._users:
            self._start_idle_time()

    def _note_failure(self, error: Exception) -> ModelError:
        """The error for those who wait: what is wrong with the settings or the file is the operator's to fix, not theirs."""
        is_known = isinstance(error, CallsmithError)
        _log.error("%s cannot be loaded: %s", self.name, error, exc_info=not is_known)
        why = error if is_known else f"{type(error).__name__}; the server's log says more"
        failure = error if isinstance(error, ModelError) else Unavailable(f"{self.name} cannot be loaded: {why}")
        self._has_request = False
        self._status = replace(self._status, state="failed", failures=self._status.failures + 1, error=failure.message)
        return failure

    async def _open_logged(self) -> None:
        """Open it in a thread, and say in the log how it goes."""
        began, size = time.monotonic(), f" ({write_size(self.memory)})" if self.memory else ""
        _log.info("loading %s%s", self.name, size)
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            while not (await asyncio.wait([opening], timeout=_PROGRESS))[0]:
                _log.info("still loading %s, for %.0f s", self.name, time.monotonic() - began)
            self._take_over(opening.result())
        except BaseException:
            self._budget.remove(self)
            raise
        _log.info("loaded %s in %.1f s", self.name, time.monotonic() - began)

    def _take_over(self, model: OpenedModel) -> None:
        known = model.info
        count, complete = (known.count and self._count), (known.complete and self._complete)
        # Nothing in it may keep a model in memory that is unloaded.
        self.memory = self.memory or known.memory or known.weights.size
        self.info = replace(known, memory=self.memory, count=count, complete=complete, tokenizer=None)
        self._model = model
        self._status = replace(self._status, loads=self._status.loads + 1, error="")

    async def _unload(self) -> None:
        async with self._changing:
            if self.is_idle:
                await self._free()
                _log.info("unloaded %s", self.name)

    async def _free(self) -> None:
        model, self._model, self._has_request = self._model, None, False
        self._stop_timer()
        if model is not None:
            self._status = replace(self._status, state="unloaded", unloads=self._status.unloads + 1)
            try:
                await model.close()
                del model
                await asyncio.to_thread(return_free_memory)
            finally:
                self._budget.remove(self)

    def _start_idle_time(self) -> None:
        """Nobody uses it any more: it is unloaded later, or now; a load that nobody waits for ends, if it has not begun."""
        self.last_used = time.monotonic()
        if self._model is None:
            if self._waits_for_room and self._loading:
                self._loading.cancel()
                self._loading = None
            return
        self._budget.notify()
        stays = self._stays
        if stays is not None and stays <= 0:
            self._start(self._unload())
        elif stays is not None:
            self._timer = asyncio.get_running_loop().call_later(stays, lambda: self._start(self._unload()))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that goes on when nobody waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._drop_task)
        return task

    def _drop_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it was logged; whoever still waits gets it

    async def _count(self, request: Request) -> int:
        async with self.use() as opened:
            assert opened.info.count is not None  # the same model could count before
            return await opened.info.count(request)

    def _complete(self, completion: Completion) -> AsyncGenerator[ModelEvent, None]:
        def ask(opened: OpenedModel) -> AsyncIterator[ModelEvent]:
            assert opened.info.complete is not None
            return opened.info.complete(completion)

        return self._events(ask)

    async def _events(self, ask: Callable[[OpenedModel], AsyncIterator[ModelEvent]]) -> AsyncGenerator[ModelEvent, None]:
        async with self.use() as opened, closing(ask(opened)) as events:
            async for event in events:
                yield event
