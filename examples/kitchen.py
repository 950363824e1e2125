"""A voice assistant's kitchen: a clock, a lamp and an oven, for a small model that is made to call before it talks.

python examples/kitchen.py qwen2.5-coder-1.5b "Make the light blue."
"""

import asyncio
import sys
from datetime import datetime
from typing import Literal

from callsmith import Agent, Functions, open_model, tool

kitchen = {"light": "off", "oven": 20}


@tool
def get_time() -> str:
    """The time of day."""
    return datetime.now().strftime("%H:%M")


@tool
def set_light(colour: Literal["off", "white", "red", "green", "blue"]) -> str:
    """Switch the light to a colour, or off."""
    kitchen["light"] = colour
    return f"the light is {colour}"


@tool
def set_temp(celsius: int) -> str:
    """Heat the oven.

    Args:
        celsius: 50 to 250.
    """
    if not 50 <= celsius <= 250:
        raise ValueError("the oven goes from 50 to 250 degrees")
    kitchen["oven"] = celsius
    return f"the oven is set to {celsius} degrees"


async def main(model: str = "qwen2.5-coder-1.5b", said: str = "Make the light blue.") -> None:
    # A call must come first (the policy), and what small models do wrong after it is caught (the guards).
    cook = Agent(
        "kitchen",
        instructions="Answer in one short sentence.",
        tools=Functions(get_time, set_light, set_temp),
        policy="required_first_hop",
        guards=("small",),
    )
    talk = cook.conversation(open_model(model))
    reply = await talk.send(said)
    for done in (message for message in talk.messages if message.role == "tool"):
        print(f"{done.name}: {done.content}")
    print(reply.text)
    print(kitchen)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
