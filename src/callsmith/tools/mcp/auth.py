"""Logging in to MCP servers that want it, as their configuration says.

    McpHost(servers, auth=Login(folder, show=open_in_browser))

A login by hand happens once: what comes of it is kept in the folder, and renewed from there. One that has failed is not tried
again by itself, so that nobody is asked over and over.
"""

import logging
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from callsmith.core.errors import Unavailable, UsageError
from callsmith.tools.mcp.config import LOGIN, ClientAuth, OAuth, ServerConfig
from callsmith.tools.mcp.loopback import HOST, PATH, Loopback, free_port
from callsmith.tools.mcp.tokens import TokenFile

Show: TypeAlias = Callable[[str, str], Awaitable[None]]

_METHODS: Mapping[ClientAuth, Literal["client_secret_basic", "client_secret_post"]] = {
    "basic": "client_secret_basic",
    "post": "client_secret_post",
}
_OFTEN, _WHILE = 3, 600.0  # pages that are shown within so many seconds

_log = logging.getLogger(__name__)


class Login:
    """How to log in to each server. `show(server, url)` has a person open a page; without it only programs can log in."""

    def __init__(self, folder: Path, show: Show | None = None, *, seconds: float = LOGIN) -> None:
        self._folder = folder
        self._show = show
        self._seconds = seconds
        self._shown: dict[str, list[float]] = {}  # when, by server
        self._failed: dict[str, str] = {}

    def __call__(self, config: ServerConfig) -> httpx2.Auth | None:
        oauth = config.oauth
        if oauth is None:
            return None
        path = self._folder / f"{config.name}.json"
        if oauth.grant == "client_credentials":
            return _by_credentials(config, oauth, TokenFile(path, config.url))
        return _ByHand(self, config, oauth, TokenFile(path, config.url, _configured(oauth)))

    async def begin(self, server: str, url: str) -> None:
        """Have somebody open the page, unless that has been of no use before."""
        if self._show is None:
            raise OAuthFlowError("somebody has to log in with a browser, and there is nobody to do it")
        if server in self._failed:
            raise OAuthFlowError(f"{self._failed[server]}; start again to try it again")
        now = time.monotonic()
        self._shown[server] = [when for when in self._shown.get(server, ()) if now - when < _WHILE]
        if len(self._shown[server]) >= _OFTEN:
            raise OAuthFlowError(f"it wants another login after {_OFTEN} in a row")
        self._shown[server].append(now)
        self._failed[server] = "the login came to nothing"
        await self._show(server, url)

    async def end(self, server: str, loopback: Loopback) -> AuthorizationCodeResult:
        """What the browser comes back with."""
        try:
            found = await loopback.answer(self._seconds)
        except TimeoutError:
            self._failed[server] = f"nobody logged in within {self._seconds:g} seconds"
            raise OAuthFlowError(self._failed[server]) from None
        if "error" in found:
            self._failed[server] = f"the login has failed: {found.get('error_description') or found['error']}"
            raise OAuthFlowError(self._failed[server])
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    def done(self, server: str) -> None:
        """The login was of use."""
        self._failed.pop(server, None)


class _ByHand(OAuthClientProvider):
    """A login by hand that is still good after a restart: a token that has run out is renewed before anybody is asked."""

    def __init__(self, login: Login, config: ServerConfig, oauth: OAuth, kept: TokenFile) -> None:
        port = oauth.redirect_port or _port_of(kept.registered()) or free_port()
        back = AnyUrl(f"http://{HOST}:{port}{PATH}")
        about = OAuthClientMetadata(client_name="callsmith", redirect_uris=[back], scope=oauth.scope or None)
        super().__init__(config.url, about, kept, self._begin, self._end, oauth.metadata_url or None)
        self._login = login
        self._server = config.name
        self._kept = kept
        self._loopback = Loopback(port)

    async def _begin(self, url: str) -> None:
        await self._loopback.open(parse_qs(urlsplit(url).query)["state"][0])
        try:
            await self._login.begin(self._server, url)
        except BaseException:
            self._loopback.close()
            raise

    async def _end(self) -> AuthorizationCodeResult:
        try:
            return await self._login.end(self._server, self._loopback)
        finally:
            self._loopback.close()

    async def _initialize(self) -> None:
        await super()._initialize()
        self._kept.restore(self.context)

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        self._kept.found(self.context)
        self._login.done(self._server)


class WithoutLogin(httpx2.Auth):
    """For servers that need no login: says what to write down when one does."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        response = yield request
        if response.status_code != 401:
            return
        if any(name.lower() == "authorization" for name in self._config.headers):
            raise Unavailable("it does not accept the Authorization header it is given (401)", hint="Is the token still good?")
        raise Unavailable(
            "it wants a login (401)",
            hint='Write "oauth": true into its configuration, or "headers": {"Authorization": "Bearer ${TOKEN}"}.',
        )


def _configured(oauth: OAuth) -> OAuthClientInformationFull | None:
    """As whom the server's authority knows us, where that was agreed beforehand."""
    if not oauth.client_id:
        return None
    return OAuthClientInformationFull(
        client_id=oauth.client_id,
        client_secret=oauth.client_secret or None,
        token_endpoint_auth_method=_METHODS[oauth.client_auth] if oauth.client_secret else "none",
        issuer=oauth.issuer or None,
    )


def _port_of(client: OAuthClientInformationFull | None) -> int | None:
    """The port that was registered."""
    return urlsplit(str(client.redirect_uris[0])).port if client and client.redirect_uris else None


def _by_credentials(config: ServerConfig, oauth: OAuth, kept: TokenFile) -> httpx2.Auth:
    if not oauth.client_id or not (oauth.client_secret or oauth.private_key):
        raise UsageError(
            f"MCP server {config.name}: client_credentials need a client_id, and a client_secret or a private_key",
            field=f"mcpServers.{config.name}.oauth",
        )
    if not oauth.issuer:
        _log.warning("MCP server %s itself says who its credentials are shown to; oauth.issuer would say who may", config.name)
    scope, issuer = oauth.scope or None, oauth.issuer or None
    with warnings.catch_warnings(action="ignore"):  # told above
        if not oauth.private_key:
            method = _METHODS[oauth.client_auth]
            return ClientCredentialsOAuthProvider(config.url, kept, oauth.client_id, oauth.client_secret, method, scope, issuer)
        signed = SignedJWTParameters(
            issuer=oauth.client_id, subject=oauth.client_id, signing_key=oauth.private_key, signing_algorithm=oauth.algorithm
        )
        asserted = signed.create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(config.url, kept, oauth.client_id, asserted, scope, issuer)
