"""The two protocols everything plugs into: Model answers a request as events, Toolset runs calls."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from callsmith.core.events import ModelEvent, ToolProgress
from callsmith.core.values import Call, Request, Result, Tool


@dataclass(frozen=True, slots=True)
class Context:
    """For whom a tool runs: handed through every wrapper to the tool itself."""

    conversation: str = ""
    depth: int = 0


class Model(Protocol):
    """Answers a request, as events; the last one is `Stopped`."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]: ...


class Toolset(Protocol):
    """Functions, an MCP server, a bus, or another toolset wrapped."""

    async def tools(self) -> Sequence[Tool]: ...

    def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        """Progress, then exactly one Result."""
        ...
