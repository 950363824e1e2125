"""Coding agents run without a screen against the server: they read a file through their own tool and say what the model says.

Each has only our address, an empty home and an empty folder with one file. Skipped where it is not installed:
`npm install -g @openai/codex @anthropic-ai/claude-code`.
"""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Iterator
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

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        self.prompts.append(prompt.text)
        async with aclosing(Scripted([self._reply(prompt.text)], chunk=5).generate(prompt, sampling, grammar)) as pieces:
            async for piece in pieces:
                yield piece

    def _reply(self, prompt: str) -> str:
        if WORD in prompt:
            return FINAL
        offered = [call for call in self._calls if f"\n- {call[0]}: " in prompt]
        return calling(offered[0]) if offered else "{}"  # … and what else it asks the model, on the side


class Edits(Reads):
    """Makes its call once; says the final word when its result has come. The grammars that it was given are remembered."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        super().__init__(*calls)
        self.grammars: list[str] = []

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        self.grammars += [to_lark(grammar)] if isinstance(grammar, Grammar) else []
        async with aclosing(super().generate(prompt, sampling, grammar)) as pieces:
            async for piece in pieces:
                yield piece

    def _reply(self, prompt: str) -> str:
        return FINAL if "Success" in prompt else super()._reply(prompt)


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
    (work / "note.txt").write_text(f"The word is {WORD}.\n")
    return work


def ran(command: list[str], folder: Path, **settings: str) -> str:
    """What the agent prints. Of our environment it gets nothing but the path."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder.parent / "home"), "TERM": "dumb", **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def test_claude_code_reads_a_file_and_answers(folder: Path) -> None:
    engine = Reads(("Read", {"file_path": str(folder / "note.txt")}))
    with serving(engine) as url:
        printed = ran(
            ["claude", "-p", "What is in note.txt?", "--model", "m", "--allowedTools", "Read", "--output-format", "json"],
            folder,
            ANTHROPIC_BASE_URL=url,
            ANTHROPIC_API_KEY="none",
            ANTHROPIC_DEFAULT_HAIKU_MODEL="m",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        )
    answer = json.loads(printed)
    assert not answer["is_error"], answer
    assert answer["result"] == FINAL
    assert answer["num_turns"] == 2


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
    engine = Edits(("apply_patch", {"input": patch}))
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
    (grammar,) = {grammar for grammar in engine.grammars if "Begin Patch" in grammar}  # Codex's own, by which it was held
    assert "Begin Patch" in grammar


def test_claude_code_finds_the_alias_that_has_claude_in_its_name_and_uses_its_own_names(folder: Path) -> None:
    with serving(Scripted(["Hello."], repeat=True), **{"claude-*": "m", "my-claude": "m", "other": "m"}) as url:
        printed = ran(
            ["claude", "-p", "Hello", "--model", "claude-sonnet-5"],
            folder,
            ANTHROPIC_BASE_URL=url,
            ANTHROPIC_AUTH_TOKEN="none",
            CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY="1",
        )
    assert printed.strip() == "Hello."
    cached = json.loads((folder.parent / "home/.claude/cache/gateway-models.json").read_text("utf-8"))
    assert cached["models"] == [{"id": "my-claude", "display_name": "my-claude (m)"}]


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
