"""The compliance suite of Open Responses against the real application on a real socket.

The suite belongs to its own project and is not part of this one: `CALLSMITH_SUITES` names the folder in which its folder
`openresponses` is. `make test-openresponses` installs what it needs to run.
"""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.events import CallReady, ModelEvent, Stopped, Text
from callsmith.core.values import Call, Request, Usage
from callsmith.server.app import create_app
from tests.serving import served_apart

pytestmark = pytest.mark.openresponses

ROOT = Path(__file__).parents[2]
SUITE = Path(os.environ.get("CALLSMITH_SUITES") or ROOT.parent / "shared" / "suites") / "openresponses"
MODULES = Path(__file__).parent / "openresponses" / "node_modules"
NOT_SUPPORTED = {"image-input"}  # models here read text


class Obliging:
    """A model that calls the first tool it is offered, and otherwise says one sentence."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        if request.tools:
            yield CallReady(0, Call(request.tools[0].name, {"location": "Bonn"}, "call_1"))
        else:
            yield Text("Of course.")
        yield Stopped("calls" if request.tools else "stop", Usage(5, 3))


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A copy of the suite that can be run."""
    if not (SUITE / "bin").is_dir():
        pytest.skip(f"the Open Responses suite is not in {SUITE}: set CALLSMITH_SUITES to the folder that has its folder")
    if not (MODULES / ".bin" / "bun").exists():
        pytest.skip("bun is not installed: make test-openresponses")
    copy = tmp_path / "openresponses"
    shutil.copytree(SUITE, copy, ignore=shutil.ignore_patterns("node_modules"))
    (copy / "node_modules").symlink_to(MODULES)
    return copy


def run_suite(suite: Path) -> list[Any]:
    """What the suite says of each of its cases."""
    with served_apart(create_app({"m": Obliging()})) as url:
        command = [str(MODULES / ".bin" / "bun"), "run", "bin/compliance-test.ts"]
        arguments = ["--base-url", f"{url}/v1", "--api-key", "x", "--model", "m", "--json"]
        done = subprocess.run([*command, *arguments], cwd=suite, capture_output=True, text=True, timeout=600)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["results"]


def test_every_case_but_images_passes(suite: Path):
    results = run_suite(suite)
    assert {
        result["id"]: result["errors"] for result in results if result["status"] != "passed" and result["id"] not in NOT_SUPPORTED
    } == {}
    assert len(results) >= 17
