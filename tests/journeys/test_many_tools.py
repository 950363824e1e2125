"""Three hundred tools and a real model: the prompt stays small, and the tool that is needed is found and called."""

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.closing import closing
from callsmith.core.events import Stopped, ToolFinished
from callsmith.core.values import Choice, ChoicePolicy, Message, Request, Sampling
from callsmith.models.local import LocalModel
from callsmith.runtime.discovery import FIND_TOOLS, ToolCosts, limit_shown_tools
from callsmith.runtime.loop import run
from tests.fakes import Handlers, hello
from tests.runtime.many import MANY
from tests.small import open_small

pytestmark = [pytest.mark.slow, pytest.mark.weights]

QUESTION = (Message.user("What is the weather in Bonn?"),)


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    opened = open_small(context=8192)
    yield opened
    asyncio.run(opened.close())


@pytest.mark.parametrize(
    ("choice", "policy"),
    [(Choice("required"), None), (Choice(), "required_first_hop")],
    ids=["required", "required on the first hop"],
)
async def test_the_prompt_is_small_and_the_tool_is_found(model: LocalModel, choice: Choice, policy: ChoicePolicy | None):
    toolset = Handlers(*MANY, **{tool.name: hello for tool in MANY})
    narrow, lazy = await limit_shown_tools(model, toolset, ToolCosts())
    request = Request(QUESTION, choice=choice, sampling=Sampling(temperature=0.0, seed=1, max_tokens=60), policy=policy)
    prompts, called = list[int](), list[str]()
    async with closing(run(narrow, lazy, request)) as events:
        async for event in events:
            if isinstance(event, Stopped):
                prompts.append(event.usage.prompt)
            if isinstance(event, ToolFinished):
                called.append(event.result.name)
                assert event.result.ok, event.result.text
    whole = await model.count(Request(QUESTION, MANY))
    print(f"{whole} tokens with all tools; {prompts} with those found; called: {called}")
    assert whole > 25_000  # more than the context holds
    assert max(prompts) < 1_000
    assert called == [FIND_TOOLS, "current_weather"]
