"""docs/extending.md: each row of its two tables is tried with a toy, in a copy of the package or from outside of it.

The toys of all rows are put in at once, and one process for each table looks for all of them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest

from tests.docs.blocks import DOCS, ROOT

OUTSIDE, INSIDE = (DOCS / "extending.md").read_text("utf-8").split("\n## ")[1:]


@dataclass(frozen=True, slots=True)
class Toy:
    """Code that ends in an expression, which is true where the toy is found; its files; what is put before a text in others."""

    code: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    edits: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


FAMILY = """
    from callsmith.formats.algebra import ARGS, NAME, Calls, Format

    FORMAT = Format(name="{name}", parts=(Calls("<{name}>", NAME, ARGS, "</{name}>"),))
"""
FORMAT_TOML = """
    name = "{name}"
    [[parts]]
    kind = "calls"
    item = ["<{name}>", "{{name}}", "{{args}}", "</{name}>"]
"""
PRESET_TOML = """
    [{name}]
    models = ["{name}*"]
    formats = ["hermes"]
"""
PROVIDER_TOML = '[{name}]\nurl = "http://127.0.0.1:9/v1"\n'
TOOL_PROMPT = 'description = "a toy"\n'
TOOLS = """
    from callsmith import Functions, tool

    @tool
    def say_again(word: str) -> str:
        "Says a word again."
        return word

    source = Functions(say_again)
"""
ENGINE = """
    from callsmith.engines.scripted import Scripted

    def open(rest):
        return Scripted([rest] * 9)
