"""Files that are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from callsmith.files import write_file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("content", ["half a pair: é\n", b"\x00\xff"])
def test_a_file_is_written_replaced_and_nothing_else_is_left(tmp_path: Path, content: str | bytes):
    path = tmp_path / "a.json"
    path.write_text("old")
    assert write_file(path, content) == path
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_may_read_a_private_file(tmp_path: Path):
    before = os.umask(0o022)
    try:
        assert mode(write_file(tmp_path / "private", "x", is_private=True)) == 0o600
        assert mode(write_file(tmp_path / "public", "x")) == 0o644
    finally:
        os.umask(before)


def test_a_file_that_is_there_already_is_kept_where_that_is_wanted(tmp_path: Path):
    path = tmp_path / "key"
    write_file(path, "first", keeps_existing=True)
    write_file(path, "second", keeps_existing=True)
    assert path.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError("the disk is full")

    path = tmp_path / "a"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        write_file(path, "new")
    assert path.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["a"]
