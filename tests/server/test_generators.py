"""How many generators a piece of an answer passes on its way from the engine to the writer of the stream: each costs time."""

import inspect
import sys
from collections.abc import AsyncGenerator
from types import FrameType
from typing import Any

import pytest

from callsmith.core.values import Sampling
from callsmith.engines.port import Finished, Piece
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from tests.server.asking import HI, WEATHER, http, weather


class CountingEngine(Scripted):
    """The scripted engine, which notes who waits for its second piece."""

    generators: list[str]

    async def generate(self, prompt: Prompt, sampling: Sampling, grammar: Any = None) -> AsyncGenerator[Piece | Finished, None]:
        yield Piece("Good ")
        self.generators = waiting_generators()
        yield Piece("morning.")
        yield Finished("stop")


def waiting_generators() -> list[str]:
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return names


@pytest.mark.parametrize(
    ("body", "tools", "most"),
    [({}, None, 4), ({"tools": [WEATHER]}, None, 4), ({}, [weather], 7)],
    ids=["plain", "the client's tools", "the server's tools"],
)
async def test_a_piece_passes_few_generators(body: dict[str, Any], tools: Any, most: int) -> None:
    engine = CountingEngine([])
    model = LocalModel(engine, format_named("hermes"), Template(CHATML))
    async with http(create_app({"m": model}, tools=tools)) as client:
        answer = await client.post("/v1/chat/completions", json={"model": "m", "messages": HI, "stream": True, **body})
    assert "morning" in answer.text
    assert 2 <= len(engine.generators) <= most, engine.generators
