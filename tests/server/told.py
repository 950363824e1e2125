"""A model that is told what to say, and the application around it, asked in process."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
from openai import AsyncOpenAI
from starlette.applications import Starlette

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text
from callsmith.core.values import Call, Request, Usage
from callsmith.server.app import create_app
from tests.serving import served

HI: Any = [{"role": "user", "content": "hi"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Told:
    """A model that gives the answers it was told, in turn; an exception among the events is raised there."""

    def __init__(self, *answers: Sequence[ModelEvent | Exception | float]) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self.open = 0

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.asked.append(request)
        self.open += 1
        try:
            for event in self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]:
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, float):
                    await asyncio.sleep(event)
                else:
                    yield event
        finally:
            self.open -= 1


def says(*pieces: str) -> list[ModelEvent | Exception | float]:
    return [*map(Text, pieces), Stopped("stop", Usage(7, 3, 2, 1))]


def calls(*made: Call) -> list[ModelEvent | Exception | float]:
    events: list[ModelEvent | Exception | float] = []
    for index, call in enumerate(made):
        middle = len(call.text) // 2
        events += [CallStarted(index, call.name, call.id)]
        events += [CallArguments(index, piece) for piece in (call.text[:middle], call.text[middle:])]
        events += [CallReady(index, call)]
    return [*events, Stopped("calls", Usage(7, 3))]


BONN, KOELN = Call("weather", {"city": "Bonn"}, "c1"), Call("weather", {"city": "Köln"}, "c2")


async def weather(city: str) -> str:
    return f"sun in {city}"


def http(app: Starlette) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://callsmith")


def client(model: Told, **options: Any) -> AsyncOpenAI:
    app = create_app({"m": model}, **options)
    return AsyncOpenAI(base_url="http://callsmith/v1", api_key="ignored", http_client=http(app), max_retries=0)


def listening(model: Told, **options: Any) -> AbstractAsyncContextManager[str]:
    """The address of the application on a real socket."""
    return served(create_app({"m": model}, **options))
