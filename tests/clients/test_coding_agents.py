"""Coding agents run without a screen against the server: they read, search and change files and run commands by their own tools.

Each has only our address, an empty home and an empty folder with one file. Skipped where it is not installed:
`npm install -g @openai/codex @anthropic-ai/claude-code opencode-ai`.
Beside an old Node, npm takes an old Claude Code unless its version is named.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.values import Sampling
from callsmith.engines.port import Finished, Piece
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.targets.lark import to_lark
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from tests.clients.conftest import calling
from tests.serving import served_apart

pytestmark = pytest.mark.clients

WORD, NEW = "zephyr-417", "mistral-235"
FINAL = "The note has been read."


class Reads(Scripted):
    """Makes the first of these calls whose tool is offered; says the final word once the prompt holds what is in the file."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        super().__init__([], chunk=5)
        self._calls = calls
        self.prompts: list[str] = []
        self.grammars: list[Grammar] = []

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        self.prompts.append(prompt.text)
        self.grammars += [grammar] if isinstance(grammar, Grammar) else []
        async with aclosing(Scripted([self._reply(prompt.text)], chunk=5).generate(prompt, sampling, grammar)) as pieces:
            async for piece in pieces:
                yield piece

    def _reply(self, prompt: str) -> str:
        if WORD in prompt:
            return FINAL
        offered = [call for call in self._calls if f"\n- {call[0]}: " in prompt]
        return calling(offered[0]) if offered else "{}"  # … and what else it asks the model, on the side


class Works(Reads):
    """Makes one call of each step in turn, when the results of the steps before are in the prompt; then says the final word."""

    def __init__(self, *steps: Sequence[tuple[str, dict[str, Any]]]) -> None:
        super().__init__()
        self._steps = steps

    def _reply(self, prompt: str) -> str:
        done = prompt.count("<tool_response>")
        if done == len(self._steps):
            return FINAL
        offered = [call for call in self._steps[done] if f"\n- {call[0]}: " in prompt]
        return calling(offered[0]) if offered else "{}"


@contextmanager
def serving(engine: Scripted, **aliases: str) -> Iterator[str]:
    model = LocalModel(engine, format_named("hermes"), Template(CHATML))
    with served_apart(create_app({"m": model}, settings=Settings(aliases=aliases))) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "temporary").mkdir()
    (work / "note.txt").write_text(f"The word is {WORD}.\n")
    return work


