"""The file with the tokens of an MCP server: readable by its owner alone, and used for one address only."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from callsmith.core.errors import UsageError
from callsmith.core.serialize import DocumentCodec
from callsmith.core.values import Json
from callsmith.files import write_file

if TYPE_CHECKING:
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


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


class TokenFile:
    """Stores what is known of a server's login from one run to the next. What was stored for another address is not used."""

    def __init__(self, path: Path, url: str, client: "OAuthClientInformationFull | None" = None) -> None:
        self._path = path
        self._url = url
        self._client = client  # as configured; it goes before what was registered

    async def get_tokens(self) -> "OAuthToken | None":
        from mcp.shared.auth import OAuthToken

        return _read(OAuthToken, self._stored().tokens)

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        until = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._store(replace(self._stored(), tokens=_written(tokens), until=until))

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        return self._client or self.registered()

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        self._store(replace(self._stored(), client=_written(client_info)))

    def registered(self) -> "OAuthClientInformationFull | None":
        """As whom the server's authority knows us."""
        from mcp.shared.auth import OAuthClientInformationFull

        return _read(OAuthClientInformationFull, self._stored().client)

    def found(self, context: "OAuthContext") -> None:
        """Store what was found out on the way to a token: it takes that to renew one without a person."""
        authority, resource = _written(context.oauth_metadata), _written(context.protected_resource_metadata)
        self._store(replace(self._stored(), authority=authority, resource=resource))

    def restore(self, context: "OAuthContext") -> None:
        """Give a context what `found` has stored."""
        from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

        stored = self._stored()
        context.token_expiry_time = stored.until
        context.oauth_metadata = _read(OAuthMetadata, stored.authority)
        context.protected_resource_metadata = _read(ProtectedResourceMetadata, stored.resource)

    def _stored(self) -> StoredLogin:
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
