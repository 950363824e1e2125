"""`/v1/responses` over WebSocket: requests are messages, and each event of an answer is one.

    → {"type": "response.create", "model": "qwen", "input": "Hi", "store": false}
    ← {"type": "response.created", …} … {"type": "response.completed", …}
    → {"type": "response.create", "model": "qwen", "input": "Go on", "store": false, "previous_response_id": "resp_1"}
    ← {"type": "error", "status": 400, "error": {"code": …, "message": …}}      in place of an answer that never began

One request is answered at a time, the others wait. Responses that are not to be stored can be gone on from as long as the
connection lasts, unless that has failed once. A client that disconnects ends the answer at once; a server that shuts down closes
the connection with code 1012, after the answer that it is giving. One that asks nothing is closed.
"""

import asyncio
import logging

from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket, WebSocketDisconnect

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError
from callsmith.server.http.errors import refuse
from callsmith.server.http.shutdown import DRAINING
from callsmith.server.http.sockets import SocketWriter
from callsmith.server.http.streams import encode, until_first_ends
from callsmith.server.routes.responses.dialect import ResponsesDialect
from callsmith.server.routes.responses.stored import RecentResponses
from callsmith.wire.fields import Fields
from callsmith.wire.openai.common import write_error, write_error_event, write_failure
from callsmith.wire.openai.responses_events import StreamEvent

_log = logging.getLogger(__name__)

_MOST_WAITING = 8  # messages; nothing more is received meanwhile
_TRANSPORT_FIELDS = frozenset({"type", "stream_id", "generate", "stream", "stream_options", "background"})


class ResponsesConnection:
    """A WebSocket connection of one client."""

    def __init__(self, socket: WebSocket, dialect: ResponsesDialect) -> None:
        self._socket = socket
        self._dialect = dialect
        self._recent = RecentResponses()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        self._settings = dialect.service.settings
        self._writer = SocketWriter(socket, self._settings.stalled_seconds)
        self._idle = asyncio.Event()  # no answer is being given
        self._idle.set()

    async def serve(self) -> None:
        """Answer what the client sends, until it disconnects."""
        sockets, most = self._dialect.service.sockets, self._settings.websockets
        if not sockets.may_open(most):
            error = HTTPException(429, f"there are {most} connections of this caller already: close one, or use it")
            await refuse(self._socket.scope, self._socket.receive, self._socket.send, error)
            return
        with sockets.count_open():
            await self._socket.accept()
            await until_first_ends(self._receive(), self._answer_all(), self._leave(), self._writer.wait_until_stalled())

    async def _receive(self) -> None:
        seconds: float | None = self._settings.idle_seconds
        try:
            while True:
                async with asyncio.timeout(seconds):
                    message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                seconds = None  # whoever has asked once may take their time: uvicorn looks whether they are still there
                await self._waiting.put(message.get("bytes") or (message.get("text") or "").encode())
        except TimeoutError:
            await self._socket.close(1008, "nothing was asked")

    async def _answer_all(self) -> None:
        while True:
            message = await self._waiting.get()
            self._idle.clear()
            await self._answer(message)
            self._idle.set()

    async def _leave(self) -> None:
        """Close the connection when the server shuts down, after the answer that is being given."""
        draining: asyncio.Event = self._socket.scope.get(DRAINING) or asyncio.Event()
        await draining.wait()
        await self._idle.wait()
        await self._socket.close(1012)

    async def _answer(self, message: bytes) -> None:
        """Answer one message; whatever is wrong with it is reported, and the next one is answered all the same."""
        stream_id, previous = None, ""
        try:
            body = Fields.of(await self._dialect.service.bodies.parse(message), "")
            stream_id = body.text("stream_id")
            previous = body.text("previous_response_id") or ""
            is_complete = await self._give_answer(body, stream_id)
        except WebSocketDisconnect:
            raise
        except Exception as error:
            if not isinstance(error, CallsmithError | HTTPException):
                _log.error("a request failed", exc_info=error)
            is_http = isinstance(error, HTTPException)
            failure = write_failure(error.status_code, error.detail) if is_http else write_error(error)
            await self._send(encode(_with_stream_id(write_error_event(failure), stream_id)))
            is_complete = False
        if not is_complete:
            self._recent.forget(previous)

    async def _give_answer(self, body: Fields, stream_id: str | None) -> bool:
        """Send the events of an answer; whether it has not failed."""
        if body.get("type") != "response.create":
            raise body.error("type", "expected 'response.create'")
        if body.flag("background") or body.flag("stream") is False:
            raise body.error("background" if body.flag("background") else "stream", "over WebSocket an answer is always streamed")

        def frame(event: StreamEvent) -> bytes:
            return encode(_with_stream_id(event, stream_id)) + b"\n"

        stored = self._dialect.open_stored(self._recent)
        fields = {key: value for key, value in body.data.items() if key not in _TRANSPORT_FIELDS}
        generates = body.flag("generate") is not False
        answer = self._dialect.answer(await self._dialect.read(fields, stored), stored, generates=generates)
        try:
            async with closing(answer.frames(frame)) as frames:
                async for lines in frames:
                    await self._send(lines)
        except Exception as error:
            if not answer.writer.begun or isinstance(error, WebSocketDisconnect):
                raise
            _log.error("an answer failed while it was streamed", exc_info=error)
            await self._send(answer.failure(error, frame))
        return answer.writer.response()["status"] != "failed"

    async def _send(self, lines: bytes) -> None:
        await self._writer.send(*lines.splitlines())


def _with_stream_id(event: StreamEvent, stream_id: str | None) -> StreamEvent:
    return event if stream_id is None else {**event, "stream_id": stream_id}
