"""`callsmith serve`: the real command in a process of its own, and how it ends what is under way."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

import httpx2
import pytest

from callsmith.cli.inputs.served_models import model_options
from callsmith.cli.serve import _banner, _tools_here
from callsmith.core.errors import QueueFull
from callsmith.core.ports import ModelInfo
from callsmith.core.values import Message, Request, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models import open_model
from callsmith.models.local import LocalModel
from callsmith.runtime.telemetry import spans
from callsmith.server.app import create_app
from callsmith.server.http.shutdown import GracefulShutdown
from callsmith.server.network.origins import is_loopback
from callsmith.server.settings import Llm, Settings
from callsmith.server.settings_sources import setting_options
from tests.serving import served
from tests.small import small_file

pytestmark = pytest.mark.processes

ASK = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}


def _heed_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def serving() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """The command, and the address it says it serves at."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "callsmith", "serve", "--port", "0", *arguments]
        # Whoever runs the tests in the background has SIGINT ignored, and a child would inherit that.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_sigint)
        started.append(process)
        assert process.stdout
        first = process.stdout.readline()
        return process, first.partition(" at ")[2].partition("/v1")[0]

    yield start
    for process in started:
        process.kill()
        process.communicate()


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


def test_the_users_own_file_is_read_without_being_named(callsmith, tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path))
    (tmp_path / "callsmith.toml").write_text("[server]\nport = 4711\n", "utf-8")
    result = callsmith("serve", "--print-config", "--set", "limits.tokens=9")
    assert f"port = 4711  # {tmp_path / 'callsmith.toml'}" in result.out
    assert "tokens = 9  # --set" in result.out
    assert 'host = "127.0.0.1"\n' in result.out


def test_how_many_answers_are_made_at_once_and_how_many_wait_can_be_said(callsmith):
    result = callsmith("serve", "--print-config", "--concurrency", "2", "--queue", "3")
    assert "concurrency = 2  # --concurrency" in result.out
    assert "queue = 3  # --queue" in result.out
    assert "--concurrency" in callsmith("serve", "--help").out


async def test_calls_under_auto_are_constrained_where_the_settings_say_so():
    for llm in (Llm(), Llm(auto_guarded=True)):
        model = open_model("scripted:Hello.", model_options(llm, Settings()))
        assert isinstance(model, LocalModel) and isinstance(model.engine, Scripted)
        async for _ in model.stream(Request((Message.user("Hi"),), (Tool("look"),))):
            pass
        assert (model.engine.asked[0].grammar is not None) == bool(llm.auto_guarded)


def test_a_bias_towards_calls_and_how_tools_are_put_can_be_said(callsmith, monkeypatch):
    output = callsmith("serve", "--print-config", "--call-bias", "-1.5", "--tool-prompt", "json-array").out
    assert "call_bias = -1.5  # --call-bias" in output and 'tool_prompt = "json-array"  # --tool-prompt' in output
    assert callsmith("serve", "--print-config", "--call-bias", "21").code == 2
    options = model_options(Llm(call_bias=-1.5, tool_prompt="json-array"), Settings())
    assert (options.call_bias, options.tool_prompt) == (-1.5, "json-array")
    assert "--call-bias" in callsmith("chat", "--help").out and "--tool-prompt" in callsmith("chat", "--help").out


@pytest.mark.parametrize(("option", "expected"), [("--auto-guarded", "true"), ("--no-auto-guarded", "false")])
def test_it_can_be_said_either_way_whether_calls_are_constrained(callsmith, monkeypatch, option: str, expected: str):
    assert "# auto_guarded is not set" in callsmith("serve", "--print-config").out
    assert f"auto_guarded = {expected}  # --auto-guarded" in callsmith("serve", "--print-config", option).out
    monkeypatch.setenv("CALLSMITH_LLM__AUTO_GUARDED", expected.title())
    assert f"auto_guarded = {expected}  # " in callsmith("serve", "--print-config").out


