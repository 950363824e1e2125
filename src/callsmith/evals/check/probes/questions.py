"""Tools and questions that the probes share."""

from callsmith.core.values import Json, Tool


def tool(name: str, properties: dict[str, Json], description: str = "", definitions: dict[str, Json] | None = None) -> Tool:
    """A tool all of whose properties are required."""
    schema: dict[str, Json] = {"type": "object", "properties": properties, "required": list(properties)}
    schema |= {"additionalProperties": False, **({"$defs": definitions} if definitions else {})}
    return Tool(name, description or f"Call {name}.", schema, strict=True)


WEATHER = Tool(
    "get_weather",
    "Get the current weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}}, "required": ["city"]},
)
EMAIL = tool("send_email", {"to": {"type": "string"}, "subject": {"type": "string"}}, "Send an e-mail.")
STOCKS = tool("get_stock_price", {"symbol": {"type": "string"}}, "Get the price of a stock by its symbol.")
CLOCK = Tool("get_time", "Get the time of day.", {"type": "object", "properties": {}})

WEATHER_QUESTION = "What is the weather in Paris right now? Use the tool."
TWO_QUESTIONS = "What is the weather in Paris, and what is it in Tokyo? Call the tool for both cities at once."
GREETING = "Say hello in one word."
