"""Whether tools are called: the request's bias reaches the model, and the answer says what was decided, in every dialect."""

import json
from typing import Any

import httpx2
import pytest

from callsmith.core.types.model_step import CallDecision, ModelStep
from callsmith.core.values import Request
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions
from tests.fakes import FakeModel, decided
from tests.server.asking import BONN, HI, http, says, weather

FIRST, LATER = CallDecision(True, 1.2999, -1.5), CallDecision(False, -4.0, -1.5)
TOLD = {"calls": True, "score": 1.3, "threshold": -1.5}
BODIES: dict[str, Any] = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"model": "m", "max_tokens": 9, "messages": HI},
    "/api/chat": {"model": "m", "messages": HI},
}


class Deciding(FakeModel):
    """A model that decides to call, and after the result not to; it explains itself."""

    def __init__(self) -> None:
        super().__init__(decided("", FIRST, tool_calls=[BONN]), decided("Sunny.", LATER))

    async def stream(self, request: Request) -> Any:
        decision = FIRST if not self.asked else LATER
        async for event in super().stream(request):
            yield event
        if request.explain:
            request.explain(ModelStep("prompt", decision=decision))


async def answer(path: str, model: FakeModel, tools: Any = None, **more: Any) -> httpx2.Response:
    async with http(create_app({"m": model}, tools=tools or Functions(weather))) as client:
        return await client.post(path, json={**BODIES[path], "stream": False, **more})


def objects(sent: httpx2.Response) -> list[Any]:
    """What a stream consists of, in whatever dialect."""
    lines = [line.removeprefix("data: ") for line in sent.text.splitlines() if line.startswith(("data: ", "{"))]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def reports(sent: list[Any]) -> list[Any]:
    extensions = [event.get("callsmith") or event.get("response", {}).get("callsmith") for event in sent]
    return [extension for extension in extensions if extension]


@pytest.mark.parametrize("path", BODIES)
async def test_a_whole_answer_says_what_was_decided_first(path: str):
    model = Deciding()
    extensions = (await answer(path, model, call_bias=2)).json()["callsmith"]
    assert extensions == {"unenforced": [], "retries": 0, "decision": TOLD}
    assert [request.call_bias for request in model.asked] == [2.0, 2.0]


@pytest.mark.parametrize("path", BODIES)
async def test_a_stream_says_it_at_its_end(path: str):
    [extensions] = reports(objects(await answer(path, Deciding(), stream=True)))
    assert extensions["decision"] == TOLD


@pytest.mark.parametrize("path", BODIES)
async def test_each_step_of_an_explained_answer_has_its_own(path: str):
    extensions = (await answer(path, Deciding(), explain=True)).json()["callsmith"]
    assert extensions["decision"] == TOLD
    assert [step["decision"] for step in extensions["steps"]] == [TOLD, {"calls": False, "score": -4.0, "threshold": -1.5}]


@pytest.mark.parametrize("path", BODIES)
async def test_a_bias_out_of_bounds_is_refused_and_none_is_told_where_none_was_decided(path: str):
    refused = await answer(path, Deciding(), call_bias=21)
    assert refused.status_code == 400 and "call_bias" in refused.text
    assert "callsmith" not in (await answer(path, FakeModel(says("Hello.")))).json()


async def test_turns_and_telemetry_have_it():
    async with http(create_app({"m": Deciding()}, tools=Functions(weather))) as client:
        for _ in range(2):
            await client.post("/v1/chat/completions", json={"messages": HI})
        latest, first = (await client.get("/v1/turns")).json()["data"]
        summed = (await client.get("/v1/telemetry?minutes=2")).json()["minutes"]
        metrics = (await client.get("/metrics")).text
    assert (first["decision"], latest["decision"]) == (TOLD, {"calls": False, "score": -4.0, "threshold": -1.5})
    assert [sum(minute[name] for minute in summed) for name in ("decided", "decided_to_call")] == [2, 1]
    assert 'callsmith_decisions_total{calls="true",model="m"} 1.0' in metrics
