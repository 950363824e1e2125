"""`callsmith serve`: the real command in a process of its own."""

import json
import signal
import socket
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import httpx2
import pytest

from callsmith.cli.serve import _banner, _tools_here
from callsmith.core.ports import ModelInfo
from callsmith.core.values import Tool
from callsmith.server.network.origins import is_loopback

pytestmark = pytest.mark.processes

ASK = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_command_serves_and_ends_quietly_on_a_signal(serving, number: signal.Signals, code: int):
    process, url = serving("--model", "scripted:Hello!", "--name", "parrot")
    answer = httpx2.post(f"{url}/v1/chat/completions", json=ASK | {"model": "parrot"})
    assert answer.json()["choices"][0]["message"]["content"] == "Hello!"
    process.send_signal(number)
    assert process.wait(timeout=20) == code
    assert process.stderr.read() == ""
    assert f"curl {url}/v1/chat/completions" in process.stdout.read()


def test_tools_given_to_the_command_are_run_by_the_server(serving, tmp_path):
    call = '<tool_call>\n<name>calculate</name>\n<arguments>{"expression": "6 * 7"}</arguments>\n</tool_call>'
    (tmp_path / "replies.jsonl").write_text(json.dumps(call) + "\n" + json.dumps("Done."), "utf-8")
    _, url = serving("--model", f"scripted:{tmp_path / 'replies.jsonl'}", "--tools", "demo")
    answer = httpx2.post(f"{url}/v1/chat/completions", json=ASK).json()
    assert answer["choices"][0]["message"]["content"] == "Done."
    assert answer["choices"][0]["finish_reason"] == "stop"


ECHO = '<tool_call>\n<name>echo</name>\n<arguments>{"text": "hello"}</arguments>\n</tool_call>'


@pytest.mark.req("R113")
@pytest.mark.req("R156")
@pytest.mark.parametrize(
    ("way", "allowed"), [("command", None), ("file", None), ("command", "*"), ("file", "mcp_ech*,files_echo")]
)
@pytest.mark.sampled
def test_a_command_line_of_vllm_rs_serves_page_api_and_tools_with_one_word_added(
    serving, tmp_path, way: str, allowed: str | None
):
    plain = str(Path(__file__).parents[1] / "tools/mcp/plain.py")
    (tmp_path / "mcp.json").write_text(
        json.dumps({"mcpServers": {"files": {"command": sys.executable, "args": ["-I", "-S", plain]}}}), "utf-8"
    )
    (tmp_path / "replies.jsonl").write_text(json.dumps(ECHO) + "\n" + json.dumps("It says hello."), "utf-8")
    expected = {
        "command": [
            "--w",
            f"scripted:{tmp_path / 'replies.jsonl'}",
            "--mcp-command",
            sys.executable,
            f"--mcp-args=-I,-S,{plain}",
        ],
        "file": ["--m", f"scripted:{tmp_path}", "--f", "replies.jsonl", "--mcp-config", str(tmp_path / "mcp.json")],
    }
    allow = [f"--mcp-allow={allowed}"] if allowed else []
    process, url = serving(*expected[way], "--ui-server", "--context-cache", *allow)
    assert "<html" in httpx2.get(f"{url}/", headers={"accept": "text/html"}).text
    message = httpx2.post(f"{url}/v1/chat/completions", json=ASK, timeout=60).json()["choices"][0]["message"]["content"]
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    server = {"command": "mcp", "file": "files"}[way]
    if allowed:
        assert (message, "approval" in stderr) == ("It says hello.", False)
    else:
        assert "/v1/approvals/" in message and "--mcp-allow=echo" in message
        assert f"MCP server {server}: each call of its tools waits" in stderr and "--mcp-trust" in stderr


@pytest.mark.req("R156")
def test_a_file_of_no_repository_is_told(callsmith):
    result = callsmith("serve", "--f", "x.gguf")
    assert (result.code, "--m" in result.err) == (2, True)


def test_a_toolset_in_a_module_of_the_users_is_served(serving, tmp_path, monkeypatch):
    source = """
        from callsmith.core.values import Result, Tool

        class Greeter:
            async def tools(self):
                return [Tool("greet", "Greet.", side_effects=False)]

            async def call(self, call, context):
                print(call.name, file=open("called", "w"))
                yield Result(call.id, call.name, "Hello!")

        toolset = Greeter()
    """
    (tmp_path / "greeter.py").write_text(dedent(source), "utf-8")
    call = "<tool_call>\n<name>greet</name>\n<arguments>{}</arguments>\n</tool_call>"
    (tmp_path / "replies.jsonl").write_text(json.dumps(call) + "\n" + json.dumps("Done."), "utf-8")
    monkeypatch.chdir(tmp_path)
    _, url = serving("--model", "scripted:replies.jsonl", "--tools", "greeter:toolset")
    answer = httpx2.post(f"{url}/v1/chat/completions", json=ASK).json()
    assert answer["choices"][0]["message"]["content"] == "Done."
    assert (tmp_path / "called").read_text("utf-8") == "greet\n"