@pytest.mark.weights
async def test_the_engine_makes_and_lets_wait_as_many_answers_as_the_settings_say():
    pytest.importorskip("xllamacpp")
    small_file()
    model = open_model("smollm2-135m", model_options(Llm(context=256, concurrency=2), Settings(queue=3)))

    async def first() -> object:
        return await anext(model.stream(Request((Message.user("Hi"),))))

    tasks = [asyncio.create_task(first()) for _ in range(6)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await model.close()
    assert [isinstance(outcome, QueueFull) for outcome in outcomes] == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "server.prot=1"), "did you mean 'server.port'"),
        (("--set", "server.port"), "expected NAME=VALUE"),
        (("--log-format", "xml"), "expected one of text, json"),
        (("--set", "llm.chat_template=/nowhere.jinja", "--model", "scripted:Hi", "--port", "0"), "no chat template"),
    ],
)
def test_settings_that_make_no_sense_are_told(callsmith, arguments, words):
    result = callsmith("serve", *arguments)
    assert result.code == 2
    assert words in result.err


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


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An OpenTelemetry collector: its address, and the paths and bodies that were sent to it."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()


@pytest.mark.req("R221")
@pytest.mark.parametrize(("service", "expected"), [(None, "callsmith"), ("desk", "desk")])
def test_spans_of_served_requests_are_exported_before_the_server_has_ended(serving, collector, monkeypatch, service, expected):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    endpoint, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")  # nothing is exported before the end
    if service:
        monkeypatch.setenv("OTEL_SERVICE_NAME", service)
    process, url = serving("--model", "scripted:Hi", "--otel")
    assert httpx2.post(f"{url}/v1/chat/completions", json=ASK).status_code == 200
    process.terminate()
    assert process.wait(timeout=30) == 0
    [(path, body)] = received
    assert path == "/v1/traces"
    [traces] = ExportTraceServiceRequest.FromString(body).resource_spans
    names = {attribute.key: attribute.value.string_value for attribute in traces.resource.attributes}
    assert names["service.name"] == expected
    assert [span.name for scope in traces.scope_spans for span in scope.spans] == ["chat scripted"]


def test_spans_can_be_written_to_the_console(serving, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    process, url = serving("--model", "scripted:Hi", "--set", "log.otel=true")
    httpx2.post(f"{url}/v1/chat/completions", json=ASK)
    process.terminate()
    process.wait(timeout=30)
    assert '"name": "chat scripted"' in process.stdout.read()


def test_without_the_option_no_spans_are_exported(serving, collector, monkeypatch):
    endpoint, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    process, url = serving("--model", "scripted:Hi")
    assert httpx2.post(f"{url}/v1/chat/completions", json=ASK).status_code == 200
    process.terminate()
    assert process.wait(timeout=30) == 0
    assert received == []


def test_an_exporter_that_is_not_installed_is_an_error_before_anything_is_served(callsmith, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "consol")
    result = callsmith("serve", "--model", "scripted:Hi", "--port", "0", "--otel")
    assert result.code == 2
    assert "did you mean 'console'" in result.err


@pytest.mark.parametrize("missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"])
def test_spans_without_their_packages_say_what_to_install(callsmith, monkeypatch, missing):
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    monkeypatch.setattr(spans, "find_spec", lambda name: None if name == missing else find_spec(name))
    if "exporter" in missing:
        monkeypatch.setattr(spans, "entry_points", lambda group: ())
    result = callsmith("serve", "--model", "scripted:Hi", "--port", "0", "--otel")
    assert result.code == 2
    assert "pip install 'callsmith[otel]'" in result.err


def test_every_setting_that_has_an_option_takes_its_value_from_it(callsmith, tmp_path):
    """Whatever the settings declare is in the help, can be given, and is then in effect with the option as its source."""
    (tmp_path / "there").touch()
    output = callsmith("serve", "--help").out
    for setting in setting_options():
        option, number = setting.flag.names[0], str(int(setting.flag.minimum or 0) + 7)
        literals = [word for kind in (setting.type, *get_args(setting.type)) for word in get_args(kind) if isinstance(word, str)]
        value = literals[-1] if literals else str(tmp_path / "there") if setting.flag.is_file else number
        is_switch = bool in (setting.type, *get_args(setting.type))
        result = callsmith("serve", "--print-config", option.partition("/")[0], *([] if is_switch else [value]))
        parsed = tomllib.loads(result.out)
        section, _, name = setting.name.partition(".")
        kind = next((item for item in (int, float) if item is setting.type or item in get_args(setting.type)), str)
        expected = not setting.default if is_switch else [value] if isinstance(setting.default, tuple) else kind(value)
        assert parsed[section][name] == expected
        assert result.out.count(f"# {option}\n") == 1
        for spelling in (word for names in setting.flag.names for word in names.split("/")):
            assert re.search(rf"\s{spelling}[,\s]", output)


