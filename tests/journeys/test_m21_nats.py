"""From a question over tools to the answer, over a bus: the model, the village and whoever asks are three processes.

The model is the default one, served by `callsmith serve`; calls are signed, and each node knows the others. What the model must
do first is required of it, so that the tests are about the way of the calls and not about how clever a small model is.
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")
pytest.importorskip("jwt")

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.reach import bound_tool
from callsmith.bus.trust.identity import load_identity
from callsmith.capabilities.builtin_tools import BOUND
from callsmith.capabilities.executor import ToolExecutor
from callsmith.core.approval import Approved, Denied
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.values import Call
from callsmith.models.weights.fetch import fetch
from callsmith.server.parts.bus.node import open_node
from callsmith.server.parts.bus.settings import BusSettings
from callsmith.tools.define import object_, string
from tests.nats_server import running_nats
from tests.waiting import until

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.weights]

POST = bound_tool(
    "market_post", "Post an offer on the marketplace.", object_({"title": string()}), "market.post@1.0", side_effects=True
)
TRANSLATE = BOUND["translate"]


@dataclass
class Village:
    """The nodes that run, and what was posted."""

    settings: BusSettings
    posts: Path

    def posted(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.posts.read_text("utf-8").splitlines()] if self.posts.exists() else []


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Village]:
    fetch("qwen2.5-coder-1.5b")
    folder = tmp_path_factory.mktemp("village")
    documents = folder / "documents"
    documents.mkdir()
    (documents / "hall.md").write_text("# Hall\n\nThe village hall opens at 17:42 on Tuesdays.\n", "utf-8")
    (documents / "pond.md").write_text("# Pond\n\nThe pond is cleaned in spring.\n", "utf-8")
    ids = {name: load_identity(folder / f"{name}.pem").node_id for name in ("model", "village", "caller")}

    def others(name: str) -> str:
        return ",".join(id for other, id in ids.items() if other != name)

    with running_nats() as server:
        identity, posts = str(folder / "village.pem"), folder / "posts"
        village = [sys.executable, "-m", "tests.journeys.village", server.url, identity, others("village"), documents, posts]
        options = ["--bus", server.url, "--bus-identity", folder / "model.pem", "--bus-members", others("model")]
        model = [sys.executable, "-m", "callsmith", "serve", "--port", "0", "--context", "2048", *options]
        processes = [subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) for command in (village, model)]
        try:
            for process in processes:
                assert process.stdout is not None and process.stdout.readline(), "a node has not come up"
            members = tuple(others("caller").split(","))
            yield Village(BusSettings(url=server.url, identity=str(folder / "caller.pem"), members=members), posts)
        finally:
            for process in processes:
                process.kill()
                process.wait(30)


@pytest.fixture
async def bus(village: Village) -> AsyncIterator[CapabilityBus]:
    async with open_node(village.settings).bus as bus:
        await until(lambda: bool(bus.offers("llm.chat") and bus.offers("rag.query")), 60)
        yield bus


def asked(text: str, first: str, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "tool_choice": {"name": first}, "parallel_tool_calls": False}
    return {"params": {}, "input": {**body, "temperature": 0, "max_tokens": 200, **more}}


async def chat(bus: CapabilityBus, tools: list[Any], body: dict[str, Any], **options: Any) -> tuple[str, list[dict[str, Any]]]:
    frames: list[dict[str, Any]] = []

    async def take(frame: dict[str, Any]) -> None:
        frames.append(frame)

    executor = ToolExecutor(bus, tools, max_iterations=3)
    message = await executor.run_chat_with_tools(body, stream_to=take, **options)
    assert [frame["event"] for frame in frames if frame["event"] in ("done", "error")] == ["done"]
    return message["content"], frames


def results(frames: list[dict[str, Any]]) -> list[Any]:
    return [frame["data"]["content"] for frame in frames if frame["event"] == "tool_result" and not frame["data"]["is_error"]]


@pytest.mark.req("R190")
@pytest.mark.req("R216")
@pytest.mark.req("R211")
async def test_search_corpus_tool_used_for_grounded_answer(bus: CapabilityBus) -> None:
    question = "When does the village hall open? Search the corpus 'village'."
    answer, frames = await chat(bus, [BOUND["search_corpus"]], asked(question, "search_corpus"))
    assert "17:42" in json.dumps(results(frames))
    assert "17:42" in answer or "5:42" in answer


@pytest.mark.req("R191")
async def test_translate_chain(bus: CapabilityBus) -> None:
    question = 'Was heißt "Die Brücke ist am Freitag gesperrt." auf Englisch? (from: de, to: en)'
    answer, frames = await chat(bus, [TRANSLATE], asked(question, "translate"))
    assert results(frames)[0]["text"] == "The bridge is closed on Friday."
    assert "bridge" in answer.lower()


@pytest.mark.req("R192")
async def test_market_post_requires_confirmation(bus: CapabilityBus, village: Village) -> None:
    needed: list[ConfirmationNeeded] = []

    async def refuse(question: ConfirmationNeeded) -> Any:
        needed.append(question)
        return Denied("not today")

    await chat(bus, [POST], asked("Offer my bicycle.", "market_post"), decide=refuse)
    assert (len(needed), village.posted()) == (1, [])

    async def agree(question: ConfirmationNeeded) -> Any:
        """Agree once; a small model may want to post again."""
        return Denied("it is posted already") if village.posted() else Approved({"title": "a red bicycle"})

    answer, frames = await chat(bus, [POST], asked("Offer my bicycle.", "market_post"), decide=agree)
    assert village.posted() == [{"title": "a red bicycle", "for": bus.node}]
    assert "offer 7" in str(results(frames))
    assert answer


@pytest.mark.req("R193")
async def test_recursive_tool_call_limited_by_max_iterations(bus: CapabilityBus) -> None:
    """llm.tools.call of the model's node calls itself, over the bus, until it is told that this is deep enough."""
    target: dict[str, Any] = {"target_capability": "rag.list_corpora@1.0", "target_body": {}}
    for _ in range(10):
        target = {"target_capability": "llm.tools.call@1.0", "target_body": {"input": target}}
    executor = ToolExecutor(bus, [bound_tool("call_tool", "", {"type": "object"}, "llm.tools.call@1.0")])
    result = await executor.dispatch(Call("call_tool", target, "c1"))
    assert (result.ok, result.code, "nested" in result.text) == (False, "bad_request", True)
    shallow = {"target_capability": "rag.list_corpora@1.0", "target_body": {}}
    result = await executor.dispatch(Call("call_tool", shallow, "c2"))
    assert result.ok, result.text
    assert [item["name"] for item in result.content["corpora"]] == ["village"]


