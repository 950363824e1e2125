"""The file with the tokens of a server: what is stored is read back."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.shared.auth import OAuthToken

from callsmith.tools.mcp.auth import TokenFile

URL = "http://127.0.0.1:7/mcp"
STORED: dict[str, Any] = {
    "version": 1,
    "url": URL,
    "client": {
        "response_types": ["code"],
        "redirect_uris": ["http://127.0.0.1:9/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "client_id": "me",
    },
    "tokens": {"access_token": "secret", "token_type": "Bearer", "expires_in": 60, "refresh_token": "again"},
    "until": 1060.5,
    "authority": {
        "issuer": "http://auth.example",
        "authorization_endpoint": "http://auth.example/a",
        "token_endpoint": "http://auth.example/t",
        "response_types_supported": ["code"],
    },
    "resource": {"resource": URL, "authorization_servers": ["http://auth.example"], "bearer_methods_supported": ["header"]},
}


async def test_a_stored_login_is_read(tmp_path: Path):
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(STORED))
    file = TokenFile(path, URL)
    tokens, client = await file.get_tokens(), file.read_client()
    assert tokens is not None and (tokens.access_token, tokens.refresh_token) == ("secret", "again")
    assert client is not None and client.client_id == "me"
    context: Any = SimpleNamespace()
    file.restore(context)
    assert context.token_expiry_time == 1060.5
    assert str(context.oauth_metadata.token_endpoint) == "http://auth.example/t"
    assert str(context.protected_resource_metadata.resource) == URL


async def test_new_tokens_leave_the_rest_of_the_file_as_it_was(tmp_path: Path):
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(STORED))
    await TokenFile(path, URL).set_tokens(OAuthToken(access_token="newer"))
    tokens = {"access_token": "newer", "token_type": "Bearer"}
    rest = {name: value for name, value in STORED.items() if name != "until"}
    assert json.loads(path.read_text()) == {**rest, "tokens": tokens}


@pytest.mark.parametrize("change", [{"version": 2}, {"version": 0}, {"url": "http://127.0.0.1:8/mcp"}, {"tokens": 7}])
async def test_a_file_of_another_version_or_address_is_as_good_as_none(tmp_path: Path, change: dict[str, Any]):
    path = tmp_path / "plain.json"
    path.write_text(json.dumps({**STORED, **change}))
    file = TokenFile(path, URL)
    assert await file.get_tokens() is None and file.read_client() is None
