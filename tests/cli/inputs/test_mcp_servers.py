"""`--mcp-config` and `--mcp-command`, as users give them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("mcp")

from callsmith.cli.inputs.mcp_servers import servers
from callsmith.cli.main import app
from callsmith.core.errors import UsageError
from callsmith.server.app import create_app
from callsmith.server.settings import Mcp, SettingsSource, merge_settings
from callsmith.tools.mcp import McpHost, ServerConfig
from tests.fakes import FakeModel
from tests.server.asking import http
from tests.tools.mcp.trying import plain
from tests.waiting import until


def written(folder: Path, *configs: ServerConfig) -> Path:
    """A file of these servers."""
    entries = {one.name: {"command": one.command, "args": list(one.args)} for one in configs}
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}))
    return path


@pytest.mark.req("R151")
def test_one_server_can_be_given_without_a_file():
    assert servers(None, "server", ["-v", "x"]) == (ServerConfig("mcp", "server", ("-v", "x")),)
    with pytest.raises(UsageError, match="--mcp-command"):
        servers(None, None, ["-v"])


@pytest.mark.req("R152")
@pytest.mark.req("R154")
def test_servers_come_from_a_file_and_the_settings(tmp_path: Path):
    path = written(tmp_path, plain("one"), plain("two"))
    settings = merge_settings(SettingsSource("here", {"mcp.config": str(path), "mcp.command": "three"})).settings
    assert [one.name for one in servers(settings.mcp.config, settings.mcp.command, settings.mcp.args)] == ["one", "two", "mcp"]
    assert settings.mcp.tool_refresh_seconds == 30
    assert servers(Mcp().config, Mcp().command, Mcp().args) == ()


def test_tools_of_servers_are_listed_with_how_the_servers_are(tmp_path: Path):
    path = written(tmp_path, plain("good"), ServerConfig("bad", "/bin/sh", ("-c", "echo oh dear >&2; exit 1")))
    done = CliRunner().invoke(app, ["tools", "list", "--mcp-config", str(path), "--json"])
    assert done.exit_code == 0, done.output
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
        await until(lambda: {one.state for one in host.status()} == {"ready", "failed"})
        async with http(create_app({"m": FakeModel()}, mcp=host)) as asking:
            told = (await asking.get("/health")).json()
    assert told["status"] == "degraded"
    assert (told["mcp"]["good"]["state"], told["mcp"]["bad"]["state"]) == ("ready", "failed")
    assert "no-such-command" in told["mcp"]["bad"]["error"]