def test_options_whose_value_is_nothing_count_as_given(callsmith):
    assert "port = 0  # --port" in callsmith("serve", "--print-config", "-p", "0").out
    assert "tools_budget = 0  # --tools-budget" in callsmith("serve", "--print-config", "--tools-budget", "0").out
    assert "args = []  # --mcp-args" in callsmith("serve", "--print-config", "--mcp-args", "").out


def test_arguments_of_an_mcp_server_are_separated_by_commas(callsmith):
    result = callsmith("serve", "--print-config", "--mcp-command", "python", "--mcp-args", "-m,my.server,--fast")
    assert 'args = ["-m", "my.server", "--fast"]' in result.out


def test_the_model_can_be_named_by_the_environment(callsmith, monkeypatch):
    monkeypatch.setenv("CALLSMITH_MODEL", "scripted:Hi")
    assert 'model = "scripted:Hi"  # --model' in callsmith("serve", "--print-config").out


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


@asynccontextmanager
async def slow_server() -> AsyncIterator[tuple[GracefulShutdown, str]]:
    """A server whose model takes for ever to say what it has to say."""
    engine = Scripted(["word " * 10_000], pause=0.01, repeat=True)
    app = GracefulShutdown(create_app({"scripted": LocalModel(engine, format_named("hermes"), Template(CHATML))}))
    async with served(app) as url:
        yield app, url


async def test_a_stream_that_is_ended_ends_with_an_error_frame():
    async with slow_server() as (app, url), httpx2.AsyncClient() as client:
        lines: list[str] = []
        async with client.stream("POST", f"{url}/v1/chat/completions", json=ASK | {"stream": True}) as answer:
            async for line in answer.aiter_lines():
                lines += [line] if line else []
                if len(lines) == 5:
                    app.stop()
    last: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))
    assert last["error"]["message"] == "the server is shutting down"


async def test_an_answer_that_has_not_begun_is_refused_with_503():
    async with slow_server() as (app, url), httpx2.AsyncClient() as client:
        asking = asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=ASK))
        await asyncio.sleep(0.2)
        app.stop()
        answer = await asking
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "the server is shutting down"


async def test_the_last_word_is_in_the_clients_dialect():
    async with slow_server() as (app, url), httpx2.AsyncClient() as client:
        lines: list[str] = []
        async with client.stream("POST", f"{url}/v1/messages", json=ASK | {"stream": True, "max_tokens": 9999}) as answer:
            async for line in answer.aiter_lines():
                lines += [line] if line else []
                if len(lines) == 8:
                    app.stop()
    assert lines[-2] == "event: error"
    last: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))
    assert (last["type"], last["error"]["message"]) == ("error", "the server is shutting down")


async def test_until_it_is_told_to_stop_it_changes_nothing():
    engine = Scripted(["Hello!"], repeat=True)
    inner = create_app({"scripted": LocalModel(engine, format_named("hermes"), Template(CHATML))})
    for app in (inner, GracefulShutdown(inner)):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.post("/v1/chat/completions", json=ASK)
            assert answer.json()["choices"][0]["message"]["content"] == "Hello!"
            assert (await client.get("/nowhere")).status_code == 404


def test_the_banner_names_the_tools_that_run_here_and_shows_how_to_use_them():
    banner = _banner("http://h:1", {"m": ModelInfo(format="hermes")}, _tools_here((), []))
    assert "Tools run here" not in banner and '"tools"' in banner
    banner = _banner("http://h:1", {"m": ModelInfo(format="hermes")}, _tools_here([Tool("now"), Tool("add")], ["files"]))
    assert "Tools run here: now, add and those of the MCP servers files (/health shows them)." in banner
    assert '"tools"' not in banner and '"tool_events": true' in banner
