"""An exchange: one request and what became of it. Whatever works on the request can see it: `current()`.

It bears the request's id (`x-request-id`, the caller's own or a new one), who asks, and what the answers have cost. At its end
stands a line in the access log, with nothing of what was said.
"""

import logging
import re
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callsmith.core.values import Json, Usage
from callsmith.runtime.telemetry.turns import TurnRecord

HEADER = "x-request-id"
ACCESS = logging.getLogger("callsmith.access")

ErrorHandler: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]

_VALID_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_current: ContextVar["RequestContext | None"] = ContextVar("callsmith_exchange", default=None)


@dataclass(slots=True)
class RequestContext:
    """One request: its id, whose it is, and which models and tools are open to them. A recorder: it adds up what turns cost."""

    id: str
    subject: str = ""
    models: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)
    model: str = ""
    calls: int = 0
    usage: Usage = field(default_factory=Usage)

    def add(self, turn: TurnRecord) -> None:
        self.model = turn.model
        self.calls += len(turn.calls)
        self.usage += turn.usage


def current_request() -> RequestContext | None:
    """The exchange that is under way; None where nobody has asked over HTTP."""
    return _current.get()


def caller() -> str:
    """Who asks; empty where nobody needs a key."""
    exchange = current_request()
    return exchange.subject if exchange else ""


class RequestContextMiddleware:
    """An application whose every request is an exchange. Its id is in the response, and who asked and at what cost in the log.

    What nobody foresaw ends here: `failed` makes the response of it.
    """

    def __init__(self, app: ASGIApp, failed: ErrorHandler, *, access: bool = False) -> None:
        self._app = app
        self._failed = failed
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Request(scope).headers.get(HEADER, "")
        exchange = RequestContext(given if _VALID_ID.fullmatch(given) else f"req_{uuid4().hex}")
        status, began = 0, time.perf_counter()

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (HEADER.encode(), exchange.id.encode())]}
            await send(message)

        token = _current.set(exchange)
        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            if status:
                raise  # too late for another response: the HTTP server closes the connection
            await (await self._failed(Request(scope), error))(scope, receive, sending)
        finally:
            if self._access:
                ACCESS.info("request", extra={"fields": _log_fields(scope, status, time.perf_counter() - began, exchange)})
            _current.reset(token)


def _log_fields(scope: Scope, status: int, seconds: float, exchange: RequestContext) -> dict[str, Json]:
    told: dict[str, Json] = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status or 499,  # no response: the client went before it began
        "seconds": round(seconds, 4),
        "client": scope["client"][0] if scope.get("client") else "",
        "subject": exchange.subject,
        "model": exchange.model,
    }
    if exchange.model:
        told |= {"prompt_tokens": exchange.usage.prompt, "completion_tokens": exchange.usage.completion, "calls": exchange.calls}
    return {name: value for name, value in told.items() if value != ""}
