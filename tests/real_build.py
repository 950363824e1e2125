"""A real build of llama.cpp, installed once for all tests: the one for this machine's processor."""

import os
from pathlib import Path

import pytest

from callsmith.engines.llama_builds.builds import BUILDS, Build, this_machine
from callsmith.models.library_builds import Installer

CPU_BUILD = next((build for build in BUILDS if build.accelerator == "cpu" and not this_machine().obstacle(build)), None)
needs_real_build = pytest.mark.skipif(CPU_BUILD is None, reason="no build of llama.cpp is known for this processor")


def install_once(folder: Path) -> Build:
    """Install it into this cache folder, unless it is there."""
    assert CPU_BUILD is not None
    before = os.environ.get("CALLSMITH_CACHE")
    os.environ["CALLSMITH_CACHE"] = str(folder)
    try:
        Installer().install(CPU_BUILD)
    finally:
        os.environ.pop("CALLSMITH_CACHE")
        if before is not None:
            os.environ["CALLSMITH_CACHE"] = before
    return CPU_BUILD
