"""Where the tokens of a server are kept: a file that only its owner can read, and whose words are for one address only."""

import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


class TokenFile:
    """What is known of a server's login, from one run to the next. What was kept for another address is not looked at."""

    def __init__(self, path: Path, url: str, client: "OAuthClientInformationFull | None" = None) -> None:
        self._path = path
        self._url = url
        self._client = client  # as configured; it goes before what was registered

    async def get_tokens(self) -> "OAuthToken | None":
        from mcp.shared.auth import OAuthToken

        return _read(OAuthToken, self._kept().get("tokens"))

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        until = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._keep(tokens=_written(tokens), until=until)

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        return self._client or self.registered()

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        self._keep(client=_written(client_info))

    def registered(self) -> "OAuthClientInformationFull | None":
        """As whom the server's authority knows us."""
        from mcp.shared.auth import OAuthClientInformationFull

        return _read(OAuthClientInformationFull, self._kept().get("client"))

    def found(self, context: "OAuthContext") -> None:
        """Keep what was found out on the way to a token: it takes that to renew one without a person."""
        self._keep(authority=_written(context.oauth_metadata), resource=_written(context.protected_resource_metadata))

    def restore(self, context: "OAuthContext") -> None:
        """What `found` kept."""
        from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

        kept = self._kept()
        context.token_expiry_time = kept.get("until")
        context.oauth_metadata = _read(OAuthMetadata, kept.get("authority"))
        context.protected_resource_metadata = _read(ProtectedResourceMetadata, kept.get("resource"))

    def _kept(self) -> dict[str, Any]:
        try:
            kept: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            return kept if kept["url"] == self._url else {}
        except (OSError, ValueError, LookupError, TypeError):
            return {}

    def _keep(self, **what: Any) -> None:
        """Write it down, all at once: a run that is ended in between leaves the old file."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._path.parent)  # only its owner may read it
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({**self._kept(), "url": self._url, **what}, file, indent=2)
            Path(name).replace(self._path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise


def _written(value: BaseModel | None) -> Any:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


def _read(kind: type[Any], value: Any) -> Any:
    if value is None:
        return None
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None
