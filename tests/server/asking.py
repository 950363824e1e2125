"""A model that is told what to say, and the application around it, asked in process."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
from openai import AsyncOpenAI
from starlette.applications import Starlette

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text
from callsmith.core.ports import Model, Toolset
from callsmith.core.values import Call, Usage
from callsmith.server.app import STANDARD_SETTINGS, create_app
from callsmith.server.pipeline import AnswerPipeline
from callsmith.server.served_models import ServedModels
from callsmith.server.settings import Settings
from callsmith.server.tools.planner import ToolPlanner
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


def make_pipeline(
    models: Mapping[str, Model], tools: Toolset | None = None, settings: Settings = STANDARD_SETTINGS
) -> AnswerPipeline:
    """The pipeline of a server with these models and tools, without its application."""
    return AnswerPipeline(settings, ServedModels(models), ToolPlanner(settings, tools))


def says(*pieces: str) -> list[ModelEvent | Exception | float]:
    return [*map(Text, pieces), Stopped("stop", Usage(7, 3, 2, 1))]


def calls(*made_calls: Call) -> list[ModelEvent | Exception | float]:
    events: list[ModelEvent | Exception | float] = []
    for index, call in enumerate(made_calls):
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
