"""Several answers to one request, and streams that are merged."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from callsmith.core.errors import ModelError
from callsmith.core.events import ModelEvent, Stopped, Text
from callsmith.core.values import Request
from callsmith.server.app import create_app
from callsmith.server.http.streams import merge_streams
from callsmith.tools.functions import Functions
from tests.fakes import FakeModel
from tests.server.asking import BONN, HI, KOELN, WEATHER, calls, client, http, says, weather


@pytest.mark.parametrize("stream", [False, True])
async def test_each_answer_is_a_choice_of_its_own(stream: bool):
    model = FakeModel(says("one"), says("two", "!"), says("three"))
    completions = client(model).chat.completions
    if stream:
        chunks = [
            chunk
            async for chunk in await completions.create(
                model="m", messages=HI, n=3, seed=5, stream=True, stream_options={"include_usage": True}
            )
        ]
        texts = ["", "", ""]
        for chunk in chunks[:-1]:
            (choice,) = chunk.choices
            texts[choice.index] += choice.delta.content or ""
        assert chunks[-1].choices == []
        assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
        usage, ids = chunks[-1].usage, {chunk.id for chunk in chunks}
        assert len(ids) == 1
    else:
        answer = await completions.create(model="m", messages=HI, n=3, seed=5)
        texts, usage = [choice.message.content or "" for choice in answer.choices], answer.usage
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert texts == ["one", "two!", "three"]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (7, 9)  # one prompt, three answers
    assert [request.sampling.seed for request in model.asked] == [5, 6, 7]


async def test_the_clients_streaming_helper_sees_the_calls_of_every_choice():
    model = FakeModel(calls(BONN), calls(KOELN, BONN))
    async with client(model).chat.completions.stream(model="m", messages=HI, tools=[WEATHER], n=2) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    ids = [[call.id for call in choice.message.tool_calls or ()] for choice in final.choices]
    assert ids == [["c1"], ["c2", "c1"]]
    assert [choice.finish_reason for choice in final.choices] == ["tool_calls", "tool_calls"]


async def test_the_servers_own_tools_are_not_run_several_times():
    model = FakeModel(calls(BONN), says("never"))
    with pytest.raises(openai.BadRequestError) as caught:
        await client(model, tools=Functions(weather)).chat.completions.create(model="m", messages=HI, n=2)
    assert caught.value.param == "n"
    assert model.asked == []


@pytest.mark.parametrize("stream", [False, True])
async def test_one_answer_that_fails_fails_all_and_leaves_nothing_running(stream: bool):
    model = FakeModel([Text("so"), 30.0, Stopped("stop")], [0.05, ModelError("out of memory")])
    body: Any = {"model": "m", "messages": HI, "n": 2, "stream": stream}
    async with http(create_app({"m": model})) as asking:
        answer = await asking.post("/v1/chat/completions", json=body)
    assert "out of memory" in answer.text
    assert answer.status_code == (200 if stream else 500)
    assert model.open == 0


async def test_merged_streams_lose_nothing_keep_their_order_and_run_at_once():
    running: set[int] = set()

    async def counting(number: int) -> AsyncIterator[int]:
        running.add(number)
        for value in range(50):
            await asyncio.sleep(0)
            yield value

    came: list[list[int]] = [[], [], []]
    async for number, value in merge_streams([counting(number) for number in range(3)]):
        came[number].append(value)
        assert value == 0 or running == {0, 1, 2}
    assert came == [list(range(50))] * 3


async def test_leaving_merged_streams_closes_them():
    class Endless:
        open = 0

        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            self.open += 1
            try:
                while True:
                    await asyncio.sleep(0)
                    yield Text("on ")
            finally:
                self.open -= 1

    model = Endless()
    streams = merge_streams([model.stream(Request(())) for _ in range(3)])
    async for _ in streams:
        if model.open == 3:
            break
    await streams.aclose()  # type: ignore[attr-defined]
    assert model.open == 0
