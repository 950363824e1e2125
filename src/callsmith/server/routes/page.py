"""`/`: the page for people, and what clients of Ollama ask for there; `/page/{file}`: the files of the page.

The page is static: it is in the wheel, uses nothing of other hosts, and does all by the APIs that others use too, with the key
of whoever sits before it.
"""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from callsmith.server.http.keys import PAGE_FILES, wants_page
from callsmith.server.service import Service

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
_HOME = "index.html"
NOTHING: Mapping[str, str] = {}


def routes(service: Service) -> list[Route]:
    home = Route("/", _home if service.settings.page else _alive)
    return [home, Route(f"{PAGE_FILES}{{name}}", _file)] if service.settings.page else [home]


async def _home(request: Request) -> Response:
    if not wants_page(request.headers):
        return await _alive(request)
    return page_file(request, _HOME, {"vary": "accept"})


async def _alive(_: Request) -> Response:
    return PlainTextResponse("callsmith is running")


async def _file(request: Request) -> Response:
    return page_file(request, request.path_params["name"])


def page_file(request: Request, name: str, more: Mapping[str, str] = NOTHING) -> Response:
    """A file of the page, with the headers that all of them have."""
    file = _page_files().get(name)
    if file is None:
        return PlainTextResponse("there is no such file", 404, HEADERS)
    content, tag = file
    headers = {**HEADERS, **more, "etag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])


@cache
def _page_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page by name, each with its ETag."""
    folder = files("callsmith.server").joinpath("page")
    served = [file for file in folder.iterdir() if file.is_file() and file.name.rpartition(".")[2] in _TYPES]
    contents = {file.name: file.read_bytes() for file in served}
    return {name: (content, f'"{sha256(content).hexdigest()[:32]}"') for name, content in contents.items()}
