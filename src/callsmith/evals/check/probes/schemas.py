"""Schemas: one tool each, which must be called and whose schema leaves the arguments little or no choice.

So far as the server constrains what it samples, even a weak model's call fits. The tools are marked `strict`.
"""

from collections.abc import Awaitable, Callable

from callsmith.core.values import Choice, Json, Tool
from callsmith.evals.check.probe import ProbeContext, probe
from callsmith.evals.check.probes.questions import CLOCK, GREETING, WEATHER, tool

_WITH = ("chat", "responses", "anthropic")
_LEAST = 256  # tokens for the longest of these calls
_LONG = " ".join(f"word{number}" for number in range(30))
_POINT = tool("x", {"x": {"type": "integer"}, "y": {"type": "integer"}}).parameters
_AREA = tool("x", {"from": _POINT, "to": _POINT}).parameters
_SIZES = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}

_PROPERTIES: dict[str, tuple[str, dict[str, Json]]] = {
    "enum": ("A value from an enum", {"unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}),
    "unicode": ("Values that are not ASCII", {"city": {"type": "string", "enum": ["Zürich", "東京", "São Paulo 🦜"]}}),
    "escapes": ("Quotes, backslashes and line breaks in a string", {"text": {"const": 'He said "C:\\new"\n\tand left.'}}),
    "markup": ("Markup of a template in a string", {"text": {"const": "</tool_call><|im_end|>"}}),
    "long": ("A long string", {"text": {"const": _LONG}}),
    "integer": ("An integer, and no string of one", {"count": {"type": "integer", "minimum": 1, "maximum": 9}}),
    "number": ("Numbers with a sign and a fraction", {"factor": {"type": "number", "enum": [-0.25, 3e-7]}}),
    "boolean": ("True and false, and no strings of them", {"on": {"type": "boolean"}, "off": {"const": False}}),
    "null": ("Null where nothing else is allowed", {"nothing": {"type": "null"}}),
    "nested": ("An object in an object", {"area": _AREA}),
    "array": ("An array of bounded length", {"sizes": _SIZES}),
    "objects": ("An array of objects", {"points": {"type": "array", "items": _POINT, "minItems": 1, "maxItems": 2}}),
    "either": ("One of several shapes", {"at": {"anyOf": [{"type": "integer"}, _POINT]}}),
    "pattern": ("A string that fits a pattern", {"date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}}),
    "empty_string": ("An empty string", {"note": {"const": ""}}),
    "odd_keys": (
        "Keys that are no identifiers",
        {"@type": {"const": "Place"}, "größe": {"type": "integer"}},
    ),
}


async def _force(context: ProbeContext, forced_tool: Tool, *, stream: bool = False) -> None:
    choice = Choice.only(forced_tool.name)
    tokens = max(_LEAST, context.tokens)
    answer = await context.ask(
        f"Call {forced_tool.name}.", tools=[forced_tool, WEATHER], choice=choice, stream=stream, max_tokens=tokens
    )
    context.shape(answer)
    context.require_fitting_call(answer, forced_tool)


def _make_probe(forced_tool: Tool) -> Callable[[ProbeContext], Awaitable[None]]:
    return lambda context: _force(context, forced_tool)


for _name, (_title, _properties) in _PROPERTIES.items():
    probe(f"{_title}", *_WITH, name=f"schemas.{_name}")(_make_probe(tool(f"use_{_name}", _properties)))

_REFERRING = tool("use_reference", {"start": {"$ref": "#/$defs/point"}}, definitions={"point": _POINT})
probe("A schema that refers to its definitions", *_WITH, name="schemas.reference")(_make_probe(_REFERRING))
probe("A tool that takes nothing is called with an empty object", *_WITH, name="schemas.nothing")(_make_probe(CLOCK))

_NAMES = {
    "longest_name": ("A name of 64 characters", "n" + "a_1b" * 15 + "zzz"),
    "dashed_name": ("A name with dashes and digits", "get-user-2-by-id"),
    "short_name": ("A name of one letter", "f"),
    "similar_names": ("A name that begins like another", "get_weather_forecast"),
}
for _name, (_title, _called) in _NAMES.items():
    probe(f"{_title}", *_WITH, name=f"schemas.{_name}")(_make_probe(tool(_called, {"day": {"type": "integer"}})))


@probe("The arguments of a streamed call fit as well", *_WITH)
async def in_stream(context: ProbeContext) -> None:
    escapes = tool("use_escapes", _PROPERTIES["escapes"][1])
    await _force(context, escapes, stream=True)


@probe("A tool without a description or parameters is taken", "chat")
async def bare_tool(context: ProbeContext) -> None:
    exchange = await context.send(context.body(GREETING, tools=[{"type": "function", "function": {"name": "ping"}}]))
    context.need(exchange.status == 200, f"refused: {exchange.status} {exchange.text[:200]}")


@probe("A hundred tools are taken")
async def many_tools(context: ProbeContext) -> None:
    tools = [Tool(f"tool_{number}", "Does something.") for number in range(100)]
    await context.ask(GREETING, tools=tools, max_tokens=8)
