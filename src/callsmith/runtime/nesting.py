"""Runs inside tools: what a run that a tool starts takes over from the run around it.

A context variable carries it, so that it holds for `async` tools and, through their copied context, for functions in threads.
"""

from contextvars import ContextVar
from dataclasses import replace

from callsmith.core.errors import LimitReached
from callsmith.core.ports import Context

_AROUND: ContextVar[Context | None] = ContextVar("callsmith_around", default=None)


def enter_tool(context: Context) -> None:
    """From here on, in this task and in whatever it starts, a tool runs for this context."""
    _AROUND.set(context)


def entered(context: Context, deepest: int) -> Context:
    """The context of a run or a dispatch that begins here. Inside a tool it allows no more than the one that tool runs in."""
    around = _AROUND.get()
    if around is not None:
        context = _within(context, around)
    if context.depth >= deepest:
        raise LimitReached("depth", f"tools that run tools are nested {context.depth} deep, which is the limit")
    return context


def _within(context: Context, around: Context) -> Context:
    tighten = context.tighten
    if around.tighten is not None and around.tighten is not tighten:
        tighten = around.tighten if tighten is None else around.tighten.tightened(tighten)
    return replace(
        context,
        subject=around.subject or context.subject,
        depth=max(context.depth, around.depth),
        # Words on calls of the conversation around it are none on the calls made here, though they may bear the same ids.
        decisions={} if context.decisions is around.decisions else context.decisions,
        granted=frozenset(),
        tighten=tighten,
        cancelled=lambda: around.cancelled() or context.cancelled(),
    )
