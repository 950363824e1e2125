"""What shells complete."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import callsmith


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> str:
    source = str(Path(callsmith.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, **environment}
    command = [sys.executable, "-m", "callsmith", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=True, cwd=cwd).stdout


def completed(line: str, cwd: Path | None = None) -> list[str]:
    """What bash is offered for the last word of a line."""
    last = str(len(line.split(" ")) - 1)
    return run(cwd=cwd, _CALLSMITH_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=last).split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str):
    script = run("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_CALLSMITH_COMPLETE" in script


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("callsmith cha", "chat"),
        ("callsmith chat --model qwen2.5-coder-1", "qwen2.5-coder-1.5b"),
        ("callsmith models fetch smol", "smollm2-135m"),
        ("callsmith parse --format herm", "hermes"),
        ("callsmith chat --tool-choice current_t", "current_time"),
        ("callsmith serve --tool-choice-policy required_f", "required_first_hop"),
        ("callsmith chat --temp", "--temperature"),
    ],
)
def test_names_are_completed(line: str, offered: str):
    assert offered in completed(line)


def test_files_of_weights_and_modules_of_tools_are_completed(tmp_path: Path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "mine.gguf").touch()
    (tmp_path / "weights" / "notes.txt").touch()
    (tmp_path / "mytools.py").write_text("raise SystemExit('completing runs nothing')")
    assert completed("callsmith serve --model wei", tmp_path) == ["weights/"]
    assert completed("callsmith serve --model weights/", tmp_path) == ["weights/mine.gguf"]
    assert completed("callsmith serve --tools my", tmp_path) == ["mytools"]
