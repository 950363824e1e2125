"""Frameworks that need nothing but the address of a server: OpenAI Agents, Pydantic AI, smolagents and LangChain.

callsmith serve
pip install openai-agents 'pydantic-ai-slim[openai]' 'smolagents[openai]' langchain-openai
python examples/adapters/by_base_url.py [URL]
"""

import asyncio
import sys
from typing import Any


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Which city.
    """
    return f"snow in {city}"


QUESTION = "How is the weather in Bonn?"


async def openai_agents(url: str) -> Any:
    from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool

    provider = OpenAIProvider(base_url=url, api_key="none")
    config = RunConfig(model="default", model_provider=provider, tracing_disabled=True)
    agent = Agent(name="reporter", tools=[function_tool(get_weather)])
    return (await Runner.run(agent, QUESTION, run_config=config)).final_output


async def pydantic_ai(url: str) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("default", provider=OpenAIProvider(base_url=url, api_key="none"))
    return (await Agent(model, tools=[get_weather]).run(QUESTION)).output


async def smolagents(url: str) -> Any:
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    model = OpenAIModel("default", api_base=url, api_key="none")
    return await asyncio.to_thread(ToolCallingAgent([tool(get_weather)], model, verbosity_level=0).run, QUESTION)


async def langchain(url: str) -> Any:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    agent = create_agent(ChatOpenAI(model="default", base_url=url, api_key="none"), [get_weather])
    return (await agent.ainvoke({"messages": [("user", QUESTION)]}))["messages"][-1].text


async def main(url: str = "http://127.0.0.1:8000/v1") -> None:
    for ask in (openai_agents, pydantic_ai, smolagents, langchain):
        print(f"{ask.__name__}: {await ask(url)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
