"""Quick start: a Python function as a tool. `python examples/weather.py`, or with another model as its argument."""

import sys

from callsmith import Functions, open_model, run_sync, tool

FORECASTS = {"paris": "sunny, 24 °C", "oslo": "snow, -3 °C"}


@tool
def get_weather(city: str) -> str:
    """The weather forecast of a city.

    Args:
        city: The name of the city.
    """
    return FORECASTS.get(city.lower(), "no forecast for this city")


def main() -> None:
    model = open_model(sys.argv[1] if len(sys.argv) > 1 else "qwen2.5-coder-1.5b")
    ended = run_sync(model, Functions(get_weather), "What is the weather in Paris?")
    for message in ended.messages:
        for call in message.calls:
            print("call:", call.name, call.text)
    print(ended.text)


if __name__ == "__main__":
    main()