@pytest.mark.req("R219")
async def test_a_tool_that_runs_at_the_model_runs_for_the_caller(bus: CapabilityBus, village: Village) -> None:
    """The model's node calls the village on behalf of whoever asks it; a person agrees on the way."""
    before = len(village.posted())
    tool = {"name": "market_post", "description": "Post an offer.", "parameters_schema": POST.parameters}
    bound = {**tool, "bound_capability": "market.post@1.0", "side_effects": False}
    body = asked("Offer my bicycle.", "market_post", tools=[bound])
    first = [frame async for frame in bus.stream("llm.chat", (2, 0), body)]
    (question,) = [dict(frame.data) for frame in first if frame.event == "confirmation_required"]  # the village says what it does
    assert (first[-1].data["stop_reason"], len(village.posted())) == ("confirmation_required", before)
    call = {key: question[key] for key in ("id", "name", "arguments")}
    messages = [*body["input"]["messages"], {"role": "assistant", "tool_calls": [call]}]
    fields = {**body["input"], "messages": messages, "tool_choice": "auto", "confirmations": {question["id"]: {"approve": True}}}
    second = [frame async for frame in bus.stream("llm.chat", (2, 0), {"params": {}, "input": fields})]
    assert second[-1].event == "done", second[-1]
    assert [item["for"] for item in village.posted()[before:]] == [bus.node]