"""


def text_of(text: str, name: str = "toy") -> str:
    return dedent(text).lstrip("\n").format(name=name) if "{name}" in text else dedent(text).lstrip("\n")


# Toys outside of callsmith: in the config folder, in a package with entry points, in a module.
OUTSIDE_TOYS = {
    "a tool": Toy(
        "from callsmith.cli.inputs.toolsets import load_toolset; import asyncio\n"
        "[tool.name for tool in asyncio.run(load_toolset('toymodule').tools())] == ['say_again']",
        {"toymodule.py": TOOLS.replace("    source = Functions(say_again)\n", "")},
    ),
    "a tool source": Toy(
        "from callsmith.cli.inputs.toolsets import load_toolset; import asyncio\n"
        "[tool.name for tool in asyncio.run(load_toolset('toysource:source').tools())] == ['say_again']",
        {"toysource.py": TOOLS},
    ),
    "a format": Toy(
        "from callsmith.models.plugins import load_formats; load_formats()\nformat_named('mine').name == 'mine'",
        {"config/formats/mine.toml": text_of(FORMAT_TOML, "mine")},
    ),
    "a format in a package": Toy(
        "format_named('packed').name == 'packed'",
        {"toypackage.py": text_of(FAMILY, "packed"), "callsmith.formats": "toypackage:FORMAT"},
    ),
    "a detector of calls": Toy(
        "from callsmith.formats import register_detector; from callsmith.formats.detector import BaseFormatDetector\n"
        "class Toy(BaseFormatDetector):\n"
        "    def detect(self, text, tools): return [Call(text, {})], ''\n"
        "register_detector('toy-detector', Toy)\n"
        "find_calls('say_again', formats=['toy-detector']).calls[0].name == 'say_again'"
    ),
    "a preset": Toy("preset_for('mine-7b').name == 'mine'", {"config/presets/mine.toml": text_of(PRESET_TOML, "mine")}),
    "a preset in a package": Toy(
        "preset_for('packed-7b').name == 'packed'",
        {
            "toypreset.py": "from callsmith.models.presets import Preset\n"
            "from callsmith.formats import format_named\n"
            "PRESET = Preset('packed', ('packed*',), (format_named('hermes'),))\n",
            "callsmith.presets": "toypreset:PRESET",
        },
    ),
    "a tool prompt": Toy("'mine' in tool_prompts()", {"config/tool_prompts/mine.toml": TOOL_PROMPT}),
    "a provider": Toy("'mine' in providers()", {"config/providers/mine.toml": PROVIDER_TOML.format(name="mine")}),
    "a chat template": Toy(
        "from callsmith.models.plugins import register_presets_file; from pathlib import Path\n"
        "register_presets_file(Path('with_template.toml'))\npreset_for('templated-7b').template == 'Toys!'",
        {"with_template.toml": text_of(PRESET_TOML, "templated") + 'template = "toy.jinja"\n', "toy.jinja": "Toys!"},
    ),
    "an engine": Toy(
        "run_sync(open_model('toyengine:Hello!'), None, 'Hi').text == 'Hello!'",
        {"toyengine.py": ENGINE, "callsmith.engines": "toyengine:open"},
    ),
    "a guard": Toy(
        "from callsmith.runtime.guards.guards import guard_model; import toyguard\n"
        "all(isinstance(guard_model(open_model('scripted:x'), [name]), toyguard.Toy) for name in ('toyguard', 'toyguard:Toy'))",
        {
            "toyguard.py": "from callsmith.runtime.guards.guard import Guard\nclass Toy(Guard): pass\n",
            "callsmith.guards": "toyguard:Toy",
        },
    ),
    "a model around a model": Toy(
        "class Around:\n"
        "    def __init__(self, model): self.model = model\n"
        "    def stream(self, request): return self.model.stream(request)\n"
        "run_sync(Around(open_model('scripted:Hello!')), None, 'Hi').text == 'Hello!'"
    ),
    "a recorder of turns": Toy(
        "from starlette.testclient import TestClient\n"
        "from callsmith.server.app import create_app; from callsmith.server.settings import Settings\n"
        "class Turns(list): add = list.append\n"
        "turns = Turns()\n"
        "app = create_app({'m': open_model('scripted:Hello!')}, settings=Settings(recorders=(turns,)))\n"
        "hi = {'role': 'user', 'content': 'Hi'}\n"
        "TestClient(app, 'http://localhost').post('/api/chat', json={'model': 'm', 'stream': False, 'messages': [hi]})\n"
        "len(turns) == 1"
    ),
}
# Toys in a copy of the package, by paths in it.
INSIDE_TOYS = {
    "a format": Toy("format_named('toy').name == 'toy'", {"formats/families/toy.py": text_of(FAMILY)}),
    "a tool prompt": Toy("'toy' in tool_prompts()", {"models/tool_prompts/toy.toml": TOOL_PROMPT}),
    "a preset": Toy("preset_for('toy-7b').name == 'toy'", {"models/presets.toml": text_of(PRESET_TOML)}),
    "a provider": Toy("'toys' in providers()", {"models/remote/providers.toml": PROVIDER_TOML.format(name="toys")}),
    "a chat template": Toy("template_named('toy') == 'Toys!'", {"models/templates/toy.jinja": "Toys!"}),
    "a model": Toy(
        "catalogue()['toy'].format == 'hermes'",
        {
            "models/weights/catalogue.toml": text_of("""
                [toy]
                title = "Toy"
                licence = "Apache-2.0"
                good_for = "nothing"
                size = 1
                sha256 = ""
                weights_name = "Toy"
                format = "hermes"
                context = 99
                source = {package = "toy==1", member = "toy", part_size = 1}
            """)
        },
    ),
    "an engine": Toy("run_sync(open_model('toy:Hello!'), None, 'Hi').text == 'Hello!'", {"engines/toy.py": ENGINE}),
    "a dialect": Toy(
        "from starlette.testclient import TestClient\n"
        "from callsmith.server.app import create_app\n"
        "app = create_app({'m': open_model('scripted:Hello!')})\n"
        "TestClient(app, 'http://localhost').get('/toy').text == 'toys'",
        {
            "server/routes/toy.py": "from starlette.responses import PlainTextResponse\n"
            "from starlette.routing import Route\n"
            "def routes(service):\n"
            "    async def toys(request): return PlainTextResponse('toys')\n"
            "    return [Route('/toy', toys)]\n"
        },
    ),
    "its description": Toy(
        "from callsmith.server.routes.openapi import operations\n'GET /toy' in operations()",
        {
            "wire/schemas/toy.py": "from callsmith.wire.schemas import Operation\n"
            "TITLE = 'Toys'\nOPERATIONS = {'GET /toy': Operation('A toy.')}\n"
        },
    ),
    "a part of the server": Toy(
        "from callsmith.server.parts import open_parts; from callsmith.server.settings import Settings\n"
        "'toy' in [part.name for part in open_parts(Settings())]",
        {
            "server/parts/toy.py": "from callsmith.server.parts import Part\nclass ToyPart(Part): name = 'toy'\nPART = ToyPart\n",
        },
    ),
    "a command": Toy(
        "from typer.testing import CliRunner\nfrom callsmith.cli.main import app\n"
        "CliRunner().invoke(app, ['toy']).output == 'toys\\n'",
        {"cli/toy.py": "import typer\napp = typer.Typer()\n@app.command()\ndef toy() -> None: print('toys')\n"},
    ),
    "an option of engines": Toy(
        "from typer.testing import CliRunner\nfrom callsmith.cli.main import app\n"
        "from callsmith.cli.inputs.served_models import model_options\n"
        "from callsmith.server.settings_sources import SettingsSource, merge_settings\n"
        "settings = merge_settings(SettingsSource('test', {'llm.toy_depth': 7})).settings\n"
        "deep = run_sync(open_model('toy:Deep ', model_options(settings.llm, settings)), None, 'Hi').text\n"
        "helped = [CliRunner().invoke(app, [name, '--help']).output for name in ('serve', 'chat', 'eval', 'tune')]\n"
        "deep == 'Deep 7' and all('--toy-depth' in text for text in helped)",
        {
            "engines/toy.py": "def open(rest, toy_depth=None): return Scripted([f'{rest}{toy_depth or \"\"}'] * 9)\n",
        },
        {
            "core/options.py": (
                "    threads: int | None",
                "    toy_depth: int | None = _option('--toy-depth', None, 'How deep.')\n",
            )
        },
    ),
    "a setting": Toy(
        "from callsmith.server.settings_sources import SettingsSource, merge_settings\n"
        "merge_settings(SettingsSource('test', {'server.toy_seconds': '5'}, is_text=True)).settings.toy_seconds == 5",
        edits={"server/settings.py": ("    approval_seconds: float", "    toy_seconds: float = 3.0\n")},
    ),
    "a probe of `callsmith check`": Toy(
        "from callsmith.evals.check.run import known_probes\n'A toy is answered' in [probe.title for probe in known_probes()]",
        {
            "evals/check/probes/toy.py": "from callsmith.evals.check.probe import probe\n"
            "@probe('A toy is answered')\nasync def toy_probe(context): pass\n"
        },
    ),
    "a tool source": Toy(
        "from callsmith.tools.toy import source; import asyncio\n"
        "[tool.name for tool in asyncio.run(source.tools())] == ['say_again']",
        {"tools/toy.py": TOOLS},
    ),
    "a grammar target": Toy(
        "from callsmith import Choice, Tool; from callsmith.grammar.calls import grammar_for\n"
        "from callsmith.grammar.targets.toy import to_toy\n"
        "to_toy(grammar_for(format_named('hermes'), [Tool('say_again')], Choice('required')))",
        {"grammar/targets/toy.py": "def to_toy(grammar): return repr(grammar)\n"},
    ),
    "a store": Toy(
        "from callsmith.server.store.opening import open_store\ntype(open_store('toy')).__name__ == 'ToyStore'",
        {"server/store/toy.py": "from callsmith.server.store.sqlite import SqliteStore\nclass ToyStore(SqliteStore): pass\n"},
        {
            "server/store/opening.py": (
                "    scheme = ",
                "    if where == 'toy':\n"
                "        from callsmith.server.store.toy import ToyStore\n"
                "        return ToyStore(':memory:')\n",
            )
        },
    ),
    "a build of llama.cpp": Toy(
        "from callsmith.engines.llama_builds.builds import BUILDS\n'toy' in [build.name for build in BUILDS]",
        {
            "engines/llama_builds/builds.py": "from dataclasses import replace\n"
            "BUILDS = (*BUILDS, replace(BUILDS[0], name='toy'))\n"
        },
    ),
}
COMMON = """
from callsmith import Call, find_calls, open_model, run_sync
from callsmith.formats import format_named
from callsmith.models.plugins import load_presets
from callsmith.models.presets import preset_for
from callsmith.models.remote.providers import providers
from callsmith.models.templates import template_named
from callsmith.models.tool_prompts import tool_prompts
from callsmith.models.weights.catalogue import catalogue
load_presets()
"""
LOOK = """
import ast, json, sys, traceback
common, codes = json.load(sys.stdin)
found = {}
for row, code in codes.items():
    names = {}
    try:
        exec(common, names)
        tree = ast.parse(code)
        last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, row, "exec"), names)
        found[row] = "found" if eval(compile(last, row, "eval"), names) else "not found"
    except BaseException:
        found[row] = traceback.format_exc()
