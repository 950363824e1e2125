"""What web pages may do here: a browser sends requests for any page, so the headers that no page can choose are checked.

- `Host`: a page whose name was rebound to this machine (DNS rebinding) still sends its own name. Where there are keys such a page
  has none, and any name will do unless `allowed_hosts` says otherwise.
- `Origin`, and `Sec-Fetch-Site` where there is none: requests and WebSockets of other pages are refused unless they are allowed.
- `Content-Type`: a page may send anything that is not called JSON without asking first.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from callsmith.server.settings import EVERYTHING, Settings

Refusal: TypeAlias = Callable[[Scope, Receive, Send, HTTPException], Awaitable[None]]

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_BODIES = frozenset({"POST", "PUT", "PATCH"})
_FOREIGN = frozenset({b"cross-site", b"same-site"})
_MOST_KNOWN = 64
_JSON = b"application/json"
_UNNAMED = frozenset({b"", b"application/x-www-form-urlencoded"})  # what curl says of `-d`, and other clients do not say
_BROWSERS_OWN = (b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    address = _parse_address(host.strip("[]"))
    return host == "localhost" if address is None else address.is_loopback


class OriginMiddleware:
    """Middleware that refuses what web pages of others send, and what is not meant for this server.

    `refuse` answers such a request. `host` is where the server listens, `hosts` are patterns of further names it goes by,
    `origins` the pages that may use it.
    """

    def __init__(
        self, app: ASGIApp, refuse: Refusal, *, host: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._host = host.lower()
        self._hosts = tuple(name.lower() for name in hosts)
        self._origins = frozenset(origins)
        # DNS rebinding needs a name: where others can reach the server, any address may be one of its own.
        self._any_address = not is_loopback(host)
        self._known: set[bytes] = set()  # headers that were found right before

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers: dict[bytes, bytes] = dict(scope["headers"])
            method = scope.get("method", "GET")
            wrong = (
                self._wrong_host(headers.get(b"host", b""))
                or self._wrong_origin(headers, method)
                or (_wrong_type(headers) if method in _BODIES else None)
            )
            if wrong is not None:
                await self._refuse(scope, receive, send, wrong)
                return
        await self._app(scope, receive, send)

    def _wrong_host(self, host: bytes) -> HTTPException | None:
        if host in self._known or not host or self._hosts == EVERYTHING:  # every browser names the host
            return None
        name = _name_of(host.decode("latin-1"))
        is_known = is_loopback(name) or name == self._host or any(fnmatchcase(name, pattern) for pattern in self._hosts)
        if not is_known and not (self._any_address and _parse_address(name)):
            how = "if it should, say so with --allow-host (server.allowed_hosts)"
            return HTTPException(421, f"this server does not go by the name {name!r}; {how}")
        if len(self._known) < _MOST_KNOWN:
            self._known.add(host)
        return None

    def _wrong_origin(self, headers: Mapping[bytes, bytes], method: str) -> HTTPException | None:
        origin = headers.get(b"origin")
        if origin is None:
            if method in _READING or headers.get(b"sec-fetch-site") not in _FOREIGN:
                return None
            return _foreign("another page")
        name = origin.decode("latin-1")
        if name in self._origins or "*" in self._origins:
            return None
        scheme, _, address = origin.partition(b"://")
        is_own = scheme in (b"http", b"https") and address.lower() == headers.get(b"host", b"").lower()
        return None if is_own else _foreign(name)


def allowed_hosts(settings: Settings) -> tuple[str, ...]:
    """Patterns of the names by which a server with these settings goes."""
    return EVERYTHING if settings.keys and not settings.allowed_hosts else settings.allowed_hosts


def _foreign(origin: str) -> HTTPException:
    return HTTPException(
        403, f"requests of {origin} are refused here; if it may use this server, say so with --allow-origin (server.cors_origins)"
    )


def _wrong_type(headers: Mapping[bytes, bytes]) -> HTTPException | None:
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind == _JSON or (kind.startswith(b"application/") and kind.endswith(b"+json")):
        return None
    if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
        return None  # there is no body
    if kind in _UNNAMED and not any(name in headers for name in _BROWSERS_OWN):
        return None
    described = f"as {kind.decode('latin-1')}" if kind else "without a type"
    return HTTPException(415, f"the body was sent {described}; expected JSON, with the header content-type: application/json")


def _name_of(host: str) -> str:
    """The name in a `Host` header, without the port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.strip().rstrip(".").lower()


def _parse_address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None
