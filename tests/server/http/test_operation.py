"""Running a server: request ids, logs, limits, origins, and what watchers are told."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from callsmith.core.errors import QueueFull
from callsmith.core.events import Stopped, Text
from callsmith.core.ports import Context, ModelInfo
from callsmith.core.values import Call, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.http.logs import LineFormatter
from callsmith.server.http.request_context import ACCESS
from callsmith.server.http.shutdown import GracefulShutdown
from callsmith.server.settings import Key, Log, Settings
from callsmith.tools.functions import Functions
from callsmith.wire.sse import FrameReader
from tests.fakes import FakeModel
from tests.server.asking import HI, calls, client, http, says
from tests.waiting import until

ASK = {"model": "m", "messages": [{"role": "user", "content": "my secret"}]}


class Kept(logging.Handler):
    """Keeps the lines that are logged."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self.setFormatter(LineFormatter(as_json=as_json))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(params=[True, False], ids=["json", "text"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    handler = Kept(as_json=request.param)
    root, level = logging.getLogger(), ACCESS.level
    root.addHandler(handler)
    ACCESS.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    ACCESS.setLevel(level)


async def clock() -> str:
    return "noon"


# Ids


@pytest.mark.parametrize(("sent", "kept_as_sent"), [("abc-1", True), ("", False), ("x" * 200, False), ("a b\tc", False)])
async def test_every_response_bears_the_id_of_its_request(sent: str, kept_as_sent: bool):
    async with http(create_app({"m": FakeModel(says("a"))})) as asking:
        answers = [
            await asking.post("/v1/chat/completions", json=ASK, headers={"x-request-id": sent}),
            await asking.post("/v1/chat/completions", json={**ASK, "stream": True}, headers={"x-request-id": sent}),
            await asking.get("/nowhere", headers={"x-request-id": sent}),
        ]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert [request_id == sent for request_id in ids] == [kept_as_sent] * 3
    assert answers[2].json()["request_id"] == ids[2]


async def test_a_failure_nobody_foresaw_is_found_in_the_log_by_its_id(kept: Kept):
    async with http(create_app({"m": FakeModel([ZeroDivisionError("oh")])})) as asking:
        answer = await asking.post("/v1/chat/completions", json=ASK, headers={"x-request-id": "r-7"})
    assert answer.status_code == 500
    assert (answer.headers["x-request-id"], answer.json()["request_id"]) == ("r-7", "r-7")
    (line,) = [line for line in kept.lines if "a request failed" in line]
    assert "ZeroDivisionError" in line
    assert "r-7" in line


# Logs


@pytest.mark.parametrize("stream", [False, True])
async def test_the_access_log_tells_what_a_request_cost_and_nothing_that_was_said(kept: Kept, stream: bool):
    settings = Settings(log=Log(access=True), keys={"alice": Key(hash_key("k"))})
    model = FakeModel(calls(Call("clock", {}, "c1")), says("my answer"))
    async with http(create_app({"m": model}, tools=Functions(clock), settings=settings)) as asking:
        await asking.post("/v1/chat/completions", json={**ASK, "stream": stream}, headers={"x-api-key": "k"})
    (line,) = [line for line in kept.lines if "callsmith.access" in line]
    assert "secret" not in line
    assert "my answer" not in line
    if line.startswith("{"):
        entry = json.loads(line)
        assert (entry["status"], entry["path"], entry["subject"], entry["model"]) == (200, "/v1/chat/completions", "alice", "m")
        assert (entry["prompt_tokens"], entry["completion_tokens"], entry["calls"]) == (14, 6, 1)
        assert 0 <= entry["seconds"] < 60
        assert entry["request_id"].startswith("req_")
    else:
        assert "status=200" in line
        assert "prompt_tokens=14" in line


async def test_there_is_no_access_log_unless_it_is_wanted(kept: Kept):
    async with http(create_app({"m": FakeModel(says("a"))})) as asking:
        await asking.post("/v1/chat/completions", json=ASK)
    assert kept.lines == []


async def test_nobody_can_write_a_line_of_their_own_into_the_log(kept: Kept):
    async with http(create_app({"m": FakeModel(says("a"))}, settings=Settings(log=Log(access=True)))) as asking:
        await asking.get("/x%0a2026 INFO forged status=200")
    (line,) = kept.lines
    assert "\n" not in line
    assert "\\n2026 INFO forged" in line


