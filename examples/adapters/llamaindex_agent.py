"""A LlamaIndex agent on a model in this process, with tools of ours.

pip install 'callsmith[llamaindex,llama]'
python examples/adapters/llamaindex_agent.py [MODEL]
"""

import asyncio
import sys

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult

from callsmith import Functions
from callsmith.adapters.llamaindex import CallsmithLLM, to_llamaindex


def get_weather(city: str) -> dict[str, str]:
    """The weather in a city."""
    return {"city": city, "sky": "snow"}


async def main(model: str = "qwen2.5-coder-1.5b") -> None:
    toolset = Functions(get_weather)
    tools = to_llamaindex(toolset, await toolset.tools())
    agent = FunctionAgent(tools=tools, llm=CallsmithLLM(model=model, temperature=0))
    running = agent.run("How is the weather in Bonn?")
    async for event in running.stream_events():
        if isinstance(event, ToolCallResult):
            print(event.tool_name, event.tool_kwargs, "→", event.tool_output.content)
    print(await running)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
