"""Offering tools: any toolset as capabilities of a bus.

withdraw = await offer(bus, Functions(weather), prefix="experimental.home")      # experimental.home.weather@1.0
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall, Handler
from callsmith.core.capability.authority import Trust
from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import CallDeferred, ConfirmationNeeded, ToolProgress
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Json, Result, Tool
from callsmith.wire.capability.errors import STATUS, BusError
from callsmith.wire.capability.frames import Frame
from callsmith.wire.fields import without_none

DEFAULT_PREFIX = "experimental.tools"


async def offer(
    bus: CapabilityBus, toolset: Toolset, prefix: str = DEFAULT_PREFIX, *, trust: Trust = "member", most: int = 16
) -> Callable[[], None]:
    """Offer every tool of a toolset as a capability. Calling what is returned withdraws them all.

    `trust` is how far callers must be trusted, `most` how many calls of a tool may run at a time. A tool that has to be confirmed
    is not run: whoever calls it asks the person. If one of them cannot be offered, none is.
    """
    names: set[str] = set()
    with ExitStack() as withdrawals:
        for tool in await toolset.tools():
            descriptor = describe_tool(tool, prefix, trust, most)
            if descriptor.name in names:
                raise UsageError(f"two tools would be offered as {descriptor.name}: rename one of them")
            names.add(descriptor.name)
            withdrawals.callback(bus.register(descriptor, tool_handler(toolset, tool)))
        return withdrawals.pop_all().close


def describe_tool(tool: Tool, prefix: str, trust: Trust = "member", most: int = 16) -> Descriptor:
    """The descriptor of a tool as a capability. What the tool takes is its `input`."""
    output = {"output": tool.output} if tool.output else {}
    return Descriptor(
        f"{prefix}.{re.sub(r'[^a-z0-9_]', '_', tool.name.lower()).lstrip('_')}",
        request_schema={"type": "object", "properties": {"input": tool.parameters}, "required": ["input"]},
        response_schema={"type": "object", "properties": output, "required": ["output"]},
        stream_schema={"type": "object"},  # of any tool there may be progress
        description=tool.description,
        max_concurrent=most,
        trust_required=trust,
        timeout_seconds=30.0 if tool.timeout is None else tool.timeout,
        idempotent=tool.idempotent,
        side_effects=tool.side_effects,
    )


def tool_handler(toolset: Toolset, tool: Tool) -> Handler:
    """The handler that runs a tool: its progress is frames, its result the last one."""

    async def handle(call: CapabilityCall) -> AsyncIterator[Frame]:
        context = Context(
            conversation=call.session_id,
            subject=call.authority.subject,
            depth=call.authority.depth,
            max_depth=call.authority.max_depth,
            authority=call.authority,
        )
        tool_call = Call(tool.name, call.input, call.request_id)
        async with closing(toolset.call(tool_call, context)) as events:
            async for event in events:
                match event:
                    case ToolProgress(_, text, current, total):
                        progress: dict[str, Json] = {"stage": text or None, "current": current, "total": total}
                        yield Frame("progress", without_none(progress))
                    case Result():
                        if not event.ok:
                            raise BusError(event.code if event.code in STATUS else "internal_error", event.text)
                        yield Frame("done", {"output": event.content, "meta": {}})
                        return
                    case ConfirmationNeeded():
                        raise BusError("unauthorized", f"requires_confirmation: {event.reason or tool.name}")
                    case CallDeferred():
                        break
        raise BusError("internal_error", f"{tool.name} ended without a result")

    return handle
