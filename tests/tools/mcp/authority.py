"""An MCP server that wants a token, and the authority that gives one out; both count what happens."""

import itertools
import secrets
from typing import Any
from urllib.parse import urlencode

import httpx2
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class Authority:
    """Who may come in. `lifetime` is that of a token, in seconds; `refuses` is what a login ends in, where it does not work."""

    def __init__(self, *, lifetime: int = 3600, refuses: str = "") -> None:
        self.lifetime = lifetime
        self.refuses = refuses
        self.logins = 0
        self.registrations = 0
        self.grants: list[str] = []
        self.tokens: set[str] = set()
        self._numbers = itertools.count(1)

    def app(self) -> Starlette:
        server = MCPServer("guarded")

        @server.tool()
        def secret() -> str:
            return "42"

        inner = server.streamable_http_app()
        inner.user_middleware.append(Middleware(_Guard, authority=self))
        inner.router.routes[:0] = [
            Route("/.well-known/oauth-protected-resource/mcp", self._resource),
            Route("/.well-known/oauth-authorization-server", self._about),
            Route("/register", self._register, methods=["POST"]),
            Route("/authorize", self._authorize),
            Route("/oauth/token", self._token, methods=["POST"]),
        ]
        return inner

    async def _resource(self, request: Request) -> Response:
        return JSONResponse({"resource": f"{_origin(request)}/mcp", "authorization_servers": [_origin(request)]})

    async def _about(self, request: Request) -> Response:
        here = _origin(request)
        return JSONResponse(
            {
                "issuer": here,
                "authorization_endpoint": f"{here}/authorize",
                "token_endpoint": f"{here}/oauth/token",
                "registration_endpoint": f"{here}/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            }
        )

    async def _register(self, request: Request) -> Response:
        self.registrations += 1
        return JSONResponse({**await request.json(), "client_id": f"client-{self.registrations}"}, 201)

    async def _authorize(self, request: Request) -> Response:
        self.logins += 1
        answer = {"error": self.refuses} if self.refuses else {"code": "let-me-in"}
        back = urlencode({**answer, "state": request.query_params["state"]})
        return RedirectResponse(f"{request.query_params['redirect_uri']}?{back}")

    async def _token(self, request: Request) -> Response:
        form = await request.form()
        self.grants.append(str(form["grant_type"]))
        token = secrets.token_hex(8)
        self.tokens.add(token)
        renewal = {} if form["grant_type"] == "client_credentials" else {"refresh_token": f"again-{next(self._numbers)}"}
        return JSONResponse({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime, **renewal})


class _Guard:
    def __init__(self, app: ASGIApp, authority: Authority) -> None:
        self._app = app
        self._authority = authority

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            token = Request(scope).headers.get("authorization", "").removeprefix("Bearer ")
            if token not in self._authority.tokens:
                await Response(status_code=401, headers={"WWW-Authenticate": "Bearer"})(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def browse(url: str) -> Any:
    """What a person does: opens the page, and is sent back."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        return await browser.get(url)


def _origin(request: Request) -> str:
    return f"http://{request.url.netloc}"