def test_a_port_in_use_is_told_before_anything_slow_is_done(callsmith):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = callsmith("serve", "--model", "scripted:Hi", "--port", str(listener.getsockname()[1]))
    assert result.code == 1
    assert "in use" in result.err
    assert "--port" in result.err


def test_a_host_that_is_not_ours_is_told(callsmith):
    result = callsmith("serve", "--model", "scripted:Hi", "--open", "--host", "no.such.host.invalid")
    assert result.code == 1
    assert result.err.startswith("error: cannot listen on no.such.host.invalid")


def test_settings_come_from_a_file_and_flags_win(serving, tmp_path):
    text = '[server]\nqueue = 3\n[llm]\nmodel = "scripted:From the file."\nname = "one"\n'
    (tmp_path / "c.toml").write_text(text, "utf-8")
    _, url = serving("--config", str(tmp_path / "c.toml"), "--name", "two")
    answer = httpx2.post(f"{url}/v1/chat/completions", json=ASK | {"model": "two"}).json()
    assert answer["choices"][0]["message"]["content"] == "From the file."


def test_what_is_stored_outlives_the_server(serving, tmp_path):
    settings = ("--model", "scripted:Hello!", "--set", f"server.store={tmp_path / 'kept.db'}")
    process, url = serving(*settings)
    created = httpx2.post(f"{url}/v1/responses", json={"model": "scripted", "input": "Hi"}).json()
    process.terminate()
    process.wait(timeout=20)
    _, url = serving(*settings)
    assert httpx2.get(f"{url}/v1/responses/{created['id']}").json()["output"] == created["output"]


def test_a_key_that_was_made_opens_the_server_and_nothing_else_does(serving, callsmith, tmp_path):
    output = callsmith("keys", "new", "alice").out
    key = next(line.strip() for line in output.splitlines() if "sk-" in line)
    (tmp_path / "c.toml").write_text(output[output.index("[keys.alice]") :], "utf-8")
    process, url = serving("--model", "scripted:Hi", "-c", str(tmp_path / "c.toml"), "--access-log", "--log-format", "json")
    assert httpx2.post(f"{url}/v1/chat/completions", json=ASK).status_code == 401
    answer = httpx2.post(f"{url}/v1/chat/completions", json=ASK, headers={"authorization": f"Bearer {key}"})
    assert answer.status_code == 200
    process.terminate()
    process.wait(timeout=20)
    lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert [(line["status"], line.get("subject")) for line in lines] == [(401, None), (200, "alice")]


def test_a_new_key_can_have_scopes(callsmith):
    output = callsmith("keys", "new", "ops", "--scope", "admin", "--scope", "approver").out
    assert tomllib.loads(output[output.index("[keys") :])["keys"]["ops"]["scopes"] == ["admin", "approver"]
    result = callsmith("keys", "new", "ops", "--scope", "root")
    assert (result.code, "sk-" in result.out, "admin, approver" in result.err) == (2, False, True)


def test_a_key_needs_a_name_that_can_be_written(callsmith):
    result = callsmith("keys", "new", "a b")
    assert result.code == 2
    assert "no name for a key" in result.err


@pytest.mark.parametrize("arguments", [("--open",), ("--set", "keys.a.sha256=" + "0" * 64)])
def test_a_server_open_to_others_has_keys_or_was_insisted_on(serving, arguments):
    process, _ = serving("--model", "scripted:Hi", "--host", "0.0.0.0", *arguments)
    process.terminate()
    assert process.wait(timeout=20) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "box.example"])
def test_without_keys_a_server_does_not_listen_for_others(callsmith, host):
    result = callsmith("serve", "--model", "scripted:Hi", "--host", host)
    assert result.code == 2
    assert "callsmith keys new" in result.err
    assert "--open" in result.err


@pytest.mark.parametrize(
    ("host", "ours"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_which_addresses_only_this_machine_can_reach(host, ours):
    assert is_loopback(host) is ours


def test_the_banner_names_the_tools_that_run_here_and_shows_how_to_use_them():
    banner = _banner("http://h:1", {"m": ModelInfo(format="hermes")}, _tools_here((), []))
    assert "Tools run here" not in banner and '"tools"' in banner
    banner = _banner("http://h:1", {"m": ModelInfo(format="hermes")}, _tools_here([Tool("now"), Tool("add")], ["files"]))
    assert "Tools run here: now, add and those of the MCP servers files (/health shows them)." in banner
    assert '"tools"' not in banner and '"tool_events": true' in banner
