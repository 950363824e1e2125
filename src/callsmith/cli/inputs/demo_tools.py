"""Tools to try things out with: the time, a calculator, and weather and messages that are made up and say so."""

import ast
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from callsmith.tools.functions import tool

MOST_DIGITS = 1000
NOT_UNDERSTOOD = "only numbers and + - * / // % ** are understood"
SKIES = ("sunny", "cloudy", "light rain", "windy", "snow showers")


@tool(idempotent=True)
def get_time(timezone: str = "UTC") -> str:
    """The present date and time in a timezone.

    Args:
        timezone: An IANA name, such as Europe/Paris or Asia/Tokyo.
    """
    return datetime.now(_zone(timezone)).strftime("%A, %d %B %Y, %H:%M %Z")


@tool(idempotent=True)
def calculate(expression: str) -> str:
    """Compute an arithmetic expression with + - * / // % ** and brackets.

    Args:
        expression: For example 17 * 23 + 4.
    """
    try:
        tree = ast.parse(expression.strip().replace("^", "**").replace("×", "*"), mode="eval")
    except (SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{expression!r} is not an arithmetic expression") from None
    value = _value(tree.body)
    return f"{value:.12g}" if isinstance(value, float) else str(value)


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


TOOLS = (get_time, calculate, get_weather, send_message)


def _zone(name: str) -> ZoneInfo:
    """The zone of that name; a city alone will do."""
    wanted = name.strip().replace(" ", "_").lower()
    for known in sorted(available_timezones()):
        if wanted in (known.lower(), known.lower().rpartition("/")[2]):
            return ZoneInfo(known)
    raise ValueError(f"there is no timezone {name!r}; use an IANA name such as Europe/Paris")


def _value(node: ast.AST) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=op, right=right):
            value = _computed(op, _value(left), _value(right))
            if isinstance(value, int) and value.bit_length() > 4 * MOST_DIGITS:
                raise ValueError("the number is too large")
            return value
        case _:
            raise ValueError(NOT_UNDERSTOOD)


def _computed(op: ast.operator, left: int | float, right: int | float) -> int | float:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case ast.Pow() if abs(right) * len(str(left)) <= MOST_DIGITS and (left >= 0 or right == int(right)):
            return left**right
        case ast.Pow():
            raise ValueError("the power is too large, or no real number")
        case _:
            raise ValueError(NOT_UNDERSTOOD)
