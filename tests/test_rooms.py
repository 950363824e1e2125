"""The bus, the adapters and the evaluations are rooms that can be shut: the package works without their folders.

Each is taken out of a copy of the sources, and so are all of them together; what is left answers, serves and has its commands.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

SOURCES = Path(__file__).parent.parent / "src" / "callsmith"
# The folders and modules of each room, and the commands that go with them.
ROOMS = {
    "bus": (
        "bus", "capabilities", "wire/capability", "wire/schemas/bus.py", "server/parts/bus", "server/routes/bus", "cli/bus",
        "compat/m21.py",
    ),
    "adapters": ("adapters",),
    "evals": ("evals", "cli/evals"),
}  # fmt: skip
COMMANDS = {"bus": {"bus"}, "adapters": set[str](), "evals": {"check", "eval", "tune"}}
# What the centre may not name: `core`, `runtime`, `tools`, `models` and, besides what registers itself, `server` and `cli`.
CENTRE = ("core", "runtime", "tools", "models", "server", "cli")
NAMED = re.compile(r"\b[Bb]us(es)?\b|\bBus[A-Z]\w*|\bbus_\w+|\w+_bus\b|CapabilityBus")

SMOKE = dedent("""
    import asyncio, json, sys
    from pathlib import Path

    import callsmith
    from callsmith import Functions, Message, Request, ToolFinished, TurnEnded, open_model, run, tool
    from callsmith.models.opening import Options
    from callsmith.server.app import create_app
    from starlette.testclient import TestClient
    from typer.testing import CliRunner

    assert callsmith.__file__.startswith(sys.argv[1]), callsmith.__file__
    CALL = '<tool_call>{"name": "add", "arguments": {"a": 19, "b": 23}}</tool_call>'
    replies = Path(sys.argv[1], "replies.jsonl")
    replies.write_text(f"{json.dumps(CALL)}\\n{json.dumps('It is 42.')}\\n", "utf-8")

    @tool
    def add(a: int, b: int) -> int:
        '''Add two numbers.'''
        return a + b

    async def ask() -> list[object]:
        request = Request((Message.user("What is 19 + 23?"),))
        model = open_model(f"scripted:{replies}", Options(format="hermes"))
        return [event async for event in run(model, Functions(add), request)]

    events = asyncio.run(ask())
    results = [str(event.result.content) for event in events if isinstance(event, ToolFinished)]
    assert results == ["42"] and isinstance(events[-1], TurnEnded), events

    question = {"messages": [{"role": "user", "content": "Hi"}]}
    with TestClient(create_app({"m": open_model("scripted:Hello.")}), "http://localhost") as client:
        answer = client.post("/v1/chat/completions", json=question).json()
        assert answer["choices"][0]["message"]["content"] == "Hello.", answer
        assert client.get("/metrics").status_code == 200 and client.get("/openapi.json").status_code == 200

    from callsmith.cli.main import app

    for arguments in (["--help"], ["serve", "--help"], ["serve", "--print-config"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        print(result.output)
    print(*(name for name in sys.modules if name.startswith("callsmith")))
""")


def copy_without(rooms: tuple[str, ...], folder: Path) -> Path:
    """A copy of the sources in which these rooms are not."""
    package = folder / "callsmith"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
    for place in (place for room in rooms for place in ROOMS[room]):
        path = package / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


@pytest.mark.parametrize("rooms", [*((room,) for room in ROOMS), tuple(ROOMS)], ids="+".join)
def test_what_is_left_without_a_room_answers_serves_and_has_its_commands(rooms: tuple[str, ...], tmp_path: Path):
    folder = copy_without(rooms, tmp_path)
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    smoke = [sys.executable, "-c", SMOKE, str(folder)]
    ended = subprocess.run(smoke, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr[-3000:]
    listed = set(re.findall(r"^  ([a-z]+)  ", ended.stdout.split("Commands:")[1].split("\n\n")[0], re.MULTILINE))
    gone = {command for room in rooms for command in COMMANDS[room]}
    assert listed & {"serve", "chat", "bus", "check", "eval", "tune"} == {"serve", "chat", "bus", "check", "eval", "tune"} - gone
    assert ("--bus-members" in ended.stdout) == ("[bus]" in ended.stdout) == ("bus" not in rooms)


def test_a_room_that_something_else_imports_cannot_be_shut(tmp_path: Path):
    folder = copy_without(("evals",), tmp_path)
    with (folder / "callsmith" / "runtime" / "loop.py").open("a") as loop:
        loop.write("\nimport callsmith.evals\n")
    smoke = [sys.executable, "-c", SMOKE, str(folder)]
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    assert "No module named 'callsmith.evals'" in subprocess.run(smoke, env=environment, capture_output=True, text=True).stderr


def test_the_centre_does_not_name_the_bus():
    rooms = {SOURCES / place for place in ROOMS["bus"]}
    paths = [path for part in CENTRE for path in (SOURCES / part).rglob("*.py") if not rooms & {path, *path.parents}]
    lines = [(path, line) for path in paths for line in path.read_text("utf-8").splitlines()]
    assert not [f"{path.relative_to(SOURCES)}: {line.strip()}" for path, line in lines if NAMED.search(line)]
