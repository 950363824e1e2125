"""`callsmith check` on servers that never come to an end: what was not asked is said, and nobody is told that all is well."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from typer.testing import CliRunner

pytest.importorskip("aiohttp")

from callsmith.cli.main import app as cli
from tests.serving import served_apart


async def _models(request: Request) -> JSONResponse:
    return JSONResponse({"data": [{"id": "m"}]})


async def _drips(request: Request) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
            await asyncio.sleep(0.2)

    return StreamingResponse(pieces(), media_type="text/event-stream")


def run(endpoint: Any, tmp_path: Path, *options: str) -> tuple[Any, dict[str, Any], str, ElementTree.Element]:
    files = {kind: tmp_path / kind for kind in ("json", "markdown", "junit")}
    arguments = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    routes = [Route("/v1/models", _models), Route("/v1/chat/completions", endpoint, methods=["POST"])]
    with served_apart(Starlette(routes=routes)) as url:
        result = CliRunner().invoke(cli, ["check", f"{url}/v1", "--dialect", "chat", "--timeout", "1", *options, *arguments])
    texts = {kind: path.read_text("utf-8") for kind, path in files.items()}
    return result, json.loads(texts["json"]), texts["markdown"], ElementTree.fromstring(texts["junit"])


def test_a_stream_without_end_is_not_said_to_be_right(tmp_path: Path) -> None:
    result, findings, card, suite = run(_drips, tmp_path)
    assert result.exit_code == 1
    unasked = findings["not_asked"]
    assert findings["counts"] == {"right": 1, "skipped": 3}
    assert len(unasked) > 50 and "chat.calls.read" in unasked
    assert findings["stopped"]
    for report in (result.output, card):
        assert "Nothing is wrong" not in report
        assert f"{len(unasked)} of {len(unasked) + 4} probes were not asked" in report
        assert "calls.read" in report
    cases = {f"{match.get('classname')}.{match.get('name')}": match for match in suite.findall("testcase")}
    assert all(cases[name].find("error") is not None for name in unasked)
    assert (suite.get("tests"), suite.get("errors")) == (
        str(len(unasked) + 4),
        str(len(unasked) + 3),
    )  # a check that was not finished is no success


def test_an_answer_that_did_not_come_in_time_is_not_said_to_be_right(tmp_path: Path) -> None:
    result, findings, card, _ = run(_drips, tmp_path, "--only", "answers.whole", "--only", "answers.stream")
    assert (findings["stopped"], findings["not_asked"], findings["counts"]) == (None, [], {"skipped": 2})
    assert result.exit_code == 1
    for report in (result.output, card):
        assert "Nothing is wrong" not in report
        assert "2 of 2 probes were not answered in time" in report
