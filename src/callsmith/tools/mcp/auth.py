"""OAuth for MCP servers that require a login.

    McpHost(servers, auth=Login(folder, show=open_in_browser))

A person logs in once: the tokens are stored in the folder and refreshed from there. A login that has failed is not tried again in
the same process, so that nobody is asked over and over.
"""

import asyncio
import json
import logging
import socket
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import compare_digest
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from callsmith.core.errors import Unavailable, UsageError
from callsmith.core.serialize import DocumentCodec
from callsmith.core.types.escaped_text import in_html
from callsmith.core.values import Json
from callsmith.files import write_file
from callsmith.tools.mcp.config import LOGIN_SECONDS, ClientAuth, OAuth, ServerConfig

ShowPage: TypeAlias = Callable[[str, str], Awaitable[None]]

HOST = "127.0.0.1"
PATH = "/callback"
_PAGE = "<!doctype html><meta charset=utf-8><title>callsmith</title><p>{}</p>"
_METHODS: Mapping[ClientAuth, Literal["client_secret_basic", "client_secret_post"]] = {
    "basic": "client_secret_basic",
    "post": "client_secret_post",
}
_MOST_PAGES, _PAGES_SECONDS = 3, 600.0  # logins that are shown within so many seconds

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """What is known of the login at an address. Apart from `until`, when the token expires, these are documents of OAuth."""

    url: str
    tokens: Mapping[str, Json] | None = None
    until: float | None = None
    client: Mapping[str, Json] | None = None
    authority: Mapping[str, Json] | None = None
    resource: Mapping[str, Json] | None = None


LOGIN_CODEC = DocumentCodec(StoredLogin)


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Stores what is known of a server's login from one run to the next. What was stored for another address is not used."""

    _path: Path
    _url: str
    _client: OAuthClientInformationFull | None = None  # as configured; it goes before what was registered

    async def get_tokens(self) -> OAuthToken | None:
        return _read(OAuthToken, self._read_login().tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        until = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._store(replace(self._read_login(), tokens=_written(tokens), until=until))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client or self.read_client()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._store(replace(self._read_login(), client=_written(client_info)))

    def read_client(self) -> OAuthClientInformationFull | None:
        """As whom the server's authority knows us."""
        return _read(OAuthClientInformationFull, self._read_login().client)

    def store_metadata(self, context: OAuthContext) -> None:
        """Store what was found out on the way to a token: it takes that to renew one without a person."""
        authority, resource = _written(context.oauth_metadata), _written(context.protected_resource_metadata)
        self._store(replace(self._read_login(), authority=authority, resource=resource))

    def restore(self, context: OAuthContext) -> None:
        """Give a context what `found` has stored."""
        stored = self._read_login()
        context.token_expiry_time = stored.until
        context.oauth_metadata = _read(OAuthMetadata, stored.authority)
        context.protected_resource_metadata = _read(ProtectedResourceMetadata, stored.resource)

    def _read_login(self) -> StoredLogin:
        """What the file says of this address; one that cannot be read says nothing."""
        try:
            stored = LOGIN_CODEC.read(json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, UsageError):
            return StoredLogin(self._url)
        return stored if stored.url == self._url else StoredLogin(self._url)

    def _store(self, login: StoredLogin) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(self._path, json.dumps(LOGIN_CODEC.write(login), indent=2), is_private=True)


def _written(value: BaseModel | None) -> Any:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


def _read(kind: type[Any], value: Any) -> Any:
    if value is None:
        return None
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None


def free_port() -> int:
    with socket.create_server((HOST, 0)) as chosen:
        return chosen.getsockname()[1]


class Loopback:
    """Listens on a port for the one redirect that carries the authorization code, recognised by its state."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._state = ""
        self._answer: asyncio.Future[dict[str, str]] | None = None

    async def open(self, state: str) -> None:
        self.close()
        self._state = state
        self._answer = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._handle_visit, HOST, self._port)

    async def answer(self, seconds: float) -> dict[str, str]:
        """The parameters of the redirect."""
        assert self._answer is not None, "open() comes first"
        async with asyncio.timeout(seconds):
            return await self._answer

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _handle_visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
            target = urlsplit(line.decode("latin-1").partition(" ")[2].partition(" ")[0])
            query = {key: values[0] for key, values in parse_qs(target.query).items()}
            known = compare_digest(query.get("state", "").encode(), self._state.encode())
            ours = known and target.path == PATH and ("code" in query or "error" in query)
            if ours and self._answer is not None and not self._answer.done():
                self._answer.set_result(query)
            writer.write(_page(query) if ours else b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # not our browser
        finally:
            writer.close()


def _page(query: dict[str, str]) -> bytes:
    outcome = (
        f"The login failed: {query.get('error_description') or query['error']}" if "error" in query else "You are logged in."
    )
    body = _PAGE.format(in_html(f"{outcome} You can close this page.")).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n"
    return head.format(len(body)).encode() + body


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

    def mark_success(self, server: str) -> None:
        """The login has succeeded."""
        self._failed.pop(server, None)


class _BrowserLogin(OAuthClientProvider):
    """A login with a browser that survives a restart: an expired token is refreshed before a person is asked."""

    def __init__(self, login: Login, config: ServerConfig, oauth: OAuth, tokens: TokenFile) -> None:
        registered = tokens.read_client()
        before = urlsplit(str(registered.redirect_uris[0])).port if registered and registered.redirect_uris else None
        port = oauth.redirect_port or before or free_port()
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
        self._tokens.store_metadata(self.context)
        self._login.mark_success(self._server)


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
