"""Which servers there are: what everyone writes down is read, and what cannot be meant is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.approval import Verdict
from callsmith.core.errors import UsageError
from callsmith.core.values import Call, Tool
from callsmith.tools.mcp import McpHost, ServerConfig, load_servers, read_servers
from callsmith.tools.mcp.config import LOGIN_SECONDS, OAuth


def one(environment: dict[str, str] | None = None, **entry: Any) -> ServerConfig:
    (server,) = read_servers({"mcpServers": {"s": entry}}, environment)
    return server


@pytest.mark.req("R153", "R203")
def test_a_file_as_everyone_writes_it_is_read(tmp_path: Path):
    path = tmp_path / "mcp.json"
    env = {"GITHUB_TOKEN": "${TOKEN}"}
    servers = {
        "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]},
        "github": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"], "env": env},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    files, github = load_servers(path, {"TOKEN": "secret"})
    assert (files.name, files.command, files.args[-1], files.transport) == ("filesystem", "npx", "/tmp", "stdio")
    assert github.env == {"GITHUB_TOKEN": "secret"}
    assert "secret" not in repr(github)


def test_the_same_is_read_from_toml(tmp_path: Path):
    path = tmp_path / "mcp.toml"
    path.write_text(
        '[mcpServers.files]\ncommand = "x"\nargs = ["a", 1]\ntrust = true\n[mcpServers.files.approval]\n"write*" = "ask"\n'
    )
    (server,) = load_servers(path, {})
    assert (server.args, server.trust, server.approval) == (("a", "1"), True, (("write*", "ask"),))


def test_what_names_no_servers_is_refused_and_not_taken_as_empty():
    with pytest.raises(UsageError, match=r"as in VS Code\) in the configuration, but 'server'"):
        read_servers({"server": {"s": {"command": "x"}}})
    with pytest.raises(UsageError, match="both mcpServers and servers"):
        read_servers({"mcpServers": {}, "servers": {"s": {"command": "x"}}})


def test_a_file_of_vs_code_is_read_and_what_it_asks_its_user_for_is_refused():
    entry = {"type": "stdio", "command": "x", "env": {"TOKEN": "${env:TOKEN}"}}
    for document in ({"inputs": [], "servers": {"s": entry}}, {"mcp": {"servers": {"s": entry}}}):
        (server,) = read_servers(document, {"TOKEN": "secret"})
        assert (server.name, server.env) == ("s", {"TOKEN": "secret"})
    with pytest.raises(UsageError, match=r"nobody can be asked for \$\{input:token\} here; use an environment variable"):
        read_servers({"servers": {"s": {"command": "x", "env": {"TOKEN": "${input:token}"}}}})


@pytest.mark.parametrize("section", ["mcpServers", "mcp_servers", "servers"])
def test_other_hosts_names_of_the_section_are_known(section: str):
    assert read_servers({section: {"s": {"command": "x"}}})[0].name == "s"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"url": "https://x/mcp"}, ("https://x/mcp", "http")),
        ({"url": "https://x/mcp", "type": "streamable-http"}, ("https://x/mcp", "http")),
        ({"url": "https://x/mcp", "type": "streamableHttp"}, ("https://x/mcp", "http")),
        ({"url": "https://x/sse", "type": "sse"}, ("https://x/sse", "sse")),
        ({"url": "https://x/sse", "transport": "sse"}, ("https://x/sse", "sse")),
        ({"httpUrl": "https://x/mcp"}, ("https://x/mcp", "http")),
        ({"serverUrl": "https://x/mcp"}, ("https://x/mcp", "http")),
        ({"command": "x", "type": "stdio"}, ("", "stdio")),
    ],
)
def test_how_a_server_is_reached_follows_from_what_is_given(entry: dict[str, Any], expected: tuple[str, str]):
    server = one(**entry)
    assert (server.url, server.transport) == expected


def test_a_url_needs_no_transport_in_python_either():
    assert ServerConfig("s", url="https://x/mcp").transport == "http"


def test_the_environment_is_filled_in_everywhere():
    server = one(
        {"HOME": "/home/me", "T": "tok"}, url="https://${HOST:-example.org}/mcp", headers={"Authorization": "Bearer ${T}"}
    )
    assert server.url == "https://example.org/mcp"
    assert server.headers == {"Authorization": "Bearer tok"}
    assert one({"HOME": "/home/me"}, command="${HOME}/x", args=["${HOME}"], cwd="${HOME}").args == ("/home/me",)
    assert one({"EMPTY": ""}, command="x", args=["${EMPTY:-not this}"]).args == ("",)


def test_servers_that_are_disabled_are_left_out_even_if_their_environment_is_not_there():
    entries = {"a": {"command": "x", "disabled": True, "env": {"A": "${NOT_THERE}"}}, "b": {"command": "x", "enabled": False}}
    assert read_servers({"mcpServers": {**entries, "c": {"command": "x"}}})[0].name == "c"


def test_tools_can_be_chosen_in_the_words_of_other_hosts():
    assert one(command="x").allow == ("*",)
    assert one(command="x", allowedTools=["a"]).allow == ("a",)
    assert one(command="x", includeTools=["a*"], excludeTools=["ab"]).deny == ("ab",)
    assert one(command="x", disabledTools=["b"], deny=["c"]).deny == ("c", "b")


@pytest.mark.parametrize(
    ("entry", "tool", "verdict"),
    [
        ({}, "write", "ask"),
        ({"autoApprove": ["write"]}, "write", "auto"),
        ({"alwaysAllow": ["wr*"]}, "write", "auto"),
        ({"approval": "auto"}, "write", "auto"),
        ({"approval": "deny"}, "read", "deny"),
        ({"approval": {"read*": "auto", "*": "deny"}}, "read_file", "auto"),
        ({"approval": {"read*": "auto", "*": "deny"}}, "write", "deny"),
        ({"autoApprove": ["write"], "approval": "deny"}, "write", "auto"),
    ],
)
def test_what_is_said_of_approval_becomes_a_policy(entry: dict[str, Any], tool: str, verdict: Verdict):
    policy = McpHost([one(command="x", **entry)]).policy
    assert policy.judge(Tool(f"s_{tool}", original=tool, side_effects=True, source="mcp:s"), Call(f"s_{tool}")).verdict == verdict
    assert policy.judge(Tool(tool, side_effects=True, source="mcp:other"), Call(tool)).verdict == "ask"


def test_oauth_is_read_and_its_secrets_are_not_shown():
    assert one(url="https://x", oauth=True).oauth == OAuth()
    server = one(
        {"S": "hush"},
        url="https://x",
        oauth={
            "client_id": "me",
            "client_secret": "${S}",
            "grant": "client_credentials",
            "issuer": "https://a",
            "redirect_port": 8123,
        },
    )
    assert server.oauth == OAuth("me", "hush", grant="client_credentials", issuer="https://a", redirect_port=8123)
    assert "hush" not in repr(server)


def test_a_person_who_logs_in_is_given_time_to():
    assert one(url="https://x").total_start_timeout == 30
    assert one(url="https://x", oauth=True, start_timeout=5).total_start_timeout == 5 + LOGIN_SECONDS
    assert one(url="https://x", oauth={"grant": "client_credentials"}).total_start_timeout == 30


def test_keys_that_only_other_hosts_understand_are_skipped():
    assert one(command="x", icon="🔧", description="files", gallery={"a": 1}).command == "x"


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"comand": "x"}, "did you mean command?"),
        ({"command": "x", "argss": []}, "did you mean args?"),
        ({"command": "x", "auto_approve": ["a"]}, "did you mean autoApprove?"),
        ({"url": "https://x", "oauth": {"client_secrett": "x"}}, "did you mean client_secret?"),
        ({}, "either command or url"),
        ({"command": "x", "url": "https://x"}, "either command or url"),
        ({"command": 3}, "expected a string"),
        ({"command": "x", "args": "a b"}, "expected an array"),
        ({"command": "x", "args": [None]}, "expected a string"),
        ({"command": "x", "env": ["A=1"]}, "expected an object"),
        ({"command": "x", "trust": "yes"}, "expected a boolean"),
        ({"command": "x", "timeout": "5"}, "expected a number"),
        ({"command": "x", "timeout": 0}, "must be at least"),
        ({"command": "x", "timeout": True}, "expected a number, got a boolean"),
        ({"command": "x", "prefix": "sometimes"}, "expected one of auto, always, never"),
        ({"command": "x", "protocol": "new"}, "protocol is auto, legacy or a version"),
        ({"command": "x", "approval": "maybe"}, "expected one of auto, ask, deny"),
        ({"command": "x", "approval": {"a": "perhaps"}}, "expected one of auto, ask, deny"),
        ({"url": "https://x", "type": "carrier-pigeon"}, "expected one of stdio, http"),
        ({"url": "https://x", "oauth": "please"}, "expected an object"),
        ({"url": "https://x", "oauth": {"grant": "password"}}, "expected one of authorization_code, client_credentials"),
        ({"command": "${NOT_THERE}"}, "there is no environment variable NOT_THERE"),
    ],
)
def test_what_cannot_be_meant_is_told_with_its_place(entry: dict[str, Any], complaint: str):
    with pytest.raises(UsageError, match=complaint.replace("?", r"\?")) as caught:
        one(**entry)
    assert str(caught.value).startswith("MCP server s") or "mcpServers.s" in str(caught.value)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "expected an object"),
        ({}, "mcpServers"),
        ({"mcpServers": []}, "expected an object"),
        ({"mcpServers": {"s": "x"}}, "expected an object"),
        ({"mcpServers": {"a b": {"command": "x"}}}, "a name is"),
    ],
)
def test_a_document_of_another_shape_is_told(document: Any, complaint: str):
    with pytest.raises(UsageError, match=complaint):
        read_servers(document)


@pytest.mark.parametrize(("name", "text"), [("a.json", "{"), ("a.toml", "x ="), ("a.json", "\udcff"), ("missing.json", None)])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str | None):
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=name):
        load_servers(path, {})


def test_a_fault_in_a_file_is_told_with_the_file(tmp_path: Path):
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"s": {"comand": "x"}}}')
    with pytest.raises(UsageError, match=r"mcp\.json: mcpServers\.s\.comand: did you mean command"):
        load_servers(path, {})
