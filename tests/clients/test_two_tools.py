"""The same task of two tools on the default model, finished by an agent of each framework: by adapter, or by the server's URL."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("langchain", reason="langchain is not installed: make test-clients installs it")

from callsmith import Functions, Model
from callsmith.models.opening import Options, open_local
from callsmith.models.weights.fetch import fetch
from callsmith.server.app import create_app
from tests.adapters.two_tools import TASK, House
from tests.serving import served_apart
from tests.small import THREADS

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.weights]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    name = "qwen2.5-coder-1.5b"
    fetch(name)
    opened = open_local(name, Options(context=4096, threads=THREADS))
    yield opened
    asyncio.run(opened.close())


@pytest.fixture(scope="module")
def url(model: Model) -> Iterator[str]:
    with served_apart(create_app({"m": model})) as address:
        yield f"{address}/v1"


@pytest.fixture
def house() -> House:
    return House()


def test_langchain(model: Model, house: House) -> None:
    from langchain.agents import create_agent

    from callsmith.adapters.langchain import ChatCallsmith, to_langchain

    tools = to_langchain(Functions(house.find_room, house.read_thermometer))
    agent = create_agent(ChatCallsmith(model=model, temperature=0, max_tokens=200), tools)
    state = agent.invoke({"messages": [("user", TASK)]}, {"recursion_limit": 16})
    assert house.is_done(state["messages"][-1].text), (house.asked, state["messages"][-1])


async def test_llamaindex(model: Model, house: House) -> None:
    from llama_index.core.agent.workflow import FunctionAgent

    from callsmith.adapters.llamaindex import CallsmithLLM, to_llamaindex

    toolset = Functions(house.find_room, house.read_thermometer)
    llm = CallsmithLLM(model=model, temperature=0, max_tokens=200)
    agent = FunctionAgent(tools=to_llamaindex(toolset, await toolset.tools()), llm=llm)
    answer = await agent.run(TASK, max_iterations=8)
    assert house.is_done(answer), (house.asked, answer)


async def test_openai_agents(url: str, house: House) -> None:
    from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, function_tool

    agent = Agent(
        name="helper",
        instructions="Help.",
        tools=[function_tool(house.find_room), function_tool(house.read_thermometer)],
        model_settings=ModelSettings(temperature=0, max_tokens=200),
    )
    provider = OpenAIProvider(base_url=url, api_key="none")
    run = await Runner.run(
        agent, TASK, run_config=RunConfig(model="m", model_provider=provider, tracing_disabled=True), max_turns=8
    )
    assert house.is_done(run.final_output), (house.asked, run.final_output)


async def test_pydantic_ai(url: str, house: House) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="none"))
    agent = Agent(model, tools=[house.find_room, house.read_thermometer])
    run = await agent.run(TASK, model_settings={"temperature": 0, "max_tokens": 200})
    assert house.is_done(run.output), (house.asked, run.output)


def test_smolagents(url: str, house: House) -> None:
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    model = OpenAIModel("m", api_base=url, api_key="none", temperature=0, max_tokens=200)
    tools: list[Any] = [tool(house.find_room), tool(house.read_thermometer)]
    answer = ToolCallingAgent(tools, model, max_steps=8, verbosity_level=0).run(TASK)
    assert house.is_done(answer), (house.asked, answer)
