"""The shell and the editor of examples/sandbox: nothing leads out of their folder, and changes are asked about."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callsmith.cli.inputs.toolsets import load_toolset

SOURCE = Path(__file__).parents[2] / "examples" / "sandbox" / "tools.py"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("SANDBOX", str(tmp_path / "box"))
    spec = importlib.util.spec_from_file_location("sandbox_tools", SOURCE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_are_made_shown_and_changed(tools: Any):
    tools.create("a.txt", "one two")
    assert tools.replace_text("a.txt", "two", "three") == "a.txt is changed"
    assert tools.view("a.txt") == "one three" and tools.view() == "a.txt"
    assert "exit status 0\none three" in tools.bash("cat a.txt")


@pytest.mark.req("R215")
@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "link/../secret", "folder/secret"])
def test_no_path_and_no_link_leads_out_of_the_folder(path: str, tools: Any, tmp_path: Path):
    (tmp_path / "secret").write_text("s")
    (tools.FOLDER / "link").symlink_to(tmp_path / "secret")
    (tools.FOLDER / "folder").symlink_to(tmp_path)
    for use in (tools.view, lambda name: tools.create(name, "x"), lambda name: tools.replace_text(name, "s", "x")):
        with pytest.raises(ValueError, match="outside"):
            use(path)
    assert (tmp_path / "secret").read_text() == "s"


def test_a_file_is_not_overwritten_and_a_passage_must_be_unique(tools: Any):
    tools.create("a.txt", "x x")
    with pytest.raises(FileExistsError):
        tools.create("a.txt", "y")
    with pytest.raises(ValueError, match="2 times"):
        tools.replace_text("a.txt", "x", "y")


def test_commands_do_not_see_the_keys_of_the_environment(tools: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "secret" not in tools.bash("env")


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_where_there_is_bubblewrap_commands_cannot_write_elsewhere(tools: Any, tmp_path: Path):
    tools.bash(f"touch {tmp_path}/escaped {tools.FOLDER}/made")  # there is another /tmp in there
    assert not (tmp_path / "escaped").exists() and (tools.FOLDER / "made").exists()
    assert "Read-only file system" in tools.bash("touch /usr/escaped")


@pytest.mark.req("R215")
async def test_all_but_looking_needs_an_approval(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SANDBOX", str(tmp_path))
    monkeypatch.syspath_prepend(str(SOURCE.parents[2]))
    effects = {tool.name: tool.side_effects for tool in await load_toolset("examples.sandbox.tools").tools()}
    assert effects == {"bash": True, "view": False, "create": True, "replace_text": True}
