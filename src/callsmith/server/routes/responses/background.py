"""Responses in the background: they go on when their client is gone, and are read by their ids.

Such a response is stored before its client sees it, and whoever gives the answer has a lease on it. One that is not complete
and that nobody has a lease on was cut off by the end of its server, and is failed.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, Unavailable, UsageError
from callsmith.core.values import Json
from callsmith.server.http.request_context import caller, client
from callsmith.server.http.streams import cancel_all
from callsmith.server.routes.responses.answer import LiveResponse, write_sse
from callsmith.server.routes.responses.dialect import ReadRequest, ResponsesDialect
from callsmith.server.store.leases import Leases
from callsmith.wire.openai.responses_events import OPEN_STATUSES

_log = logging.getLogger(__name__)

_MOST_ENDED = 16  # of a caller's answers, whose streams can still be read
_CUT_OFF = "the server was stopped before the response was complete"


class BackgroundResponse:
    """An answer that is given in the background; its stream can be read at any time, from any event on."""

    def __init__(self, answer: LiveResponse) -> None:
        self.answer = answer
        self.client = client()
        self.over = asyncio.Event()
        self._frames: list[bytes] = []  # by the sequence number of their event
        self._more = asyncio.Event()
        self._add(b"".join(map(write_sse, answer.writer.queue())))

    def response(self) -> Json:
        """The response as it stands."""
        response = self.answer.writer.response()
        return response if self.answer.writer.begun else {**response, "status": "queued"}

    async def read(self, start: int = 0) -> AsyncIterator[bytes]:
        """The stream, from the event with this sequence number on."""
        while True:
            more = self._more
            if frames := self._frames[start:]:
                start += len(frames)
                yield b"".join(frames)
            elif self.over.is_set():
                return
            else:
                await more.wait()

    async def give(self) -> None:
        """Give the answer; its end, whatever that is, is stored."""
        try:
            async with closing(self.answer.frames()) as frames:
                async for frame in frames:
                    self._add(frame)
        except asyncio.CancelledError:
            await self._fail(Unavailable(_CUT_OFF))
            raise
        except Exception as error:
            if not isinstance(error, CallsmithError):
                _log.error("an answer failed in the background", exc_info=error)
            await self._fail(error)
        finally:
            self.over.set()
            self._more.set()

    async def _fail(self, error: Exception) -> None:
        self._add(self.answer.failure(error))
        await self.answer.keep()

    def _add(self, frames: bytes) -> None:
        self._frames += [frame + b"\n\n" for frame in frames.split(b"\n\n") if frame]
        more, self._more = self._more, asyncio.Event()
        more.set()


class BackgroundResponses:
    """The answers that are given in the background, and the latest that were: by who asked, and by their ids."""

    def __init__(self, dialect: ResponsesDialect) -> None:
        self._dialect = dialect
        self._answers: dict[str, dict[str, BackgroundResponse]] = defaultdict(dict)
        self._tasks: set[asyncio.Task[None]] = set()
        dialect.service.on_shutdown.append(self.close)

    async def start(self, parsed: ReadRequest) -> BackgroundResponse:
        """Begin to answer; the response is stored when this returns."""
        if not parsed.request.store:
            raise UsageError("background: what is answered in the background has to be stored", field="background")
        service, stored, answers = self._dialect.service, self._dialect.open_stored(), self._answers[caller()]
        waiting = [
            background.client
            for own in self._answers.values()
            for background in own.values()
            if not background.answer.writer.begun and not background.over.is_set()
        ]
        service.answers.gate.check(service.settings.queue, client(), service.answers.caller_limits(), waiting)
        background = BackgroundResponse(self._dialect.answer(parsed, stored))
        id = background.answer.writer.id
        answers[id] = background  # it counts as waiting from now on
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self._leases().take(id))
                await stored.keep(background.response(), parsed.before, parsed.request.input)
                task = asyncio.create_task(self._give(background, stack.pop_all()))
        except BaseException:
            del answers[id]
            raise
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        for ended in [known for known, other in answers.items() if other.over.is_set()][:-_MOST_ENDED]:
            del answers[ended]
        return background

    def get(self, id: str) -> BackgroundResponse | None:
        """An answer of the caller's that is being given, or was lately."""
        return self._answers[caller()].get(id)

    async def response(self, id: str) -> Json:
        """A stored response; one that was cut off is failed."""
        stored = self._dialect.open_stored()
        response = await stored.response(id)
        leases = self._leases()
        if response["status"] not in OPEN_STATUSES or await leases.is_taken(id):
            return response
        if await leases.is_free(id):
            await stored.fail(id, _CUT_OFF)  # unless it has ended since
        return await stored.response(id)

    async def stop(self, id: str) -> None:
        """End an answer, if it is being given, and wait until its end is stored."""
        background = self.get(id)
        if background is not None and not background.over.is_set():
            await background.answer.stop()
            await background.over.wait()

    def forget(self, id: str) -> None:
        """Its stream is not read again."""
        self._answers[caller()].pop(id, None)

    async def close(self) -> None:
        """End all answers; they are stored as failed."""
        await cancel_all(*self._tasks)

    def _leases(self) -> Leases:
        return Leases(self._dialect.service.store, caller())

    async def _give(self, background: BackgroundResponse, stack: AsyncExitStack) -> None:
        async with stack:
            await background.give()
