"""A model that writes what it is told, and tools of ours, for the tests of adapters."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsmith import ToolProgress, tool
from callsmith.adapters.frameworks import asking
from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel

HERMES = format_named("hermes")


def scripted_model(*replies: str, chunk: int = 3) -> tuple[LocalModel, Scripted]:
    """The model, and the engine that knows what it was asked."""
    engine = Scripted(replies, chunk=chunk)
    return LocalModel(engine, HERMES, Template(CHATML)), engine


def open_scripted(monkeypatch: pytest.MonkeyPatch, *replies: str) -> None:
    """Have this model be opened, whatever is asked for."""
    model = scripted_model(*replies)[0]
    monkeypatch.setattr(asking, "open_model", lambda *_: model)
    monkeypatch.setattr(asking, "describe_model", lambda *_: model.info)


def calling(name: str, **arguments: object) -> str:
    """What the model writes to make this call."""
    return calling_all((name, arguments))


def calling_all(*calls: tuple[str, dict[str, Any]], text: str = "") -> str:
    """What the model writes to say this and make these calls."""
    return write(HERMES, [Call(name, arguments) for name, arguments in calls], text=text)


@tool(idempotent=True)
def get_weather(city: str) -> dict[str, str]:
    """The weather in a city.

    Args:
        city: Which city.
    """
    return {"city": city, "sky": "snow"}


@tool
async def add(a: int, b: int = 1) -> AsyncIterator[Any]:
    """The sum of two numbers."""
    yield ToolProgress("", "adding", 1, 2)
    yield a + b


@tool(side_effects=True)
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    if amount > 100:
        raise ValueError("not that much")
    return f"paid {amount} to {to}"
