"""API keys of callers. A server knows only their hashes; a key is sent as `Authorization: Bearer` or as `x-api-key`.

A key is 32 random bytes: it cannot be guessed, so a plain hash is enough.
"""

import secrets
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from hmac import compare_digest

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from callsmith.core.approval import Approved, Decision
from callsmith.server.http.errors import refuse
from callsmith.server.http.request_context import caller, current_request
from callsmith.server.network.connections import show_caller
from callsmith.server.settings import Key

OPEN_PATHS = frozenset({"/health", "/ready"})  # monitoring needs no key, but is shown less without one
PAGES = ("/", "/docs")
PAGE_FILES = "/page/"  # where the files of the page are: they say nothing of this server, and the page asks for the key
_NOBODY = Key("0" * 64, models=(), tools=(), capabilities=(), approves=False)  # whoever watches without a key


def new_key() -> tuple[str, str]:
    """Make a key; returns it and its hash."""
    key = f"sk-callsmith-{secrets.token_urlsafe(32)}"
    return key, hash_key(key)


def hash_key(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def find_key(presented: str, keys: Mapping[str, Key]) -> str | None:
    """The name of a key. All keys are compared, each in constant time, so that the duration reveals nothing."""
    digest, name = hash_key(presented), None
    for candidate, key in keys.items():
        if compare_digest(digest, key.sha256):
            name = candidate
    return name


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_may_approve(decision: Decision) -> None:
    """Status 403 if the caller approves a call of its own and its key may not."""
    context = current_request()
    if context is not None and context.key is not None and not context.key.approves and isinstance(decision, Approved):
        raise HTTPException(403, "this key may not approve its own calls: another key, of the scope approver, has to")


def visible_callers(keys: Mapping[str, Key]) -> tuple[str, ...]:
    """The caller, and those on whose calls the caller may decide."""
    http = current_request()
    key, own = (http.key, http.subject) if http else (None, "")
    if key is None or "approver" not in key.scopes:
        return (own,)
    return (own, *(name for name in keys if name != own and matches(name, key.approves_for)))


class KeyMiddleware:
    """Middleware that refuses requests without a valid key, and enters the caller in the request context.

    One key may have `most` requests answered at a time, and all without a key `most_open`: nobody holds all connections.
    """

    def __init__(self, app: ASGIApp, keys: Mapping[str, Key], *, most: int, most_open: int) -> None:
        self._app = app
        self._keys = keys
        self._most = most
        self._most_open = most_open
        self._answering: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why = self._refusal(HTTPConnection(scope)) if scope["type"] in ("http", "websocket") else ""
        if why and scope["type"] == "http" and (scope["path"] in OPEN_PATHS or _is_page(scope)):
            why = ""
            _enter("", _NOBODY)
        if why:
            await refuse(scope, receive, send, HTTPException(401, why, {"www-authenticate": "Bearer"}))
        elif self._answering[name := caller()] >= (self._most if name else self._most_open):
            await refuse(
                scope, receive, send, HTTPException(429, "too many requests of this kind at a time", {"retry-after": "1"})
            )
        else:
            self._answering[name] += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._answering[name] -= 1

    def _refusal(self, request: HTTPConnection) -> str:
        """Why this request is refused; empty if it is not."""
        presented = _key_in_headers(request)
        if not presented:
            return "a key is needed: send it as Authorization: Bearer or as x-api-key"
        name = find_key(presented, self._keys)
        if name is None:
            return "this key is not known here"
        _enter(name, self._keys[name])
        show_caller(request.scope, name)
        return ""


def wants_page(headers: Headers) -> bool:
    """Whether a browser asks, for something to be shown."""
    return "text/html" in headers.get("accept", "")


def _is_page(scope: Scope) -> bool:
    if scope["method"] not in ("GET", "HEAD"):
        return False
    return scope["path"].startswith(PAGE_FILES) or (scope["path"] in PAGES and wants_page(Headers(scope=scope)))


def _enter(name: str, key: Key) -> None:
    context = current_request()
    assert context is not None  # RequestContextMiddleware is around this
    context.subject, context.key, context.models, context.tools = name, key, key.models, key.tools


def _key_in_headers(request: HTTPConnection) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else request.headers.get("x-api-key", "").strip()
