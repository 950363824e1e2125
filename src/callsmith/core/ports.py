"""The two protocols everything plugs into: Model answers a request as events, Toolset runs calls."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from callsmith.core.approval import Decision, Policy
from callsmith.core.events import ConfirmationNeeded, ModelEvent, ToolProgress
from callsmith.core.values import Call, Request, Result, Tool


async def _at_once() -> None:
    """Nobody has to be told."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Context:
    """For whom a tool runs: handed through every wrapper to the tool itself.

    `subject` is the caller (results are never shared between callers), `depth` how many runs this one is nested in. `decisions`
    are a person's answers by call id, `granted` the tools this conversation needs no further word for, `tighten` what the request
    adds to the operator's policy.

    A toolset awaits `starting()` right before the tool runs: whoever watches then knows that it does before it does. A tool that
    cannot be cancelled, because it runs in a thread, looks at `cancelled()` now and then: nobody waits for it any more.
    """

    conversation: str = ""
    subject: str = ""
    depth: int = 0
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    granted: frozenset[str] = frozenset()
    tighten: Policy | None = None
    starting: Callable[[], Awaitable[None]] = field(default=_at_once, compare=False, repr=False)
    cancelled: Callable[[], bool] = field(default=_never, compare=False, repr=False)


class Model(Protocol):
    """Answers a request, as events; the last one is `Stopped`."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]: ...


class Toolset(Protocol):
    """Functions, an MCP server, a bus, or another toolset wrapped."""

    async def tools(self) -> Sequence[Tool]: ...

    def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | ConfirmationNeeded | Result]:
        """Progress, then exactly one Result; or, for a call that may not run yet, one ConfirmationNeeded and no Result."""
        ...
