"""A crew of CrewAI on a model in this process, with tools of ours.

pip install 'callsmith[crewai,llama]'        (in an environment of its own)
python examples/adapters/crewai_crew.py [MODEL]
"""

import sys

from crewai import Agent, Crew, Task

from callsmith import Functions
from callsmith.adapters.crewai import CallsmithLLM, to_crewai


def get_weather(city: str) -> dict[str, str]:
    """The weather in a city."""
    return {"city": city, "sky": "snow"}


def main(model: str = "qwen2.5-coder-1.5b") -> None:
    agent = Agent(
        role="Weather reporter",
        goal="Tell people what the weather is like.",
        backstory="You look at the weather before you talk about it.",
        llm=CallsmithLLM(model, temperature=0),
        tools=to_crewai(Functions(get_weather)),
    )
    task = Task(description="How is the weather in Bonn?", expected_output="One sentence.", agent=agent)
    print(Crew(agents=[agent], tasks=[task]).kickoff().raw)


if __name__ == "__main__":
    main(*sys.argv[1:])
