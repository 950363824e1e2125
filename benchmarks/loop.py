"""What the loop costs a call: validation, dispatch and bookkeeping, with a model that takes no time and a tool that does nothing.

Side by side with the loops of LangChain's agents and of pydantic-ai, each with a fake model of its own kind that makes the same
calls, where they are installed (`make rivals` puts them into .venv-clients). A run is CALLS answers with one call each and a last
one without.
"""

import asyncio
import importlib.metadata
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from benchmarks.measure import compare
from benchmarks.table import goal, show
from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, TurnEnded
from callsmith.core.values import Call, Message, Request, Result
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import run
from callsmith.tools.functions import Functions

CALLS = 20
ROUNDS = 40
GOAL, HAND_GOAL = 200.0, 6.0  # µs a call; times the one by hand
Once = Callable[[], Awaitable[None]]


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def main(model: str) -> None:
    ways: dict[str, Once] = {}
    for name, make in (
        ("callsmith", _callsmith),
        ("by hand", _by_hand),
        ("by hand, in tasks", _by_hand_in_tasks),
        ("pydantic-ai", _pydantic_ai),
        ("LangChain", _langchain),
    ):
        try:
            ways[name] = make()
        except ModuleNotFoundError as missing:
            print(f"\n{name}: not installed ({missing}); make rivals fetches it")
    costs = asyncio.run(_costs(ways))
    ours = costs.pop("callsmith")
    for name, theirs in costs.items():
        wanted = 1 / HAND_GOAL if name == "by hand" else None
        compare("a call in a loop", "µs", ours, f"{name} {_version(name)}".strip(), theirs, goal=wanted)
    show(f"one call in a loop of {CALLS}, the best of {ROUNDS} runs", ("", "µs a call"), [("callsmith", min(ours))])
    goal("µs a call", min(ours), GOAL)


async def _costs(ways: dict[str, Once]) -> dict[str, list[float]]:
    """µs of CPU a call, round by round."""
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, once in ways.items():
            began = time.process_time()
            await once()
            if number:  # the first round warms up
                costs[name].append((time.process_time() - began) / CALLS * 1e6)
    return costs


def ours_and_by_hand() -> tuple[Once, Once]:
    """A run of ours, and the same model and tool in a bare loop."""
    return _callsmith(), _by_hand()


def _version(name: str) -> str:
    for distribution in (name.lower(), f"{name}-slim"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


class _Fake:
    """A model that makes CALLS calls."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        at = sum(message.role == "tool" for message in request.messages)
        if at < CALLS:
            yield CallReady(0, Call("add", {"a": at, "b": 1}, f"c{at}"))
            yield Stopped("calls")
        else:
            yield Text("done")
            yield Stopped("stop")


def _callsmith() -> Once:
    model, toolset = _Fake(), Functions(add)
    request, limits = Request((Message.user("go"),)), Limits(iterations=CALLS)

    async def once() -> None:
        last: Any = None
        async for event in run(model, toolset, request, limits=limits):
            last = event
        assert isinstance(last, TurnEnded)
        assert [message.content for message in last.messages[-2:]] == [str(CALLS), "done"]

    return once


def _by_hand() -> Once:
    """What nobody should write: no checks, no limits, no events."""
    model = _Fake()

    async def once() -> None:
        messages, call = (Message.user("go"),), True
        while call:
            call = None
            async for event in model.stream(Request(messages)):
                call = event.call if isinstance(event, CallReady) else call
            if call is not None:
                arguments: Any = call.arguments
                result = Result(call.id, call.name, str(await add(**arguments)))
                messages = (*messages, Message.assistant(calls=[call]), Message.tool(result))
        assert messages[-1].content == str(CALLS)

    return once


def _by_hand_in_tasks() -> Once:
    """The floor of what runs beside other calls and under a deadline: the same, each call in a task of its own, with a timer, and
    with its start seen before it runs."""
    model = _Fake()

    async def once() -> None:
        loop = asyncio.get_running_loop()
        messages, call = (Message.user("go"),), True
        while call:
            call = None
            async for event in model.stream(Request(messages)):
                call = event.call if isinstance(event, CallReady) else call
            if call is not None:
                started, seen, ended = (loop.create_future() for _ in range(3))

                async def work(arguments: Any, started: Any = started, seen: Any = seen, ended: Any = ended) -> None:
                    started.set_result(None)
                    await seen
                    ended.set_result(await add(**arguments))

                task = loop.create_task(work(call.arguments))
                timer = loop.call_later(30, task.cancel)
                await started
                seen.set_result(None)
                result = Result(call.id, call.name, str(await ended))
                timer.cancel()
                messages = (*messages, Message.assistant(calls=[call]), Message.tool(result))
        assert messages[-1].content == str(CALLS)

    return once


def _pydantic_ai() -> Once:
    from pydantic_ai import Agent  # type: ignore[import-not-found]
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart  # type: ignore[import-not-found]
    from pydantic_ai.models.function import FunctionModel  # type: ignore[import-not-found]
    from pydantic_ai.usage import UsageLimits  # type: ignore[import-not-found]

    async def fake(messages: Any, info: Any) -> Any:
        at = sum(isinstance(message, ModelResponse) for message in messages)
        if at < CALLS:
            return ModelResponse(parts=[ToolCallPart("add", {"a": at, "b": 1}, f"c{at}")])
        return ModelResponse(parts=[TextPart("done")])

    agent: Any = Agent(FunctionModel(fake), tools=[add])

    async def once() -> None:
        result = await agent.run("go", usage_limits=UsageLimits(request_limit=CALLS + 5))
        assert result.output == "done"

    return once


def _langchain() -> Once:
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
            calls = [{"name": "add", "args": {"a": at, "b": 1}, "id": f"c{at}"}] if at < CALLS else []
            return ChatResult(generations=[ChatGeneration(message=AIMessage("" if calls else "done", tool_calls=calls))])

        async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> Any:
            return self._generate(messages)

    agent: Any = create_agent(Fake(), [add])

    async def once() -> None:
        request = {"messages": [("user", "go")]}
        ended = await agent.ainvoke(request, {"recursion_limit": 4 * CALLS})
        assert ended["messages"][-1].content == "done"
        assert ended["messages"][-2].content == str(CALLS)

    return once
