"""Nested runs: a run that a tool starts inherits the caller, the policy, the depth and the cancellation of the run around it.

They are passed on in a context variable, which works for `async` tools and, through copied contexts, for functions in threads.
"""

from contextvars import ContextVar

from callsmith.core.errors import LimitReached
from callsmith.core.ports import Context
from callsmith.core.types.field_checks import replace

_ENCLOSING: ContextVar[Context | None] = ContextVar("callsmith_around", default=None)


def enter_tool(context: Context) -> None:
    """Set the context of the tool that runs in this task and in the tasks and threads it starts."""
    _ENCLOSING.set(context)


def nested_context(context: Context, iterations: int, depth: int | None = None) -> Context:
    """The context of a run or a dispatch that begins here. Inside a tool it allows no more than the tool's own context.

    Runs are nested no deeper than the outermost has `iterations`, and than any of them says by a `depth` of its own.
    """
    outer = _ENCLOSING.get()
    if outer is not None:
        context = _restrict(context, outer)
    most = _least(context.max_depth, depth)
    most = max(1, iterations) if most is None else most
    if context.depth >= most:
        raise LimitReached("depth", f"tools that run tools are nested {context.depth} deep, which is the limit")
    return replace(context, max_depth=most)


def _least(first: int | None, second: int | None) -> int | None:
    return min((limit for limit in (first, second) if limit is not None), default=None)


def _restrict(context: Context, outer: Context) -> Context:
    tighten = context.tighten
    if outer.tighten is not None and outer.tighten is not tighten:
        tighten = outer.tighten if tighten is None else outer.tighten.tighten(tighten)
    return replace(
        context,
        subject=outer.subject or context.subject,
        authority=outer.authority or context.authority,
        depth=max(context.depth, outer.depth),
        max_depth=_least(context.max_depth, outer.max_depth),
        # Decisions on calls of the outer conversation do not count for calls made here, which may have the same ids.
        decisions={} if context.decisions is outer.decisions else context.decisions,
        granted=frozenset(),
        tighten=tighten,
        checkpoint=None,  # it is the outer call's
        cancelled=lambda: outer.cancelled() or context.cancelled(),
    )
