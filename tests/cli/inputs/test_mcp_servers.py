"""`--mcp-config` and `--mcp-command`, as users give them."""

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("mcp")

from callsmith.cli.inputs import mcp_servers
from callsmith.cli.inputs.mcp_servers import asking, servers
from callsmith.cli.main import app
from callsmith.core.errors import UsageError
from callsmith.server.app import create_app
from callsmith.server.settings import Mcp
from callsmith.server.settings_sources import SettingsSource, merge_settings
from callsmith.tools.mcp import McpHost, ServerConfig
from tests.cli.conftest import CALL
from tests.fakes import FakeModel
from tests.server.asking import http
from tests.tools.mcp.trying import plain
from tests.waiting import until

pytestmark = pytest.mark.processes


def written(folder: Path, *configs: ServerConfig) -> Path:
    """A file of these servers."""
    entries = {config.name: {"command": config.command, "args": list(config.args)} for config in configs}
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}))
    return path


@pytest.mark.req("R151")
def test_one_server_can_be_given_without_a_file():
    assert servers(Mcp(command="server", args=("-v", "x"))) == (ServerConfig("mcp", "server", ("-v", "x")),)
    for lonely in (Mcp(args=("-v",)), Mcp(trust=True), Mcp(allow=("*",))):
        with pytest.raises(UsageError, match="--mcp-command"):
            servers(lonely)


@pytest.mark.req("R113")
@pytest.mark.parametrize(("trust", "waits"), [((), True), (("--mcp-trust",), False)])
def test_the_one_server_can_be_trusted_so_that_its_calls_run_at_once(script, trust: tuple[str, ...], waits: bool):
    """The fourth row of the matrix: no tools in the request, an MCP server here, and one answer."""
    server = plain()
    model = script(CALL.format("echo", '{"text": "hello"}'), "It says hello.")
    arguments = ["--mcp-command", server.command, "--mcp-args", ",".join(server.args), *trust]
    done = CliRunner().invoke(app, ["chat", "--model", model, *arguments, "Say hello."], input="n\n" if waits else "")
    assert done.exit_code == 0, done.output
    assert ("side effects" in done.output) is waits
    assert ("It says hello." in done.output) is True


def test_servers_that_run_nothing_unasked_are_named_with_what_would(tmp_path: Path):
    path = written(tmp_path, plain("one"), plain("two"))
    output = asking(servers(Mcp(config=str(path))))
    assert [line.partition(":")[0] for line in output] == ["MCP server one", "MCP server two"]
    assert all("--mcp-allow=" in line and "--mcp-trust" in line and "autoApprove" in line for line in output)
    assert asking(servers(Mcp(config=str(path), trust=True))) == asking(servers(Mcp(config=str(path), allow=("x",)))) == []


@pytest.mark.req("R152")
@pytest.mark.req("R154")
def test_servers_come_from_a_file_and_the_settings(tmp_path: Path):
    path = written(tmp_path, plain("one"), plain("two"))
    settings = merge_settings(SettingsSource("here", {"mcp.config": str(path), "mcp.command": "three"})).settings
    assert [server.name for server in servers(settings.mcp)] == ["one", "two", "mcp"]
    assert settings.mcp.tool_refresh_seconds == 30
    assert servers(Mcp()) == ()


def test_tools_of_servers_are_listed_with_how_the_servers_are(tmp_path: Path):
    path = written(tmp_path, plain("good"), ServerConfig("bad", "/bin/sh", ("-c", "echo oh dear >&2; exit 1")))
    done = CliRunner().invoke(app, ["tools", "list", "--mcp-config", str(path), "--json"])
    assert done.exit_code == 1, done.output
    rows = json.loads(done.stdout)
    assert {row["source"] for row in rows} == {"mcp:good"}
    assert "good: ready" in done.stderr
    assert "bad: failed" in done.stderr
    assert "oh dear" in done.stderr


def test_a_file_that_cannot_be_read_is_told_in_a_line(tmp_path: Path):
    done = CliRunner().invoke(app, ["tools", "list", "--mcp-config", str(tmp_path / "none.json")])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert "none.json" in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_the_health_of_a_server_tells_how_its_mcp_servers_are():
    async with McpHost([plain("good"), ServerConfig("bad", "no-such-command")]) as host:
        await until(lambda: {server_status.state for server_status in host.status()} == {"ready", "failed"})
        async with http(create_app({"m": FakeModel()}, mcp=host)) as asking:
            body = (await asking.get("/health")).json()
    assert body["status"] == "degraded"
    assert (body["mcp"]["good"]["state"], body["mcp"]["bad"]["state"]) == ("ready", "failed")
    assert "no-such-command" in body["mcp"]["bad"]["error"]


async def test_while_mcp_servers_start_the_server_is_said_to_be_starting():
    async with McpHost([plain("slow", options={"hang": "start"}, start_timeout=60)]) as host:
        await until(lambda: host.status()[0].state == "starting")
        async with http(create_app({"m": FakeModel()}, mcp=host)) as asking:
            body = (await asking.get("/health")).json()
    assert (body["status"], body["mcp"]["slow"]["state"]) == ("starting", "starting")


def _slow_installer(folder: Path) -> ServerConfig:
    """A server behind a command called npx, which installs for a while and leaves a mark when it has."""
    server, npx = plain(options={"tools": ["echo"]}), folder / "npx"
    npx.write_text(f"#!/bin/sh\nsleep 3\ntouch {folder}/installed\nexec {shlex.join([server.command, *server.args])}\n")
    npx.chmod(0o755)
    return ServerConfig("files", str(npx), start_timeout=0.3)


async def test_an_installation_may_take_longer_than_a_start_and_is_not_ended_half_way(tmp_path: Path):
    async with McpHost([_slow_installer(tmp_path)]) as host:
        assert await host.tools() == []  # who asks waits for a start, not for an installation
        (early,) = host.status()
        assert (early.state, early.starts) == ("starting", 1)
        assert early.notices == (f"still installing: {tmp_path / 'npx'}",)
        await host.wait_until_settled()
        assert [tool.name for tool in await host.tools()] == ["echo"]
        (late,) = host.status()
    assert (late.state, late.starts, late.notices) == ("ready", 1, ())
    assert (tmp_path / "installed").exists()


def test_listing_tools_waits_for_an_installation_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp_servers, "PATIENCE", 0.5)
    config = _slow_installer(tmp_path)
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"files": {"command": config.command, "start_timeout": 0.3}}}))
    done = CliRunner().invoke(app, ["tools", "list", "--mcp-config", str(path), "--json"])
    assert done.exit_code == 0, done.output
    assert "files: still installing" in done.stderr
    assert [row["name"] for row in json.loads(done.stdout)] == ["echo"]


def test_a_chat_whose_server_has_failed_ends_with_an_error(script, tmp_path: Path):
    path = written(tmp_path, ServerConfig("bad", "/bin/sh", ("-c", "echo oh dear >&2; exit 1")))
    done = CliRunner().invoke(app, ["chat", "--model", script("Hi."), "--mcp-config", str(path), "Hello"])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: the MCP server bad has failed: ")
    assert "oh dear" in done.stderr
