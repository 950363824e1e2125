"""Watching a download: what comes and goes in its folder meanwhile disturbs nobody."""

import os
import sys
from pathlib import Path

import pytest

from callsmith.models.weights import disk

COMES_AND_GOES = """
import os, time
with open("arrived", "wb") as file:
    file.write(bytes(1000))
until = time.monotonic() + 1
while time.monotonic() < until:
    for number in range(50):
        os.makedirs(f"{number}/inner")
    for number in range(50):
        os.removedirs(f"{number}/inner")
"""


def test_folders_that_vanish_while_they_are_looked_at_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "LOOK_SECONDS", 0.001)
    seen: list[int] = []
    done = disk.run_watched([sys.executable, "-c", COMES_AND_GOES], tmp_path, os.environ, seen.append)
    assert (done.returncode, done.stderr) == (0, "")
    assert seen[-1] == 1000
