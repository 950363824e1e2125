"""Answers to write and read back: calls with values of every type, text, reasoning."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from callsmith.core.events import ModelEvent, Thought
from callsmith.core.values import Call, Tool
from callsmith.formats.algebra import Format, Notation
from callsmith.formats.inference.laws import calls_in, text_in
from callsmith.formats.write import write

NAMES = ("get_weather", "send_mail", "list_files2")
KEYS = ("city", "n", "path")
VALUES: tuple[tuple[Any, dict[str, Any]], ...] = (
    ("two words", {"type": "string"}),
    ("naïve 天气, so it is: (ok)", {"type": "string"}),
    (12, {"type": "integer"}),
    (-2.5, {"type": "number"}),
    (True, {"type": "boolean"}),
    (["a b", "c"], {"type": "array", "items": {"type": "string"}}),
    ({"a": "x", "b": 3}, {"type": "object"}),
    ("", {"type": "string"}),
    ("line one\nline two", {"type": "string"}),  # escaped in Python's notation
)


@dataclass(frozen=True)
class Answer:
    """An answer as it is written, and all that is in it."""

    text: str
    tools: list[Tool]
    calls: list[tuple[str, dict[str, Any]]]
    content: str
    reasoning: str

    @property
    def parts(self) -> tuple[list[tuple[str, dict[str, Any]]], str, str]:
        return self.calls, self.content, self.reasoning


def answers(format: Format, count: int = 42) -> Iterator[Answer]:
    """Answers in a format: none to three calls, with and without text and reasoning. Python's escapes are left out."""
    values = VALUES[:-1] if isinstance(format.calls.values, Notation) and format.calls.values.python else VALUES
    for number in range(count):
        tools, calls = list[Tool](), list[Call]()
        for index in range(min(number % 4, format.calls.most or 3)):
            keys = KEYS[: (number // 4 + index) % 4]
            filled = {key: values[(5 * number + 3 * index + 2 * at) % len(values)] for at, key in enumerate(keys)}
            schema = {"type": "object", "properties": {key: schema for key, (_, schema) in filled.items()}}
            tools.append(Tool(NAMES[index], "", schema))
            calls.append(Call(NAMES[index], {key: value for key, (value, _) in filled.items()}, f"{index}".rjust(9, "a")))
        text = "So it is (as I said), for now." if number % 2 else ""
        thought = "First, look\nat it." if format.thinks and number % 3 == 1 else ""
        expected = [(call.name, dict(call.arguments)) for call in calls]
        yield Answer(write(format, calls, text=text, thought=thought), tools, expected, text, thought)


def parts_of(events: list[ModelEvent]) -> tuple[list[tuple[str, dict[str, Any]]], str, str]:
    """The calls, the text and the reasoning that were read."""
    return calls_in(events), text_in(events).strip(), text_in(events, Thought)
