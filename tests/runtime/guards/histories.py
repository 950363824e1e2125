"""Histories for the tests of guards: a question, and rounds of calls with their results."""

from collections.abc import Sequence
from typing import Any

from callsmith.core.events import ModelEvent, Stopped, Text
from callsmith.core.values import Call, Message, Result, Tool, Usage

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where."}},
    "required": ["city"],
}
WEATHER = Tool("weather", "The weather.", CITY)
CLOCK = Tool("clock", "The time of day.", {"type": "object", "properties": {"zone": {"type": "string"}}})
QUESTION = Message.user("What is the weather in Bonn?")
JSON = '{"celsius": 14, "sky": "mild"}'
SAYS: list[ModelEvent] = [Text("It is "), Text("mild."), Stopped("stop", Usage(10, 2))]
NUMBERS = iter(range(10_000))


def calls(name: str, **arguments: Any) -> Call:
    return Call(name, arguments, f"c{next(NUMBERS)}")


def bonn(city: str = "Bonn") -> Call:
    return calls("weather", city=city)


def history(*rounds: tuple[Call, Any] | Sequence[tuple[Call, Any]], question: Message = QUESTION) -> tuple[Message, ...]:
    """The question, and rounds of calls with their results."""
    messages = [question]
    for step_or_steps in rounds:
        steps = [step_or_steps] if isinstance(step_or_steps, tuple) else step_or_steps
        messages.append(Message.assistant(calls=[call for call, _ in steps]))
        messages += [Message.tool(Result(call.id, call.name, content)) for call, content in steps]
    return tuple(messages)
