"""OAuth for MCP servers that require a login.

    McpHost(servers, auth=Login(folder, show=open_in_browser))

A person logs in once: the tokens are stored in the folder and refreshed from there. A login that has failed is not tried again in
the same process, so that nobody is asked over and over.
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
from callsmith.tools.mcp.config import LOGIN_SECONDS, ClientAuth, OAuth, ServerConfig
from callsmith.tools.mcp.loopback import HOST, PATH, Loopback, free_port
from callsmith.tools.mcp.tokens import TokenFile

ShowPage: TypeAlias = Callable[[str, str], Awaitable[None]]

_METHODS: Mapping[ClientAuth, Literal["client_secret_basic", "client_secret_post"]] = {
    "basic": "client_secret_basic",
    "post": "client_secret_post",
}
_MOST_PAGES, _PAGES_SECONDS = 3, 600.0  # logins that are shown within so many seconds

_log = logging.getLogger(__name__)


class Login:
    """Makes the authentication of each server. `show(server, url)` asks a person to open a page."""

    def __init__(self, folder: Path, show: ShowPage | None = None, *, seconds: float = LOGIN_SECONDS) -> None:
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
            return _client_credentials(config, oauth, TokenFile(path, config.url))
        return _BrowserLogin(self, config, oauth, TokenFile(path, config.url, _client_information(oauth)))

    async def show_page(self, server: str, url: str) -> None:
        """Ask a person to open the login page, unless a login has failed before."""
        if self._show is None:
            raise OAuthFlowError("a person has to log in with a browser, and nobody can be asked")
        if server in self._failed:
            raise OAuthFlowError(f"{self._failed[server]}; start again to try it again")
        now = time.monotonic()
        self._shown[server] = [when for when in self._shown.get(server, ()) if now - when < _PAGES_SECONDS]
        if len(self._shown[server]) >= _MOST_PAGES:
            raise OAuthFlowError(f"it wants another login after {_MOST_PAGES} in a row")
        self._shown[server].append(now)
        self._failed[server] = "the login was not completed"
        await self._show(server, url)

    async def wait_for_code(self, server: str, loopback: Loopback) -> AuthorizationCodeResult:
        """Wait for the authorization code that the browser is redirected with."""
        try:
            answer = await loopback.answer(self._seconds)
        except TimeoutError:
            self._failed[server] = f"nobody logged in within {self._seconds:g} seconds"
            raise OAuthFlowError(self._failed[server]) from None
        if "error" in answer:
            self._failed[server] = f"the login has failed: {answer.get('error_description') or answer['error']}"
            raise OAuthFlowError(self._failed[server])
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))

    def succeeded(self, server: str) -> None:
        """The login has succeeded."""
        self._failed.pop(server, None)


class _BrowserLogin(OAuthClientProvider):
    """A login with a browser that survives a restart: an expired token is refreshed before a person is asked."""

    def __init__(self, login: Login, config: ServerConfig, oauth: OAuth, tokens: TokenFile) -> None:
        port = oauth.redirect_port or _port_of(tokens.registered()) or free_port()
        back = AnyUrl(f"http://{HOST}:{port}{PATH}")
        about = OAuthClientMetadata(client_name="callsmith", redirect_uris=[back], scope=oauth.scope or None)
        super().__init__(config.url, about, tokens, self._begin, self._end, oauth.metadata_url or None)
        self._login = login
        self._server = config.name
        self._tokens = tokens
        self._loopback = Loopback(port)

    async def _begin(self, url: str) -> None:
        await self._loopback.open(parse_qs(urlsplit(url).query)["state"][0])
        try:
            await self._login.show_page(self._server, url)
        except BaseException:
            self._loopback.close()
            raise

    async def _end(self) -> AuthorizationCodeResult:
        try:
            return await self._login.wait_for_code(self._server, self._loopback)
        finally:
            self._loopback.close()

    async def _initialize(self) -> None:
        await super()._initialize()
        self._tokens.restore(self.context)

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        self._tokens.found(self.context)
        self._login.succeeded(self._server)


class WithoutLogin(httpx2.Auth):
    """The authentication of servers without a login; a server that requires one gets an error that says how to configure it."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        response = yield request
        if response.status_code != 401:
            return
        if any(name.lower() == "authorization" for name in self._config.headers):
            raise Unavailable("it does not accept the Authorization header it is given (401)", hint="Is the token still good?")
        raise Unavailable(
            "it requires a login (401)",
            hint='Write "oauth": true into its configuration, or "headers": {"Authorization": "Bearer ${TOKEN}"}.',
        )


def _client_information(oauth: OAuth) -> OAuthClientInformationFull | None:
    """Our client registration, where the configuration has one."""
    if not oauth.client_id:
        return None
    return OAuthClientInformationFull(
        client_id=oauth.client_id,
        client_secret=oauth.client_secret or None,
        token_endpoint_auth_method=_METHODS[oauth.client_auth] if oauth.client_secret else "none",
        issuer=oauth.issuer or None,
    )


def _port_of(client: OAuthClientInformationFull | None) -> int | None:
    """The port of the registered redirect address."""
    return urlsplit(str(client.redirect_uris[0])).port if client and client.redirect_uris else None


def _client_credentials(config: ServerConfig, oauth: OAuth, tokens: TokenFile) -> httpx2.Auth:
    if not oauth.client_id or not (oauth.client_secret or oauth.private_key):
        raise UsageError(
            f"MCP server {config.name}: client_credentials need a client_id, and a client_secret or a private_key",
            field=f"mcpServers.{config.name}.oauth",
        )
    if not oauth.issuer:
        _log.warning("MCP server %s chooses the authority that gets its credentials; oauth.issuer restricts it", config.name)
    scope, issuer = oauth.scope or None, oauth.issuer or None
    with warnings.catch_warnings(action="ignore"):  # logged above
        if not oauth.private_key:
            method = _METHODS[oauth.client_auth]
            return ClientCredentialsOAuthProvider(config.url, tokens, oauth.client_id, oauth.client_secret, method, scope, issuer)
        signed = SignedJWTParameters(
            issuer=oauth.client_id, subject=oauth.client_id, signing_key=oauth.private_key, signing_algorithm=oauth.algorithm
        )
        asserted = signed.create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(config.url, tokens, oauth.client_id, asserted, scope, issuer)