# Limits


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_when_the_queue_is_full_the_client_is_told_to_come_back(path: str):
    model = FakeModel([Text("a"), 0.3, Stopped("stop")])
    body = {**ASK, "max_tokens": 5}
    async with http(create_app({"m": model}, settings=Settings(queue=1))) as asking:
        first = asyncio.create_task(asking.post(path, json=body))
        await until(lambda: model.open == 1)
        second = await asking.post(path, json={**body, "stream": True})
        assert (await first).status_code == 200
        third = await asking.post(path, json=body)
    assert second.status_code == 429
    assert int(second.headers["retry-after"]) >= 1
    assert second.json()["error"]["type"] == "rate_limit_error"
    assert third.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_when_the_model_has_no_room_for_more_the_client_is_told_when_to_come_back(stream: bool):
    model = LocalModel(Scripted([QueueFull(8, 2.5)]), format_named("hermes"), Template(CHATML))
    async with http(create_app({"m": model})) as asking:
        refused = await asking.post("/v1/chat/completions", json={**ASK, "stream": stream})
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "3"


@pytest.mark.parametrize("tools", [None, Functions(clock)])
async def test_an_answer_that_takes_too_long_is_given_up(tools: Functions | None):
    model = FakeModel([30.0, Text("a"), Stopped("stop")])
    asking = client(model, tools=tools, settings=Settings(request_seconds=0.1)).chat.completions
    for stream in (False, True):
        with pytest.raises(openai.APIStatusError, match=r"within 0\.1 s") as caught:
            await asking.create(model="m", messages=HI, stream=stream)
        assert caught.value.status_code == 504
        assert model.open == 0


async def test_a_stream_that_takes_too_long_ends_with_an_error():
    model = FakeModel([Text("a"), 30.0, Stopped("stop")])
    app = create_app({"m": model}, settings=Settings(request_seconds=0.1))
    async with http(app) as asking:
        answer = await asking.post("/v1/chat/completions", json={**ASK, "stream": True})
    *_, last = FrameReader().feed(answer.content)
    assert json.loads(last.data)["error"]["code"] == "timeout"


# Origins


async def test_web_pages_from_elsewhere_may_ask_only_if_the_operator_says_so():
    page = {"origin": "https://chat.example"}
    before = {**page, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    open_to = Settings(cors_origins=("https://chat.example",), keys={"a": Key(hash_key("k"))})
    async with http(create_app({"m": FakeModel(says("a"))})) as asking:
        closed = await asking.post("/v1/chat/completions", json=ASK, headers=page)
    async with http(create_app({"m": FakeModel(says("a"))}, settings=open_to)) as asking:
        preflight = await asking.options("/v1/chat/completions", headers=before)
        refused = await asking.post("/v1/chat/completions", json=ASK, headers=page)
        other = await asking.options("/v1/chat/completions", headers={**before, "origin": "https://evil.example"})
    assert "access-control-allow-origin" not in closed.headers
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://chat.example"
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://chat.example"  # so that the page can read why
    assert "access-control-allow-origin" not in other.headers


# Watchers


class Loading(FakeModel):
    """A model that is not there yet."""

    info = ModelInfo(ready=False)


class Broken:
    """A source of tools that has gone."""

    async def tools(self) -> list[Tool]:
        raise ConnectionError("gone")

    async def call(self, call: Call, context: Context) -> Any:
        raise AssertionError


async def test_a_server_is_ready_when_its_models_are():
    model = Loading(says("a"))
    async with http(create_app({"m": model})) as asking:
        early, health = await asking.get("/ready"), await asking.get("/health")
        model.info = ModelInfo()
        late = await asking.get("/ready")
    assert (early.status_code, early.json()["why"]) == (503, "loading: m")
    assert (health.status_code, health.json()["status"], health.json()["models"]) == (200, "starting", {"m": "loading"})
    assert late.status_code == 200


async def test_a_server_that_leaves_is_not_ready_but_still_answers():
    app: Any = GracefulShutdown(create_app({"m": FakeModel(says("a"))}))
    async with http(app) as asking:
        assert (await asking.get("/ready")).status_code == 200
        app.drain()
        assert (await asking.get("/ready")).status_code == 503
        assert (await asking.post("/v1/chat/completions", json=ASK)).status_code == 200


async def test_health_tells_of_tools_that_cannot_be_reached():
    async with http(create_app({"m": FakeModel(says("a"))}, tools=Broken())) as asking:
        health = (await asking.get("/health")).json()
    assert (health["status"], health["tools"]) == ("degraded", {"error": "ConnectionError"})
    async with http(create_app({"m": FakeModel(says("a"))}, tools=Functions(clock))) as asking:
        assert list((await asking.get("/health")).json()["tools"].values()) == [1]


async def test_metrics_are_served():
    async with http(create_app({"m": FakeModel(says("a"))})) as asking:
        await asking.post("/v1/chat/completions", json=ASK)
        metrics = await asking.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'callsmith_turns_total{model="m",reason="stop"} 1.0' in metrics.text
