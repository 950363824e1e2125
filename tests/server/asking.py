"""A model that is told what to say, and the application around it, asked in process."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
from openai import AsyncOpenAI
from starlette.applications import Starlette

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text
from callsmith.core.values import Call, Usage
from callsmith.server.app import create_app
from tests.fakes import FakeModel
from tests.serving import served

HI: Any = [{"role": "user", "content": "hi"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


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
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


def client(model: FakeModel, **options: Any) -> AsyncOpenAI:
    app = create_app({"m": model}, **options)
    return AsyncOpenAI(base_url="http://localhost/v1", api_key="ignored", http_client=http(app), max_retries=0)


def listening(model: FakeModel, **options: Any) -> AbstractAsyncContextManager[str]:
    """The address of the application on a real socket."""
    return served(create_app({"m": model}, **options))
