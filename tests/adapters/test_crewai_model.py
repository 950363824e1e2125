"""A crew of CrewAI finishes the task of two tools on the default model."""

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("crewai", reason="crewai is not installed: make test-crewai installs it")

from crewai import Agent, Crew, Task

from callsmith import Functions, Model
from callsmith.adapters.crewai import CallsmithLLM, to_crewai
from callsmith.models.opening import Options, open_local
from callsmith.models.weights.fetch import fetch
from tests.adapters.two_tools import TASK, House
from tests.small import THREADS

pytestmark = [pytest.mark.crewai, pytest.mark.slow, pytest.mark.weights]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    name = "qwen2.5-coder-1.5b"
    fetch(name)
    opened = open_local(name, Options(context=8192, threads=THREADS))
    yield opened
    asyncio.run(opened.close())


def test_crewai(model: Model) -> None:
    house = House()
    agent = Agent(
        role="Caretaker",
        goal="Answer questions about the house with the help of the tools.",
        backstory="You look things up instead of guessing.",
        llm=CallsmithLLM(model, temperature=0, max_tokens=200),
        tools=to_crewai(Functions(house.find_room, house.read_thermometer)),
        max_iter=8,
    )
    task = Task(description=TASK, expected_output="The number of degrees.", agent=agent)
    answer = Crew(agents=[agent], tasks=[task], verbose=False).kickoff().raw
    assert house.is_done(answer), (house.asked, answer)