print(json.dumps(found))
"""


def rows(table: str) -> dict[str, list[str]]:
    """The rows of a table, by what is added."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line.startswith("| ")]
    return {first.strip("| "): rest for first, *rest in cells[1:]}


def look_for(toys: Mapping[str, Toy], folder: Path, **environment: str) -> dict[str, str]:
    """Whether each toy is found, by a process that begins anew."""
    codes = {row: toy.code for row, toy in toys.items()}
    variables = {**os.environ, "PYTHONPATH": environment["path"], "CALLSMITH_CONFIG": str(folder / "config")}
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        input=json.dumps([COMMON, codes]),
        capture_output=True,
        text=True,
        cwd=folder,
        env=variables,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found_outside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The toys as files of a user, some of them a package with entry points."""
    folder = tmp_path_factory.mktemp("outside")
    points: list[str] = []
    for toy in OUTSIDE_TOYS.values():
        for name, text in toy.files.items():
            if name.startswith("callsmith."):
                points.append(f"[{name}]\n{text.partition(':')[0]} = {text}\n")
                continue
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(dedent(text).lstrip("\n"), "utf-8")
    (folder / "toys-1.0.dist-info").mkdir()
    (folder / "toys-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (folder / "toys-1.0.dist-info" / "entry_points.txt").write_text("\n".join(points))
    return look_for(OUTSIDE_TOYS, folder, path=f"{ROOT / 'src'}{os.pathsep}{folder}")


@pytest.fixture(scope="module")
def found_inside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The toys in a copy of the package, each in its place; a file that is there gets the text at its end."""
    folder = tmp_path_factory.mktemp("inside")
    package = folder / "callsmith"
    shutil.copytree(ROOT / "src" / "callsmith", package, ignore=shutil.ignore_patterns("__pycache__"))
    for toy in INSIDE_TOYS.values():
        for name, text in toy.files.items():
            with (package / name).open("a", encoding="utf-8") as file:
                file.write(dedent(text).lstrip("\n"))
        for name, (before, text) in toy.edits.items():
            source = (package / name).read_text("utf-8")
            assert source.count(before) == 1, name
            (package / name).write_text(source.replace(before, text + before), "utf-8")
    return look_for(INSIDE_TOYS, folder, path=str(folder))


