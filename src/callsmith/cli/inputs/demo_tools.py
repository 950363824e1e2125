"""Tools to try things out with: the starter tools, and weather and messages that are made up and say so."""

from typing import Any

from callsmith.tools.functions import tool
from callsmith.tools.starter import STARTER_TOOLS

SKIES = ("sunny", "cloudy", "light rain", "windy", "snow showers")


@tool(idempotent=True)
def get_weather(city: str) -> dict[str, Any]:
    """The weather in a city (demonstration data, made up).

    Args:
        city: For example Paris.
    """
    number = sum(map(ord, city.strip().lower()))  # the same city always has the same weather
    return {"city": city, "celsius": number % 30 - 2, "sky": SKIES[number % len(SKIES)], "note": "demonstration data, made up"}


@tool(side_effects=True)
def send_message(to: str, text: str) -> dict[str, Any]:
    """Send somebody a message (demonstration: nothing is really sent).

    Args:
        to: Who gets it, for example Ada.
        text: What it says.
    """
    return {"to": to, "text": text, "note": "demonstration, nothing was really sent"}


TOOLS = (*STARTER_TOOLS, get_weather, send_message)
