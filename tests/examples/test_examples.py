"""The examples run as they stand: with a model that says what the test wants, and by `make test-readme` on the default model."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import callsmith
from callsmith.core.values import Call
from callsmith.formats import format_named
from callsmith.formats.write import write
from callsmith.models.presets import presets_in
from callsmith.models.weights.catalogue import default_model
from callsmith.models.weights.fetch import fetch
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions, tool
from callsmith.tools.mcp import load_servers
from tests.capabilities.chatting import called, scripted_model
from tests.serving import served_apart

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GENERIC = format_named("generic-xml")


def calling(name: str, **arguments: Any) -> str:
    """What a scripted model writes for a call."""
    return write(GENERIC, [Call(name, arguments)])


# What each example is given to say, which arguments, and what it prints then; on a real model the last is all that counts.
RUNS: dict[str, tuple[list[str], list[str], str]] = {
    "weather.py": ([calling("get_weather", city="Paris"), "It is sunny."], [], r"call: get_weather .*Paris.*\n(?s:.*)\w"),
    "tool_calling.py": (
        [calling("calculate", expression="17 * 23"), "It is 391."],
        [],
        r"\[calculate .*\]\n\[→ 391\]\n(?s:.*)\w",
    ),
    "constrained.py": (
        ['{"city": "New York", "passengers": 2, "travel_class": "economy"}', "complaint", "2026-12-31"],
        [],
        r"Ticket\(city='.+', passengers=\d+, travel_class='(economy|business)'\)\n(praise|complaint)\n\d{4}-\d\d-\d\d\n",
    ),
    "book_flight.py": (
        [calling("search_flights", destination="NYC"), "Two.", calling("book_flight", flight="AX200"), "It is booked."],
        ["y"],
        r"booked: \['AX200'\]",
    ),
    "kitchen.py": ([calling("set_light", colour="blue"), "The light is blue."], [], r"\{'light': 'blue', 'oven': 20\}"),
}


def ran(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(Path(callsmith.__file__).parents[1]), **environment},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def scripted_run(name: str, folder: Path, *replies: str) -> str:
    (folder / "replies.jsonl").write_text("\n".join(map(json.dumps, replies)))
    return ran(sys.executable, EXAMPLES / name, "scripted:replies.jsonl", cwd=folder)


@pytest.mark.req("R134")
def test_weather_calculator_and_search_all_run(tmp_path: Path):
    calls = [
        calling("get_weather", city="Paris"),
        calling("calculate", expression="(17 + 1) * -2"),
        calling("search", query="etna"),
    ]
    lines = scripted_run("tool_calling.py", tmp_path, *calls, "All done.").splitlines()
    assert lines == [
        '[get_weather {"city": "Paris"}]',
        "[→ In Paris it is cloudy, 15 °C.]",
        '[calculate {"expression": "(17 + 1) * -2"}]',
        "[→ -36]",
        '[search {"query": "etna"}]',
        '[→ ["Etna: A volcano on Sicily, 3,357 metres high."]]',
        "All done.",
    ]


@pytest.mark.req("R135")
def test_clock_light_and_oven_all_run(tmp_path: Path):
    calls = [calling("get_time"), calling("set_light", colour="red"), calling("set_temp", celsius=180)]
    lines = scripted_run("kitchen.py", tmp_path, *calls, "So it is.").splitlines()
    assert re.fullmatch(r"get_time: \d\d:\d\d", lines[0]), lines
    assert lines[1:] == [
        "set_light: the light is red",
        "set_temp: the oven is set to 180 degrees",
        "So it is.",
        "{'light': 'red', 'oven': 180}",
    ]


@pytest.mark.req("R136")
@pytest.mark.req("R200")
@pytest.mark.req("R204")
@pytest.mark.parametrize("name", RUNS)
def test_an_example_does_what_it_shows(name: str, tmp_path: Path):
    replies, arguments, printed = RUNS[name]
    (tmp_path / "replies.jsonl").write_text("\n".join(map(json.dumps, replies)))
    output = ran(sys.executable, EXAMPLES / name, "scripted:replies.jsonl", *arguments, cwd=tmp_path)
    assert re.search(printed, output), output


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("name", RUNS)
def test_an_example_works_on_the_default_model(name: str, tmp_path: Path):
    fetch(default_model())
    _, arguments, printed = RUNS[name]
    tries = (ran(sys.executable, EXAMPLES / name, default_model(), *arguments, cwd=tmp_path) for _ in range(3))
    assert any(re.search(printed, output) for output in tries)  # now and then a small model says something else


@tool
def list_files() -> str:
    """List the files."""
    return "notes.txt"


@contextmanager
def serving(*replies: str) -> Iterator[str]:
    """The base URL of a server whose model says this."""
    with served_apart(create_app({"m": scripted_model(*replies)[1]}, tools=Functions(list_files))) as url:
        yield f"{url}/v1"


@pytest.mark.req("R202")
def test_the_client_runs_its_own_tools(tmp_path: Path):
    with serving(called(("get_weather", {"city": "Tokyo"})), "Sunny, 22 °C.") as url:
        output = ran(sys.executable, EXAMPLES / "external_tools.py", cwd=tmp_path, OPENAI_BASE_URL=url)
    assert output.splitlines() == ['[get_weather {"city": "Tokyo"}]', "Sunny, 22 °C."]


@pytest.mark.req("R201")
def test_tools_of_the_server_run_while_the_answer_streams(tmp_path: Path):
    with serving(called(("list_files", {})), "There is notes.txt.") as url:
        output = ran(sys.executable, EXAMPLES / "streaming_mcp.py", cwd=tmp_path, OPENAI_BASE_URL=url)
    assert output.splitlines() == ["[list_files {}]", "There is notes.txt."]


@pytest.mark.req("R200")
@pytest.mark.parametrize("program", ["chat.py", "chat.mjs", "chat.sh"])
def test_the_api_is_used_from_several_languages(program: str, tmp_path: Path):
    run_by = {"py": sys.executable, "mjs": shutil.which("node"), "sh": shutil.which("curl") and "sh"}[program.rpartition(".")[2]]
    if not run_by:
        pytest.skip(f"what runs {program} is not installed")
    with serving(called(("get_weather", {"city": "Paris"}))) as url:
        output = ran(run_by, EXAMPLES / "http" / program, cwd=tmp_path, OPENAI_BASE_URL=url)
    assert "get_weather" in output and "Paris" in output


@pytest.mark.req("R203")
def test_the_sample_of_mcp_servers_loads_with_its_variables():
    servers = load_servers(EXAMPLES / "mcp.json", {"NOTES_FOLDER": "/notes", "GITHUB_TOKEN": "secret"})
    servers = {server.name: server for server in servers}
    assert set(servers) == {"filesystem", "github"}
    assert "/notes" in servers["filesystem"].args and servers["github"].env["GITHUB_PERSONAL_ACCESS_TOKEN"] == "secret"


def test_presets_and_formats_of_ones_own_are_found_by_file_and_by_entry_point(tmp_path: Path):
    (preset,) = presets_in((EXAMPLES / "presets.toml").read_text("utf-8"))
    assert preset.guards == ("small",) and preset.policy == "required_first_hop"
    project = tomllib.loads((EXAMPLES / "plugin" / "pyproject.toml").read_text("utf-8"))["project"]
    info = tmp_path / "kitchen_plugin-0.1.0.dist-info"  # as an installer would leave it
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [
        f"[{group}]\n" + "\n".join(f"{name} = {at}" for name, at in some.items())
        for group, some in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    shutil.copytree(EXAMPLES / "plugin" / "src" / "kitchen_plugin", tmp_path / "kitchen_plugin")
    path = f"{ROOT / 'src'}:{tmp_path}"
    (tmp_path / "answer.txt").write_text('<do>{"tool": "get_time", "with": {}}</do>')
    output = ran(sys.executable, "-m", "callsmith", "parse", "--format", "kitchen", "answer.txt", cwd=tmp_path, PYTHONPATH=path)
    assert '"get_time"' in output
    ask = (
        "from callsmith.models import plugins, presets; plugins.load_presets();"
        "print(presets.preset_for('my-kitchen-model').guards)"
    )
    assert ran(sys.executable, "-c", ask, cwd=tmp_path, PYTHONPATH=path) == "('small',)\n"


def test_every_example_is_short_and_in_the_list():
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for file in EXAMPLES.rglob("*.py"):
        assert len(file.read_text("utf-8").splitlines()) <= (100 if "adapters" in file.parts else 60), file
        assert file.relative_to(EXAMPLES).parts[0].removesuffix(".py") in listed, file
