"""kill -9 of a server while a job runs: what may be repeated is started anew, what may not is interrupted and runs once."""

import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callsmith.runtime.jobs.background import JOB_ID
from tests.serving import killed_program

pytestmark = pytest.mark.processes

PROGRAM = '''
import asyncio, sys
from pathlib import Path

import uvicorn

from callsmith.server.store import leases
leases.LEASE_SECONDS = 0.9

from callsmith.core.events import CallReady, Stopped, Text
from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.server.settings import Llm, Settings
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool

folder, hangs, acts = Path(sys.argv[1]), sys.argv[2] == "hang", sys.argv[3] == "acts"


@tool(background=True, side_effects=acts)
async def draw(what: str) -> str:
    """Draws a picture."""
    with (folder / "begun").open("a") as file:
        file.write(f"{what}\\n")
    if hangs:
        await asyncio.sleep(60)
    return f"{what}.png"


class Painter:
    """Draws when it is asked to, and says what it was told last."""

    async def stream(self, request):
        last = request.messages[-1]
        if last.content == "Draw.":
            yield CallReady(0, Call("draw", {"what": "a cat"}, "c1"))
            yield Stopped("calls")
        else:
            yield Text(f"Told: {last.content}")
            yield Stopped("stop")


settings = Settings(llm=Llm(tools_require_confirmation_for_side_effects=False))
store = SqliteStore(str(folder / "store.db"))
app = create_app({"m": Painter()}, tools=Functions(draw), store=store, settings=settings)
uvicorn.run(app, port=PORT, log_level="critical")
'''


def ask(url: str, text: str) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "session_id": "talk"}
    answer = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=30)
    return answer.json()["choices"][0]["message"]["content"]


def ended(url: str, id: str) -> Any:
    until = time.monotonic() + 30
    while (job := httpx2.get(f"{url}/v1/jobs/{id}").json())["status"] == "running":
        assert time.monotonic() < until, "the job does not end"
        time.sleep(0.1)
    return job


@pytest.mark.req("R217")
@pytest.mark.parametrize(("acts", "status", "runs"), [("", "done", 2), ("acts", "interrupted", 1)])
def test_a_job_survives_kill_9_and_what_acts_is_not_done_twice(acts: str, status: str, runs: int, tmp_path: Path):
    with killed_program(PROGRAM, str(tmp_path), "hang", acts) as url:
        (id,) = set(JOB_ID.findall(ask(url, "Draw.")))
        assert httpx2.get(f"{url}/v1/jobs/{id}").json()["status"] == "running"
    assert (tmp_path / "begun").read_text() == "a cat\n"
    with killed_program(PROGRAM, str(tmp_path), "", acts) as url:
        assert ended(url, id)["status"] == status
        answer = ask(url, "Well?")
    assert (tmp_path / "begun").read_text() == "a cat\n" * runs
    assert answer.startswith("Told: a cat.png" if runs == 2 else "Told: interrupted: the program was stopped while")
    with killed_program(PROGRAM, str(tmp_path), "", acts) as url:  # and stays ended
        assert ended(url, id)["status"] == status
        assert ask(url, "Again?") == "Told: Again?"
    assert (tmp_path / "begun").read_text() == "a cat\n" * runs
