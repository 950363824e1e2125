"""callsmith as a package: the wheel has every file, and works in empty environments, bare and with each of its extras.

With an extra missing, a command that needs it names it in one line and fetches nothing.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

import pytest

from callsmith.models.templates import template_named
from tests.real_build import CPU_BUILD, needs_real_build
from tests.small import SMALL, small_file

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".venv-wheel"
TOOLS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": TOOLS}}
ANSWER = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CHAT = ("callsmith", "chat", "--model", SMALL, "--no-tools", "--max-tokens", "8", "Say hello.")
FILES = {
    "tools.json": json.dumps([WEATHER]),
    "answer.txt": ANSWER,
    "corpus.jsonl": json.dumps({"format": "hermes", "tools": [WEATHER], "output": ANSWER}) + "\n",
    "mymodule.py": 'from callsmith import tool\n\n\n@tool\ndef add(a: int, b: int) -> int:\n    """Add."""\n    return a + b\n',
    "template.jinja": template_named("qwen2.5"),
}


@pytest.fixture(scope="module")
def wheel() -> Iterator[Path]:
    """The wheel, built from this source."""
    shutil.rmtree(PLACE, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(PLACE), str(ROOT)], check=True)
    yield next(PLACE.glob("callsmith-*.whl"))
    shutil.rmtree(PLACE)


class Installed:
    """An environment with the wheel in it, and a folder to work in."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.bin, self.work = folder / "bin", work
        hidden = ("PYTHONPATH", "CALLSMITH_LIBLLAMA", "VIRTUAL_ENV")
        self.environment = {name: value for name, value in os.environ.items() if name not in hidden}
        self.environment |= {"CALLSMITH_CONFIG": str(work / "config"), "CALLSMITH_CACHE": str(work / "cache"), "NO_COLOR": "1"}

    def run(self, *command: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment."""
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.work,
            env=self.environment | environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def output(self, *command: str, **environment: str) -> str:
        """What a program prints, which succeeds."""
        done = self.run(*command, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def complaint(self, *command: str) -> str:
        """What a command says that cannot do it: one line; and nothing was fetched."""
        done = self.run("callsmith", *command)
        assert done.returncode == 2, done.stdout
        assert not (self.work / "cache").exists()
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")
        return done.stderr

    @contextmanager
    def serving(self, *options: str, **environment: str) -> Iterator[str]:
        """A server of the environment; its URL."""
        command = [str(self.bin / "callsmith"), "serve", "--port", "0", *options]
        with subprocess.Popen(
            command, cwd=self.work, env=self.environment | environment, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout
            try:
                first = server.stdout.readline()
                match = re.search(r"at (http://\S+)/v1\.", first)
                assert match, first
                yield match[1]
            finally:
                server.terminate()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Installed]:
    """The environment with an extra, made when it is first asked for; "" is the bare package."""
    environments: dict[str, Installed] = {}

    def install(extra: str) -> Installed:
        if extra not in environments:
            folder = PLACE / (extra or "bare")
            venv.create(folder, with_pip=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, f"{wheel}[{extra}]" if extra else str(wheel)], check=True)
            work = tmp_path_factory.mktemp(folder.name)
            for name, content in FILES.items():
                (work / name).write_text(content, "utf-8")
            servers = {"ours": {"command": str(folder / "bin" / "callsmith"), "args": ["mcp"]}}
            (work / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
            environments[extra] = Installed(folder, work)
        return environments[extra]

    return install


def with_weights() -> dict[str, str]:
    """The folder of weights that other tests use too."""
    return {"CALLSMITH_CACHE": str(small_file().parent.parent)}


def ask(url: str, **fields: object) -> dict:
    """A chat completion."""
    body = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}], **fields}
    request = Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)


def test_the_wheel_has_every_file_of_the_source(wheel: Path) -> None:
    source = ROOT / "src"
    expected = {path.relative_to(source).as_posix() for path in (source / "callsmith").rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in names if name.startswith("callsmith/")} == {name for name in expected if "__pycache__" not in name}
    assert {"callsmith/py.typed", "callsmith/models/presets.toml"} < names


def test_the_wheel_has_a_bill_of_materials_with_every_requirement(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
        bill = json.loads(archive.read(name))
        metadata = archive.read(name.partition("/")[0] + "/METADATA").decode()
    assert name.endswith("/sboms/callsmith.cdx.json") and (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert f"\nVersion: {bill['metadata']['component']['version']}\n" in metadata
    required = {line.lower() for line in re.findall(r"^Requires-Dist: ([\w-]+)", metadata, re.MULTILINE)} - {"callsmith"}
    assert {component["name"] for component in bill["components"]} == required
    assert bill["dependencies"][0]["dependsOn"] == [component["bom-ref"] for component in bill["components"]]
    llguidance = next(component for component in bill["components"] if component["name"] == "llguidance")
    assert llguidance["scope"] == "optional"
    assert [entry["value"].rpartition(" ")[2] for entry in llguidance["properties"]] == ["all", "llama", "transformers"]
    asked = {component["name"]: component["properties"][-1]["value"] for component in bill["components"]}
    assert "sys_platform != " in asked["uvloop"] and asked["pyjwt"].startswith("pyjwt[crypto]>=")


def test_what_the_image_copies_is_enough_to_build_the_wheel(wheel: Path, tmp_path: Path) -> None:
    for line in (ROOT / "deploy" / "Dockerfile").read_text("utf-8").splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            *sources, _ = line.split()[1:]
            for source in sources:
                into = tmp_path / source
                shutil.copytree(ROOT / source, into) if (ROOT / source).is_dir() else shutil.copy(ROOT / source, into)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path / "built"), str(tmp_path)], check=True)
    (built,) = (tmp_path / "built").glob("callsmith-*.whl")
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(built) as theirs:
        assert {name for name in theirs.namelist() if "__pycache__" not in name} == set(ours.namelist())


@pytest.fixture(scope="module")
def index(wheel: Path) -> Iterator[str]:
    """A package index on this machine that has the wheel; its URL."""
    folder = PLACE / "index" / "callsmith"
    folder.mkdir(parents=True)
    shutil.copy(wheel, folder)
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.mark.parametrize("runner", ["uvx", "uvx with extras", "uvx of a file", "pipx run"])
def test_it_runs_without_being_installed(wheel: Path, index: str, tmp_path: Path, runner: str) -> None:
    tools = PLACE / "runners"
    if not tools.exists():
        venv.create(tools, with_pip=True)
        pip = [str(tools / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "pipx", "uv"], check=True)
    command = {
        "uvx": ["uvx", "--index", index, "callsmith", "chat", "--model", "scripted:Hello", "Hi"],
        "uvx with extras": ["uvx", "--index", index, "--from", "callsmith[server]", "callsmith", "serve", "--print-config"],
        "pipx run": ["pipx", "run", "--spec", f"{wheel}[server]", "callsmith", "serve", "--print-config"],
        "uvx of a file": ["uvx", "--from", f"{wheel}[server]", "callsmith", "serve", "--print-config"],
    }[runner]
    environment = os.environ | {"UV_CACHE_DIR": str(PLACE / "uv"), "PIPX_HOME": str(PLACE / "pipx"), "HOME": str(tmp_path)}
    environment["PATH"] = f"{tools / 'bin'}{os.pathsep}{environment['PATH']}"
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("Hello" if runner == "uvx" else "port = ") in done.stdout


# What the bare package can do, and a word of what it then says.
BARE = {
    "callsmith --version": "callsmith ",
    "callsmith --help": "serve",
    "callsmith eval --help": "--setup",
    "callsmith tune --help": "--categories",
    "callsmith parse --format hermes answer.txt": '"Paris"',
    "callsmith parse --jsonl corpus.jsonl": '"Paris"',
    "callsmith formats": "hermes",
    "callsmith formats detect template.jinja": "hermes",
    "callsmith grammar --tools tools.json": "get_weather",
    "callsmith grammar --tools tools.json --report": "enforces",
    "callsmith grammar --tools tools.json --target gbnf": "root ::=",
    "callsmith models": SMALL,
    "callsmith tools list --tools mymodule": "add",
    "callsmith chat --model scripted:Hello Hi": "Hello",
    "callsmith chat --model scripted:Hello --save talk.json Hi": "Hello",
    "callsmith engines": "linux-x64-cuda12",
    "callsmith doctor --model scripted:Hello": "pip install 'callsmith[server]'",
}
# Commands that need an extra, and which.
NEEDING = {
    "callsmith serve": "server",
    "callsmith serve --model scripted:Hello --print-config": "server",
    "callsmith init": "server",
    "callsmith keys new alice": "server",
    "callsmith check http://127.0.0.1:9/v1": "remote",
    "callsmith bus id": "bus",
    "callsmith bus token revoke x": "bus",
    "callsmith chat Hi": "llama",
    f"callsmith chat --model {SMALL} Hi": "llama",
    f"callsmith tools list --model {SMALL}": "llama",
    "callsmith engines install": "llama",
    "callsmith chat --model scripted:Hello --mcp-config mcp.json Hi": "mcp",
    "callsmith tools list --mcp-config mcp.json": "mcp",
    "callsmith mcp --tools mymodule": "mcp",
    "callsmith mcp --tools mymodule --http 127.0.0.1:0": "mcp",
}


@pytest.mark.parametrize("command", BARE)
def test_the_bare_package_can(installed, command: str) -> None:
    assert BARE[command] in installed("").output(*shlex.split(command))


@pytest.mark.parametrize("command", NEEDING)
def test_the_bare_package_names_the_extra_that_a_command_needs(installed, command: str) -> None:
    assert f"pip install 'callsmith[{NEEDING[command]}]'" in installed("").complaint(*shlex.split(command)[1:])


def test_every_public_name_is_there_without_extras(installed) -> None:
    everything = "import callsmith\nfor name in callsmith.__all__: getattr(callsmith, name)\nprint(len(callsmith.__all__))"
    assert int(installed("").output("python", "-c", everything)) > 20


def test_the_llama_extra_runs_models(installed) -> None:
    env = installed("llama")
    assert env.output(
        "callsmith", "chat", "--model", SMALL, "--no-tools", "--max-tokens", "8", "Say hello.", **with_weights()
    ).strip()
    assert SMALL in env.output("callsmith", "models", "verify", SMALL, **with_weights())
    program = """
from callsmith import Choice, Functions, Limits, Message, Request, Sampling, open_model, run_sync, tool

@tool
def get_weather(city: str) -> str:
    "The weather."
    return "sunny"

model = open_model("smollm2-135m")
request = Request((Message.user("Weather in Paris?"),), choice=Choice("required"), sampling=Sampling(max_tokens=64))
print(run_sync(model, Functions(get_weather), request, limits=Limits(iterations=1)).messages[0].calls[0].name)
"""
    (env.work / "example.py").write_text(program, "utf-8")
    assert env.output("python", "example.py", **with_weights()) == "get_weather\n"
    assert "callsmith[server]" in env.complaint("serve")


def test_the_server_extra_serves_and_names_what_else_is_needed(installed) -> None:
    env = installed("server")
    with env.serving("--model", "scripted:Hello there.") as url:
        assert ask(url, model="scripted")["choices"][0]["message"]["content"] == "Hello there."
        with urlopen(Request(f"{url}/", headers={"accept": "text/html"})) as page:
            assert b"<title>callsmith</title>" in page.read()
    assert "Written" in env.output("callsmith", "init", "--output", "settings.toml")
    assert "sk-" in env.output("callsmith", "keys", "new", "alice")
    assert "port" in env.output("callsmith", "serve", "--print-config")
    scripted = ("serve", "--port", "0", "--model", "scripted:Hello")
    assert "callsmith[llama]" in env.complaint("serve", "--port", "0")
    assert "callsmith[mcp]" in env.complaint(*scripted, "--mcp-config", "mcp.json")
    assert "callsmith[otel]" in env.complaint(*scripted, "--otel")


def test_the_mcp_extra_offers_tools_and_uses_those_of_others(installed) -> None:
    env = installed("mcp")
    listed = env.output("callsmith", "tools", "list", "--mcp-config", "mcp.json", "--json")
    assert "get_weather" in listed


def test_the_otel_extra_makes_spans(installed) -> None:
    program = """
from callsmith.runtime.telemetry.spans import tracer_provider
from callsmith.runtime.telemetry.spans import Spans
print(type(Spans(tracer_provider())).__name__)
"""
    assert installed("otel").output("python", "-c", program, OTEL_TRACES_EXPORTER="none") == "Spans\n"


def test_with_everything_a_real_model_is_served_and_chats(installed) -> None:
    env = installed("all")
    findings = env.output("callsmith", "doctor", "--model", SMALL, **with_weights())
    assert [line.split()[0] for line in findings.splitlines() if " extra " in line] == ["ok"] * 9
    with env.serving(
        "--model", SMALL, "--mcp-config", "mcp.json", "--otel", OTEL_TRACES_EXPORTER="none", **with_weights()
    ) as url:
        answer = ask(url, model=SMALL, tools=[WEATHER], tool_choice="required", max_tokens=64)
        call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
        assert call["name"] == "get_weather" and "city" in json.loads(call["arguments"])


@needs_real_build
def test_a_build_of_llama_cpp_is_installed_by_a_command_and_used(installed) -> None:
    env = installed("llama")
    weights = with_weights()["CALLSMITH_CACHE"]
    own = env.work / "with-library"
    own.mkdir()
    (own / "models").symlink_to(Path(weights) / "models")
    assert CPU_BUILD is not None
    path = env.output("callsmith", "engines", "install", CPU_BUILD.name, CALLSMITH_CACHE=str(own)).strip()
    output = env.output("callsmith", "doctor", "--model", SMALL, CALLSMITH_CACHE=str(own))
    assert f"ok   llama.cpp {path}" in output
    assert env.output(*CHAT, CALLSMITH_CACHE=str(own)).strip()


def test_every_command_that_the_guide_to_the_terminal_shows_is_tried_here() -> None:
    text = (ROOT / "docs" / "terminal.md").read_text("utf-8")
    source = Path(__file__).read_text("utf-8")
    for name in set(re.findall(r"^callsmith (\w+).* # ", text, re.MULTILINE)):
        assert re.search(rf'callsmith {name}\b|"callsmith", "{name}"', source), name
