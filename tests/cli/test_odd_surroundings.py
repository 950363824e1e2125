"""The command line in odd surroundings: full disks, no home, other encodings, editors that are given up, questions cut short."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from callsmith.cli.main import app
from callsmith.cli.terminal import approvals
from callsmith.cli.terminal.approvals import Approver
from callsmith.core.errors import UsageError
from callsmith.models.opening import Options, open_model
from callsmith.server.settings_sources import read_settings_file
from callsmith.tools.mcp.config import load_servers
from callsmith.tools.mcp.elicitation import ElicitationRequest


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **more.pop("env", {})}
    command = [sys.executable, "-m", "callsmith", *arguments]
    return subprocess.run(command, env=environment, stderr=subprocess.PIPE, timeout=60, check=False, **more)


def test_a_question_of_a_server_ends_when_the_turn_is_interrupted(monkeypatch: pytest.MonkeyPatch):
    pty = pytest.importorskip("pty")
    ours, terminal = pty.openpty()
    with os.fdopen(terminal) as keyboard:
        monkeypatch.setattr(sys, "stdin", keyboard)
        approver = Approver(Console())
        schema = {"properties": {"when": {"type": "string"}}}

        async def interrupted() -> None:
            asking = asyncio.create_task(approver.answer(ElicitationRequest("e", "When?", schema)))
            await asyncio.sleep(0.5)
            asking.cancel()
            await asyncio.wait([asking])

        began = time.monotonic()
        os.set_blocking(ours, False)
        timer = Timer(5, lambda: os.write(ours, b"\n\n\n"))  # without the fix the thread reads until somebody types
        timer.start()
        asyncio.run(interrupted())
        timer.cancel()
        assert time.monotonic() - began < 4


def test_an_editor_that_was_given_up_approves_nothing():
    with pytest.raises(OSError, match="exit code"):
        approvals._open_editor("false", "{}")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_told_in_a_sentence():
    with Path("/dev/full").open("wb") as full:
        done = run("formats", stdout=full)
    assert (done.returncode, done.stderr) == (1, b"error: [Errno 28] No space left on device\n")


def test_letters_that_the_output_has_not_do_not_end_the_answer():
    pipes: Any = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    done = run("chat", "-m", "scripted:a → b", "hi", env={"PYTHONIOENCODING": "cp1252"}, **pipes)
    assert done.returncode == 0 and b"a \\u2192 b" in done.stdout


def test_a_pipe_that_is_no_text_is_told_in_a_sentence():
    done = run("chat", "-m", "scripted:hi", env={"PYTHONIOENCODING": "utf-8:strict"}, input=b"a\n\xff\n", stdout=subprocess.PIPE)
    assert done.returncode == 2 and done.stderr.startswith(b"error: what comes from standard input is no text")


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path):
    (settings := tmp_path / "s.toml").write_bytes(b"\xef\xbb\xbf[server]\r\nport = 9000\r\n")
    assert read_settings_file(settings).values == {"server.port": 9000}
    (mcp := tmp_path / "mcp.json").write_bytes(b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "x"}}}')
    assert [server.name for server in load_servers(mcp, {})] == ["a"]


def test_without_a_home_folder_it_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory.")))
    for name in ("CALLSMITH_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(app, ["serve", "--print-config"])
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)


def test_a_template_that_is_no_text_is_told_in_a_sentence(tmp_path: Path):
    (template := tmp_path / "t.jinja").write_bytes(b"{{ messages }} \xff")
    with pytest.raises(UsageError):
        open_model("scripted:hi", Options(template=template))
