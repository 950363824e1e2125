"""`/v1/responses`: OpenAI's stateful dialect. Answers are stored, unless a request says otherwise, and can be gone on from.

Not covered: answers in the background, replaying a stream, WebSocket.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, UsageError
from callsmith.core.values import Json
from callsmith.server.bodies import Bodies
from callsmith.server.exchange import current
from callsmith.server.openai_responses_kept import Before, Kept
from callsmith.server.openai_responses_mcp import answering, settled, spoken_of, wanted_of
from callsmith.server.pages import page
from callsmith.server.service import Service, Wish
from callsmith.server.transport import EventStream, JsonResponse, unless_gone
from callsmith.server.wishes import wish_of
from callsmith.tools.mcp import McpHost
from callsmith.tools.wrap import Limited
from callsmith.wire.openai import write_error
from callsmith.wire.openai_mcp_events import McpEvent, McpWriter
from callsmith.wire.openai_responses import ResponsesRequest, read_needs, read_request
from callsmith.wire.openai_responses_events import Heading, Sent
from callsmith.wire.sse import write_frame
from callsmith.wire.tool_events import read_extras

PATH = "/v1/responses"
_SETTLING = 5.0  # seconds a cancelled answer gets to end


def routes(service: Service, mcp: McpHost | None = None) -> list[Route]:
    """The routes of this dialect."""
    dialect = _Dialect(service, mcp)
    return [
        Route(PATH, dialect.create, methods=["POST"]),
        Route(f"{PATH}/input_tokens", dialect.input_tokens, methods=["POST"]),
        Route(f"{PATH}/{{id}}", dialect.retrieve, methods=["GET"]),
        Route(f"{PATH}/{{id}}", dialect.delete, methods=["DELETE"]),
        Route(f"{PATH}/{{id}}/cancel", dialect.cancel, methods=["POST"]),
        Route(f"{PATH}/{{id}}/input_items", dialect.input_items, methods=["GET"]),
    ]


class _Dialect:
    """The endpoints, and the answers that are being given."""

    def __init__(self, service: Service, mcp: McpHost | None) -> None:
        self._service = service
        self._mcp = mcp
        self._bodies = Bodies(service.settings.largest_body)
        self._running: dict[tuple[str, str], _Answer] = {}  # by who asked and the id

    async def create(self, request: Request) -> Response:
        asked, before, wish = await self._read(request)
        answer = self._answer(asked, before, wish)
        if asked.stream:
            return EventStream(self._frames(answer), answer.failure, keep_alive=self._service.settings.keep_alive)
        await unless_gone(request.receive, self._whole(answer))
        return JsonResponse(answer.writer.response())

    async def input_tokens(self, request: Request) -> Response:
        asked, _, wish = await self._read(request)
        counted = await self._service.count(self._service.model(asked.model), asked.request, wish)
        if counted is None:
            raise UsageError(f"the model {asked.model!r} cannot count tokens", field="model")
        return JsonResponse({"object": "response.input_tokens", "input_tokens": counted})

    async def retrieve(self, request: Request) -> Response:
        if request.query_params.get("stream") == "true":
            raise UsageError("stream: a stored response is not streamed again", field="stream")
        id = request.path_params["id"]
        answer = self._running.get((_subject(), id))
        return JsonResponse(answer.writer.response() if answer else await self._kept().response(id))

    async def delete(self, request: Request) -> Response:
        id = request.path_params["id"]
        await self._service.approvals().drop(*await self._kept().forget(id))
        return JsonResponse({"id": id, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        id = request.path_params["id"]
        answer = self._running.get((_subject(), id))
        if answer is None:
            status = (await self._kept().response(id))["status"]
            raise UsageError(f"a response that is {status} cannot be cancelled")
        await answer.stop()
        return JsonResponse(answer.writer.response())

    async def input_items(self, request: Request) -> Response:
        items = await self._kept().input_items(request.path_params["id"])
        return JsonResponse(page(items, request))

    def _kept(self) -> Kept:
        return Kept(self._service.store, _subject())

    async def _read(self, request: Request) -> tuple[ResponsesRequest, Before, Wish]:
        body = await self._bodies.read(request)
        before, approvals = await self._kept().before(read_needs(body)), self._service.approvals()
        spoken = spoken_of(body)
        earlier = await settled(list(before.earlier.values()), approvals, spoken)
        if isinstance(body.get("input"), list):
            body["input"] = await settled(body["input"], approvals, spoken)
        asked = read_request(body, earlier, before.known)
        return asked, before, replace(wish_of(read_extras(body)), wanted=wanted_of(asked.servers), told=bool(asked.servers))

    def _answer(self, asked: ResponsesRequest, before: Before, wish: Wish) -> "_Answer":
        service = self._service
        if service.tools is not None and asked.max_tool_calls is not None:
            service = replace(service, tools=Limited(service.tools, budgets={"*": asked.max_tool_calls}))
        heading = Heading(f"resp_{uuid4().hex}", asked.model, int(time.time()), asked.repeated, asked.spaces)
        writer, kept = McpWriter(heading), self._kept()
        wish = replace(wish, session=wish.session or before.conversation or heading.id, response=heading.id)
        service.model(asked.model)
        events = answering(service, asked, wish, writer, self._down)

        async def keep(response: Json) -> None:
            if asked.store:
                await kept.keep(response, before, asked.input)

        return _Answer(events, writer, keep)

    def _down(self) -> dict[str, str]:
        """The MCP servers that do not run, and why."""
        states = self._mcp.status() if self._mcp else ()
        return {one.name: one.error or f"it is {one.state}" for one in states if one.state != "ready"}

    async def _frames(self, answer: "_Answer") -> AsyncIterator[bytes]:
        encoder = msgspec.json.Encoder()
        async with closing(self._sent(answer, streaming=True)) as sent:
            async for one in sent:
                yield write_frame(encoder.encode(one), one["type"].encode())

    async def _whole(self, answer: "_Answer") -> None:
        async with closing(self._sent(answer, streaming=False)) as sent:
            async for _ in sent:
                pass

    async def _sent(self, answer: "_Answer", *, streaming: bool) -> AsyncIterator[Sent]:
        key = (_subject(), answer.id)
        self._running[key] = answer
        try:
            async with closing(answer.sent(streaming=streaming)) as sent:
                async for one in sent:
                    yield one
        finally:
            del self._running[key]
            answer.over.set()


class _Answer:
    """An answer being given, which can be stopped from outside. It is stored before its end is told."""

    def __init__(self, events: AsyncIterator[McpEvent], writer: McpWriter, keep: Callable[[Json], Awaitable[None]]) -> None:
        self.id = writer.id
        self.writer = writer
        self.over = asyncio.Event()
        self._events = events
        self._keep = keep
        self._stopped = False
        self._scope: asyncio.Timeout | None = None  # around the wait for the next event

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        self._stopped = True
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), _SETTLING)

    async def sent(self, *, streaming: bool) -> AsyncIterator[Sent]:
        """What is sent. In a stream that has begun, a failure is a part of it."""
        try:
            async with closing(self._until_stopped()) as events:
                async for event in events:
                    for one in await self._ending(self.writer.tell(event)):
                        yield one
            if not self.writer.ended:
                for one in await self._ending(self.writer.cancel() if self._stopped else self.writer.close()):
                    yield one
        except CallsmithError as error:
            if not streaming or not self.writer.begun:
                raise
            sent = self.writer.fail(write_error(error))
            with suppress(CallsmithError):  # if it was the store that failed
                await self._keep(self.writer.response())
            for one in sent:
                yield one

    def failure(self, error: BaseException) -> bytes:
        """The last frames of a stream that broke down."""
        sent = self.writer.fail(write_error(error))
        return b"".join(write_frame(msgspec.json.encode(one), one["type"].encode()) for one in sent)

    async def _ending(self, sent: list[Sent]) -> list[Sent]:
        if self.writer.ended:
            await self._keep(self.writer.response())
        return sent

    async def _until_stopped(self) -> AsyncIterator[McpEvent]:
        async with closing(self._events) as events:
            while not self._stopped:
                scope = self._scope = asyncio.timeout(None)
                try:
                    async with scope:
                        event = await anext(events)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    if not scope.expired():
                        raise  # the model's own
                    return
                finally:
                    self._scope = None
                yield event


def _subject() -> str:
    """Who asks."""
    exchange = current()
    return exchange.subject if exchange else ""