def ran(command: list[str], folder: Path, **settings: str) -> str:
    """What the agent prints. Of our environment it gets nothing but the path."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    # Where bubblewrap is installed, Codex runs nothing in its sandbox while its home is in the folder for temporary files.
    home, temporary = (str(folder.parent / name) for name in ("home", "temporary"))
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": temporary, "TERM": "dumb", **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def has_worked(folder: Path, engine: Works) -> None:
    """The file is changed, the command has run, and the model was shown what both search and command have printed."""
    assert (folder / "note.txt").read_text() == f"The word is {NEW}.\n"
    assert (folder / "lines.txt").read_text().strip() == "1"
    found, *_, printed = re.findall(r"<tool_response>(.*?)</tool_response>", engine.prompts[-1], re.DOTALL)
    assert "note.txt" in found
    assert f"The word is {WORD}." in found
    assert f"The word is {NEW}." in printed


def claude_code(engine: Scripted, folder: Path, prompt: str, tools: str) -> dict[str, Any]:
    """What Claude Code comes to with this prompt, where it may use these tools."""
    with serving(engine) as url:
        printed = ran(
            ["claude", "-p", prompt, "--model", "m", "--allowedTools", tools, "--output-format", "json"],
            folder,
            ANTHROPIC_BASE_URL=url,
            ANTHROPIC_API_KEY="none",
            ANTHROPIC_DEFAULT_HAIKU_MODEL="m",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        )
    answer = json.loads(printed)
    assert not answer["is_error"], answer
    assert answer["result"] == FINAL
    return answer


def test_claude_code_reads_a_file_and_answers(folder: Path) -> None:
    engine = Reads(("Read", {"file_path": str(folder / "note.txt")}))
    answer = claude_code(engine, folder, "What is in note.txt?", "Read")
    assert answer["num_turns"] == 2


def test_claude_code_searches_edits_writes_and_runs_a_command(folder: Path) -> None:
    note, script = folder / "note.txt", folder / "count.sh"
    engine = Works(
        [("Grep", {"pattern": "zephyr", "path": str(folder), "output_mode": "content"})],
        [("Read", {"file_path": str(note)})],
        [("Edit", {"file_path": str(note), "old_string": WORD, "new_string": NEW})],
        [("Write", {"file_path": str(script), "content": "wc -l < note.txt > lines.txt\ncat note.txt\n"})],
        [("Bash", {"command": "sh count.sh", "description": "Count the lines"})],
    )
    answer = claude_code(engine, folder, "Change the word.", "Grep,Read,Edit,Write,Bash")
    assert answer["num_turns"] == 6
    has_worked(folder, engine)


def test_codex_searches_edits_and_runs_commands_in_its_shell(folder: Path) -> None:
    commands = ["grep -rn zephyr .", f"sed -i s/{WORD}/{NEW}/ note.txt", "wc -l < note.txt > lines.txt; cat note.txt"]
    engine = Works(
        *(
            [("exec_command", {"cmd": line}), ("shell_command", {"command": line}), ("shell", {"command": ["sh", "-c", line]})]
            for line in commands
        )
    )
    with serving(engine) as url:
        provider = f'{{name = "here", base_url = "{url}/v1", wire_api = "responses"}}'
        printed = ran(
            [
                *("codex", "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", "-m", "m"),
                *("-c", f"model_providers.here={provider}", "-c", 'model_provider="here"', "Change the word."),
            ],
            folder,
        )
    assert FINAL in printed
    has_worked(folder, engine)


def test_opencode_searches_edits_writes_and_runs_a_command(folder: Path) -> None:
    note, script = folder / "note.txt", folder / "count.sh"
    search = ("grep", {"pattern": "zephyr", "path": str(folder)})
    if shutil.which("rg") is None:  # which it would get from the Internet
        search = ("bash", {"command": "grep -rn zephyr .", "description": "Search"})
    engine = Works(
        [search],
        [("read", {"filePath": str(note)})],
        [("edit", {"filePath": str(note), "oldString": WORD, "newString": NEW})],
        [("write", {"filePath": str(script), "content": "wc -l < note.txt > lines.txt\ncat note.txt\n"})],
        [("bash", {"command": "sh count.sh", "description": "Count the lines"})],
    )
    with serving(engine) as url:
        settings = {
            "provider": {
                "callsmith": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"{url}/v1"},
                    "models": {"m": {"name": "m", "tool_call": True}},
                }
            }
        }
        (folder / "opencode.json").write_text(json.dumps(settings))
        printed = ran(["opencode", "run", "--model", "callsmith/m", "Change the word."], folder, OPENCODE_DISABLE_AUTOUPDATE="1")
    assert FINAL in printed
    has_worked(folder, engine)


def test_codex_reads_a_file_and_answers(folder: Path) -> None:
    command = "cat note.txt"
    engine = Reads(
        ("exec_command", {"cmd": command}), ("shell_command", {"command": command}), ("shell", {"command": ["sh", "-c", command]})
    )
    with serving(engine) as url:
        provider = f'{{name = "here", base_url = "{url}/v1", wire_api = "responses"}}'
        printed = ran(
            [
                *("codex", "exec", "--skip-git-repo-check", "--sandbox", "read-only", "-m", "m"),
                *("-c", f"model_providers.here={provider}", "-c", 'model_provider="here"', "What is in note.txt?"),
            ],
            folder,
        )
    assert FINAL in printed
    assert any(f"The word is {WORD}." in prompt for prompt in engine.prompts)


def test_codex_edits_a_file_by_a_patch(folder: Path) -> None:
    patch = f"*** Begin Patch\n*** Update File: note.txt\n@@\n-The word is {WORD}.\n+The word is {NEW}.\n*** End Patch\n"
    engine = Works([("apply_patch", {"input": patch})])
    with serving(engine) as url:
        provider = (
            f'{{name = "here", base_url = "{url}/v1", wire_api = "responses", auth = {{command = "echo", args = ["key"]}}}}'
        )
        printed = ran(
            [
                *("codex", "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", "-m", "m"),
                *("-c", f"model_providers.here={provider}", "-c", 'model_provider="here"', f"Make the word in note.txt {NEW}."),
            ],
            folder,
        )
    assert FINAL in printed
    assert (folder / "note.txt").read_text() == f"The word is {NEW}.\n"
    (grammar,) = {lark for lark in map(to_lark, engine.grammars) if "Begin Patch" in lark}  # Codex's own, by which it was held
    assert "Begin Patch" in grammar


def test_claude_code_finds_the_alias_that_has_claude_in_its_name_and_uses_its_own_names(folder: Path) -> None:
    names = ["my-claude", "claude-mine"]
    with serving(Scripted(["Hello."], repeat=True), **dict.fromkeys(["claude-*", *names, "other"], "m")) as url:
        printed = ran(
            ["claude", "-p", "Hello", "--model", "claude-sonnet-5"],
            folder,
            ANTHROPIC_BASE_URL=url,
            ANTHROPIC_AUTH_TOKEN="none",
            CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY="1",
        )
    assert printed.strip() == "Hello."
    (file,) = (folder.parent / "home").rglob("gateway-models.json")  # its folder is another in other releases
    cached = json.loads(file.read_text("utf-8"))
    release = [int(number) for number in ran(["claude", "--version"], folder).split()[0].split(".")]
    listed = (
        names if release > [2, 1, 197] else names[1:]
    )  # … which npm installs beside an old Node: there it had to begin with it
    assert cached["models"] == [{"id": name, "display_name": f"{name} (m)"} for name in listed]


def test_codex_takes_the_list_of_models_and_its_instructions_from_us(folder: Path) -> None:
    engine = Reads()
    with serving(engine, fast="m") as url:
        provider = (
            f'{{name = "here", base_url = "{url}/v1", wire_api = "responses", auth = {{command = "echo", args = ["key"]}}}}'
        )
        ran(
            [
                *("codex", "exec", "--skip-git-repo-check", "--sandbox", "read-only", "-m", "fast"),
                *("-c", f"model_providers.here={provider}", "-c", 'model_provider="here"', "Hello"),
            ],
            folder,
        )
    cached = json.loads((folder.parent / "home/.codex/models_cache.json").read_text("utf-8"))
    assert [model["slug"] for model in cached["models"]] == ["m", "fast"]
    assert any("You are a coding agent in the user's terminal." in prompt for prompt in engine.prompts)
