"""The request context: the id of a request, its caller, and what its answers have cost; `current_request()` returns it.

The id is the caller's own `x-request-id` (or in the header that its dialect has for it) or a new one. At the end of a request a
line is written to the access log, with nothing of the content.
"""

import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import uuid4

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callsmith.core.values import Json, Usage
from callsmith.runtime.telemetry.turns import TurnRecord
from callsmith.server.settings import Key

HEADER = "x-request-id"
_SESSION_HEADERS = (b"x-session-id", b"x-claude-code-session-id", b"session-id", b"session_id")  # Codex has the last two
ACCESS = logging.getLogger("callsmith.access")

ErrorHandler: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]

_BEGINNINGS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
_VALID_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_current: ContextVar["RequestContext | None"] = ContextVar("callsmith_request", default=None)


@dataclass(slots=True)
class RequestContext:
    """One request: its id, its caller, and the models and tools the caller may use. As a recorder it adds up what turns cost.

    `key` is the caller's; None where no key is needed. `session` is what a header of the client calls the conversation.
    """

    id: str
    address: str = ""
    subject: str = ""
    models: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)
    key: Key | None = None
    model: str = ""
    capability: str = ""
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    body_bytes: int = 0
    session: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])  # of the response

    @property
    def client(self) -> str:
        """Who shares limits with others: the caller of a key, and without keys an address."""
        return self.subject or f"@{self.address}"

    def header_bytes(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode(), value.encode()) for name, value in self.headers.items()]

    def add(self, turn: TurnRecord) -> None:
        self.model = turn.model
        self.calls += len(turn.calls)
        self.usage += turn.usage


_OUTSIDE = RequestContext("")  # what is known outside of HTTP


def current_request() -> RequestContext | None:
    """The context of the request that is being answered; None outside of HTTP."""
    return _current.get()


def caller() -> str:
    """The name of the caller's key; empty where no key is needed."""
    return (current_request() or _OUTSIDE).subject


def request_id() -> str:
    """The id of the request that is being answered; empty outside of HTTP."""
    return (current_request() or _OUTSIDE).id


def client() -> str:
    """Who shares limits with others (`RequestContext.client`); empty outside of HTTP."""
    context = current_request()
    return context.client if context else ""


def client_session() -> str:
    """What the client calls the conversation, in a header of the request; empty where it does not."""
    return (current_request() or _OUTSIDE).session


def is_admin() -> bool:
    """Whether the caller may see what concerns other callers: everybody may where no key is needed."""
    key = (current_request() or _OUTSIDE).key
    return key is None or "admin" in key.scopes


def act_for(subject: str, key: Key) -> None:
    """Continue this task on behalf of another caller, as far as its key goes."""
    context = current_request()
    id = f"req_{uuid4().hex}" if context is None else context.id
    _current.set(RequestContext(id, subject=subject, models=key.models, tools=key.tools, key=key))


class RequestContextMiddleware:
    """Middleware that gives every request a context, returns its id in the response, and logs caller and cost.

    Unexpected exceptions end here: `failed` makes the response of one. `id_headers` may have the caller's own id.
    """

    def __init__(
        self, app: ASGIApp, failed: ErrorHandler, *, access: bool = False, id_headers: Sequence[str] = (HEADER,)
    ) -> None:
        self._app = app
        self._failed = failed
        self._access = access
        self._id_headers = id_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = HTTPConnection(scope).headers
        client_id = next((value for name in self._id_headers if (value := headers.get(name))), "")
        id = client_id if _VALID_ID.fullmatch(client_id) else f"req_{uuid4().hex}"
        context = RequestContext(id, scope["client"][0] if scope.get("client") else "", session=_session(scope))
        status, began = 0, time.perf_counter()

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] in _BEGINNINGS:
                status = message.get("status", 101)
                added = [(HEADER.encode(), context.id.encode()), *context.header_bytes()]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        token = _current.set(context)
        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            if status or scope["type"] != "http":
                raise  # too late for another response: the HTTP server closes the connection
            await (await self._failed(Request(scope), error))(scope, receive, sending)
        finally:
            if self._access:
                ACCESS.info("request", extra={"fields": _log_fields(scope, status, time.perf_counter() - began, context)})
            _current.reset(token)


def _session(scope: Scope) -> str:
    headers = {name: value for name, value in scope["headers"] if name in _SESSION_HEADERS}
    return next((headers[name] for name in _SESSION_HEADERS if headers.get(name)), b"").decode("latin-1")


def _log_fields(scope: Scope, status: int, seconds: float, context: RequestContext) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "method": scope.get("method", "WEBSOCKET"),
        "path": scope["path"],
        "status": status or 499,  # no response: the client disconnected before it began
        "seconds": round(seconds, 4),
        "client": context.address,
        "subject": context.subject,
        "model": context.model,
        "capability": context.capability,
    }
    if context.model:
        fields |= {"prompt_tokens": context.usage.prompt, "completion_tokens": context.usage.completion, "calls": context.calls}
    return {name: value for name, value in fields.items() if value != ""}
