"""Logging in: once by hand and then never again, by credentials, and never over and over."""

import asyncio
import json
import stat
from pathlib import Path

import httpx2
import pytest

from callsmith.core.errors import UsageError
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.auth import Login, Loopback, free_port
from callsmith.tools.mcp.config import OAuth
from tests.tools.mcp.authority import Authority, browse
from tests.tools.mcp.test_http import at, serving
from tests.tools.mcp.trying import call, status
from tests.waiting import until


class Browser:
    """Somebody with a browser."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []

    async def show(self, server: str, url: str) -> None:
        self.shown.append((server, url))
        await browse(url)


async def test_a_person_logs_in_once_and_not_again_after_a_restart(tmp_path: Path):
    authority, browser = Authority(), Browser()
    with serving(authority.app()) as port:
        for _ in range(2):
            async with McpHost([at(port, oauth=OAuth())], auth=Login(tmp_path / "mcp", browser.show)) as host:
                await host.tools()
                assert (await call(host, "secret")).text == "42"
    assert [server for server, _ in browser.shown] == ["plain"]
    assert (authority.logins, authority.registrations, authority.grants) == (1, 1, ["authorization_code"])


async def test_a_token_that_has_run_out_is_renewed_without_anybody(tmp_path: Path):
    authority, browser = Authority(lifetime=1), Browser()
    with serving(authority.app()) as port:
        for _ in range(2):
            async with McpHost([at(port, oauth=OAuth())], auth=Login(tmp_path, browser.show)) as host:
                await host.tools()
                assert (await call(host, "secret")).text == "42"
            authority.tokens.clear()
            await asyncio.sleep(1.1)
    assert authority.logins == 1
    assert authority.grants[:2] == ["authorization_code", "refresh_token"]


async def test_only_the_owner_can_read_what_is_kept(tmp_path: Path):
    with serving(Authority().app()) as port:
        async with McpHost([at(port, oauth=OAuth())], auth=Login(tmp_path / "mcp", Browser().show)) as host:
            await host.tools()
    path = tmp_path / "mcp" / "plain.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [item.name for item in path.parent.iterdir()] == ["plain.json"]
    assert json.loads(path.read_text())["tokens"]["access_token"]


async def test_what_is_kept_is_shown_to_no_other_address(tmp_path: Path):
    first, second, browser = Authority(), Authority(), Browser()
    for authority in (first, second):
        with serving(authority.app()) as port:
            async with McpHost([at(port, oauth=OAuth())], auth=Login(tmp_path, browser.show)) as host:
                assert len(await host.tools()) == 1
    assert (first.logins, second.logins) == (1, 1)


@pytest.mark.parametrize("kept", ["", "[]", "{", '{"url": 3}', '{"url": "http://127.0.0.1:PORT/mcp", "tokens": 7, "client": []}'])
async def test_a_file_that_makes_no_sense_is_as_good_as_none(tmp_path: Path, kept: str):
    authority = Authority()
    with serving(authority.app()) as port:
        (tmp_path / "plain.json").write_text(kept.replace("PORT", str(port)))
        async with McpHost([at(port, oauth=OAuth())], auth=Login(tmp_path, Browser().show)) as host:
            assert len(await host.tools()) == 1
    assert authority.logins == 1


async def test_a_login_that_failed_is_not_tried_again_by_itself(tmp_path: Path):
    authority, browser = Authority(refuses="access_denied"), Browser()
    with serving(authority.app()) as port:
        async with McpHost([at(port, oauth=OAuth())], auth=Login(tmp_path, browser.show)) as host:
            assert await host.tools() == []
            assert "the login has failed: access_denied" in status(host).error
            await until(lambda: status(host).starts >= 3)
            assert len(browser.shown) == 1


async def test_a_person_who_does_not_log_in_is_waited_for_so_long_and_no_other_server_waits(tmp_path: Path):
    async def ignore(server: str, url: str) -> None: ...

    with serving(Authority().app()) as port:
        server = at(port, oauth=OAuth(), start_timeout=0.3)
        async with McpHost([server], auth=Login(tmp_path, ignore, seconds=1)) as host:
            assert await host.tools() == []
            assert status(host).state == "starting"
            await until(lambda: status(host).state == "failed")
            assert "nobody logged in within 1 seconds" in status(host).error


async def test_a_host_is_closed_while_somebody_should_log_in(tmp_path: Path):
    has_asked = asyncio.Event()

    async def ignore(server: str, url: str) -> None:
        has_asked.set()

    with serving(Authority().app()) as port:
        host = McpHost([at(port, oauth=OAuth())], auth=Login(tmp_path, ignore))
        host.start()
        await has_asked.wait()
        async with asyncio.timeout(60):
            await host.close()


async def test_without_a_browser_it_is_told_that_one_is_needed(tmp_path: Path):
    with serving(Authority().app()) as port:
        async with McpHost([at(port, oauth=OAuth())], auth=Login(tmp_path)) as host:
            assert await host.tools() == []
            assert "a person has to log in with a browser" in status(host).error


async def test_a_program_logs_in_with_its_own_credentials(tmp_path: Path):
    authority = Authority()
    with serving(authority.app()) as port:
        oauth = OAuth("me", "hush", grant="client_credentials", issuer=f"http://127.0.0.1:{port}")
        async with McpHost([at(port, oauth=oauth)], auth=Login(tmp_path)) as host:
            assert (await call(host, "secret")).text == "42"
    assert (authority.logins, authority.grants) == (0, ["client_credentials"])


async def test_credentials_are_shown_only_to_who_gave_them_out(tmp_path: Path):
    authority = Authority()
    with serving(authority.app()) as port:
        oauth = OAuth("me", "hush", grant="client_credentials", issuer="https://somebody.example")
        async with McpHost([at(port, oauth=oauth)], auth=Login(tmp_path)) as host:
            assert await host.tools() == []
            assert "somebody.example" in status(host).error
    assert authority.grants == []


def test_credentials_that_are_incomplete_are_told(tmp_path: Path):
    with pytest.raises(UsageError, match="need a client_id, and a client_secret or a private_key"):
        Login(tmp_path)(at(1, oauth=OAuth("me", grant="client_credentials")))


async def test_the_listener_ignores_strangers_and_takes_one_answer():
    port = free_port()
    listener = Loopback(port)
    await listener.open("s1")
    async with httpx2.AsyncClient() as stranger:
        assert (await stranger.get(f"http://127.0.0.1:{port}/favicon.ico")).status_code == 404
        assert (await stranger.get(f"http://127.0.0.1:{port}/callback")).status_code == 404
        assert (await stranger.get(f"http://127.0.0.1:{port}/callback?code=mine&state=s2")).status_code == 404
        page = await stranger.get(f"http://127.0.0.1:{port}/callback?error=no&error_description=<script>&state=s1")
        assert page.status_code == 200 and "<script>" not in page.text
        await stranger.get(f"http://127.0.0.1:{port}/callback?code=late&state=s1")
    assert await listener.answer(1) == {"error": "no", "error_description": "<script>", "state": "s1"}
    listener.close()
