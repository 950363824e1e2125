"""What the loop costs a call: validation, dispatch and bookkeeping, with a model that takes no time and a tool that does nothing.

Side by side with the loops of LangChain's agents and of pydantic-ai, each with a fake model of its own kind that makes the same
calls, where they are installed. A run is ROUNDS answers with one call each and a last one without.
"""

import asyncio
import importlib.metadata
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from benchmarks.table import goal, show
from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, TurnEnded
from callsmith.core.values import Call, Message, Request
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run
from callsmith.tools.functions import Functions

ROUNDS = 20
RUNS = 60
GOAL = 200.0  # µs a call


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def main(model: str) -> None:
    ways = {"callsmith": _callsmith, "pydantic-ai": _pydantic_ai, "LangChain": _langchain}
    costs = {name: asyncio.run(_cost(make)) for name, make in ways.items()}
    ours = costs["callsmith"]
    assert ours is not None
    rows: list[tuple[object, ...]] = []
    for name, cost in costs.items():
        rows.append((f"{name} {_version(name)}", *(("not installed", "") if cost is None else (cost, cost / ours))))
    show(f"one call in a loop of {ROUNDS}, the best of {RUNS} runs", ("", "µs a call", "times ours"), rows)
    goal("µs a call", ours, GOAL)


async def _cost(make: "Callable[[], Callable[[], Awaitable[None]]]") -> float | None:
    """µs of CPU a call, in the best run."""
    try:
        once = make()
    except ModuleNotFoundError:
        return None
    await once()
    best = float("inf")
    for _ in range(RUNS):
        began = time.process_time()
        await once()
        best = min(best, time.process_time() - began)
    return best / ROUNDS * 1e6


def _version(name: str) -> str:
    for distribution in (name.lower(), f"{name}-slim"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _callsmith() -> Callable[[], Awaitable[None]]:
    class Fake:
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            at = sum(message.role == "tool" for message in request.messages)
            if at < ROUNDS:
                yield CallReady(0, Call("add", {"a": at, "b": 1}, f"c{at}"))
                yield Stopped("calls")
            else:
                yield Text("done")
                yield Stopped("stop")

    model, toolset = Fake(), Functions(add)
    asked, limits = Request((Message.user("go"),)), Limits(iterations=ROUNDS)

    async def once() -> None:
        last: Any = None
        async for event in run(model, toolset, asked, limits=limits):
            last = event
        assert isinstance(last, TurnEnded)
        assert [message.content for message in last.messages[-2:]] == [str(ROUNDS), "done"]

    return once


def _pydantic_ai() -> Callable[[], Awaitable[None]]:
    from pydantic_ai import Agent  # type: ignore[import-not-found]
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart  # type: ignore[import-not-found]
    from pydantic_ai.models.function import FunctionModel  # type: ignore[import-not-found]
    from pydantic_ai.usage import UsageLimits  # type: ignore[import-not-found]

    async def fake(messages: Any, info: Any) -> Any:
        at = sum(isinstance(message, ModelResponse) for message in messages)
        if at < ROUNDS:
            return ModelResponse(parts=[ToolCallPart("add", {"a": at, "b": 1}, f"c{at}")])
        return ModelResponse(parts=[TextPart("done")])

    agent: Any = Agent(FunctionModel(fake), tools=[add])

    async def once() -> None:
        result = await agent.run("go", usage_limits=UsageLimits(request_limit=ROUNDS + 5))
        assert result.output == "done"

    return once


def _langchain() -> Callable[[], Awaitable[None]]:
    from langchain.agents import create_agent  # type: ignore[import-not-found]
    from langchain_core.language_models.chat_models import BaseChatModel  # type: ignore[import-not-found]
    from langchain_core.messages import AIMessage, ToolMessage  # type: ignore[import-not-found]
    from langchain_core.outputs import ChatGeneration, ChatResult  # type: ignore[import-not-found]

    class Fake(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "fake"

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
            at = sum(isinstance(message, ToolMessage) for message in messages)
            made = [{"name": "add", "args": {"a": at, "b": 1}, "id": f"c{at}"}] if at < ROUNDS else []
            return ChatResult(generations=[ChatGeneration(message=AIMessage("" if made else "done", tool_calls=made))])

        async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> Any:
            return self._generate(messages)

    agent: Any = create_agent(Fake(), [add])

    async def once() -> None:
        asked = {"messages": [("user", "go")]}
        ended = await agent.ainvoke(asked, {"recursion_limit": 4 * ROUNDS})
        assert ended["messages"][-1].content == "done"
        assert ended["messages"][-2].content == str(ROUNDS)

    return once