def test_every_row_of_the_page_is_tried():
    assert list(rows(OUTSIDE)) == list(OUTSIDE_TOYS)
    assert list(rows(INSIDE)) == list(INSIDE_TOYS)


@pytest.mark.parametrize("row", OUTSIDE_TOYS)
def test_what_is_added_from_outside_is_found(row: str, found_outside: dict[str, str]):
    assert found_outside[row] == "found"


@pytest.mark.parametrize("row", INSIDE_TOYS)
def test_what_is_added_to_the_package_is_found(row: str, found_inside: dict[str, str]):
    assert found_inside[row] == "found"


@pytest.mark.parametrize("row", INSIDE_TOYS)
def test_a_toy_changes_no_file_but_those_of_its_row(row: str):
    paths = re.findall(r"`([\w/]+\w\.\w+|[\w/]+/NAME\.\w+)`", rows(INSIDE)[row][0])
    toy = INSIDE_TOYS[row]
    assert {*toy.files, *toy.edits} <= {path.replace("NAME", "toy") for path in paths}


@pytest.mark.parametrize("row", OUTSIDE_TOYS)
def test_a_toy_from_outside_is_where_its_row_says(row: str):
    text = " ".join(rows(OUTSIDE)[row])
    for name in OUTSIDE_TOYS[row].files:
        if name.startswith("callsmith."):
            assert f"entry point in `{name}`" in text
        elif name.startswith("config/"):
            assert f"config folder, `{name.split('/')[1]}/`" in text


def test_the_contracts_that_the_page_names_are_there():
    for name in re.findall(r"`(tests/[\w/.]+)`", OUTSIDE + INSIDE):
        assert (ROOT / name).exists(), name
