"""Keys: who may ask. A server knows them by their hashes only; `Authorization: Bearer` and `x-api-key` both carry one.

A key is 32 random bytes, so that a plain hash is as good as any: there is nothing to guess.
"""

import secrets
from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from hmac import compare_digest

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from callsmith.server.http.errors import on_http_error
from callsmith.server.http.request_context import current_request
from callsmith.server.settings import Key

OPEN_PATHS = frozenset({"/health", "/ready"})  # whoever watches over the server needs no key, and is told less without one


def new_key() -> tuple[str, str]:
    """A key, and the hash it is known by."""
    key = f"sk-callsmith-{secrets.token_urlsafe(32)}"
    return key, hash_key(key)


def hash_key(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def find_key(presented: str, keys: Mapping[str, Key]) -> str | None:
    """The name of this key. All are compared, each in constant time: how long it takes tells nothing."""
    digest, name = hash_key(presented), None
    for candidate, key in keys.items():
        if compare_digest(digest, key.sha256):
            name = candidate
    return name


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class KeyMiddleware:
    """An application that answers only those who have a key, and notes in the exchange who it is."""

    def __init__(self, app: ASGIApp, keys: Mapping[str, Key]) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # nothing here speaks it, and nothing should without a key
            await send({"type": "websocket.close", "code": 1008})
            return
        why = self._refusal(Request(scope)) if scope["type"] == "http" else ""
        if why and scope["path"] not in OPEN_PATHS:
            error = HTTPException(401, why, {"www-authenticate": "Bearer"})
            response = await on_http_error(Request(scope), error)
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, request: Request) -> str:
        """Why this request is not let in; empty if it is."""
        presented = _key_in_headers(request)
        if not presented:
            return "a key is needed: send it as Authorization: Bearer or as x-api-key"
        name = find_key(presented, self._keys)
        if name is None:
            return "this key is not known here"
        exchange = current_request()
        assert exchange is not None  # Exchanging is around this
        exchange.subject, exchange.models, exchange.tools = name, self._keys[name].models, self._keys[name].tools
        return ""


def _key_in_headers(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else request.headers.get("x-api-key", "").strip()
