"""Reaching capabilities: those of a bus, used as tools.

    search = bound_tool("search_corpus", "Search the documents.", SCHEMA, "rag.query@1.0", params=["corpus"])
    toolset = CapabilityTools(bus, [search])
    toolset = CapabilityTools(bus, patterns=["experimental.home.*"])

A tool is called with the authority of whoever the model answers, and nothing the model writes changes that.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.local import current_authority
from callsmith.core.capability.binding import Binding
from callsmith.core.closing import closing
from callsmith.core.errors import UsageError
from callsmith.core.events import CallEvent, ToolProgress
from callsmith.core.failures import make_failure, unknown_tool
from callsmith.core.ports import Context
from callsmith.core.values import Call, Json, Result, Schema, Tool
from callsmith.wire.capability.envelopes import EXPERIMENTAL, parse_reference
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame

SOURCE = "bus"
_log = logging.getLogger(__name__)


def bound_tool(
    name: str,
    description: str,
    parameters: Schema,
    capability: str,
    *,
    params: Iterable[str] = (),
    constants: Mapping[str, Json] | None = None,
    collect: str = "",
    join: str = "",
    side_effects: bool = False,
    idempotent: bool = False,
    timeout: float | None = None,
) -> Tool:
    """A tool that a capability runs: `capability` is one with its version, "rag.query@1.0".

    `params` are the arguments that go to the `params` of the body; `constants` are added, as `{"params.backend": "fast",
    "input.task": "caption"}`. `collect` and `join`: how a stream becomes one result (`Binding`).
    """
    target, version = parse_reference(capability)
    fixed: dict[str, dict[str, Json]] = {"params": {}, "input": {}}
    for place, value in (constants or {}).items():
        part, _, key = place.partition(".")
        if part not in fixed or not key:
            raise UsageError(f"{place!r}: constants are named as params.NAME or input.NAME", field="constants")
        fixed[part][key] = value
    binding = Binding(target, version, tuple(params), fixed["params"], fixed["input"], collect, join)
    return Tool(
        name,
        description,
        parameters,
        side_effects=side_effects,
        idempotent=idempotent,
        timeout=timeout,
        source=SOURCE,
        binding=binding,
    )


def tool_of(descriptor: Descriptor) -> Tool:
    """A tool for a capability of which nothing else is known: what its `params` and its `input` take are its parameters."""
    properties: Any = descriptor.request_schema.get("properties", {})
    parts: dict[str, Any] = {
        part: properties[part] if isinstance(properties.get(part), dict) else {} for part in ("params", "input")
    }
    params, inputs = (parts[part].get("properties", {}) for part in ("params", "input"))
    if clash := sorted(set(params) & set(inputs)):
        raise UsageError(f"{descriptor.name} takes {clash[0]!r} in params and in input: bind it by hand")
    required = [name for part in parts.values() for name in part.get("required", ())]
    parameters: dict[str, Json] = {"type": "object", "properties": {**params, **inputs}, "required": required}
    definitions = {
        **descriptor.request_schema.get("$defs", {}),
        **parts["params"].get("$defs", {}),
        **parts["input"].get("$defs", {}),
    }
    if definitions:
        parameters["$defs"] = definitions
    return Tool(
        descriptor.name.removeprefix(f"{EXPERIMENTAL}.").replace(".", "_"),
        descriptor.description,
        parameters,
        side_effects=descriptor.side_effects,
        idempotent=descriptor.idempotent,
        timeout=descriptor.timeout_seconds,
        source=SOURCE,
        original=descriptor.name,
        binding=Binding(descriptor.name, descriptor.version, tuple(params)),
    )


def _tool_or_none(descriptor: Descriptor) -> Tool | None:
    try:
        return tool_of(descriptor)
    except UsageError as error:
        _log.warning("%s can be no tool: %s", descriptor.name, error)
        return None


class CapabilityTools:
    """A toolset of capabilities: tools that are bound to some, and those that are offered under names that match patterns."""

    def __init__(self, bus: CapabilityBus, tools: Iterable[Tool] = (), *, patterns: Iterable[str] = ()) -> None:
        self._bus = bus
        self._bound = {tool.name: tool for tool in tools}
        self._patterns = tuple(patterns)
        self._made: dict[int, tuple[Descriptor, Tool | None]] = {}  # by the id of the descriptor, which the entry keeps alive
        for tool in self._bound.values():
            if tool.binding is None:
                raise UsageError(f"the tool {tool.name} is bound to no capability: bound_tool(…) makes one that is")

    async def tools(self) -> Sequence[Tool]:
        matching = {tool.name: tool for tool in self._matching()}
        return [
            *map(self._adapt_tool, self._bound.values()),
            *(tool for name, tool in matching.items() if name not in self._bound),
        ]

    def _matching(self) -> list[Tool]:
        """The tools of offers whose names match, the newest version last. Each is made once; what makes no tool is left out."""
        offered = (offer.descriptor for offer in self._bus.offers()) if self._patterns else ()
        matching = [item for item in offered if any(fnmatchcase(item.name, pattern) for pattern in self._patterns)]
        matching.sort(key=lambda item: (item.name, item.version))
        known, self._made = self._made, {}
        for descriptor in matching:
            made_before = known.get(id(descriptor))
            self._made[id(descriptor)] = made_before if made_before is not None else (descriptor, _tool_or_none(descriptor))
        return [tool for _, tool in self._made.values() if tool is not None]

    async def call(self, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        tools = {tool.name: tool for tool in await self.tools()}
        tool = tools.get(call.name)
        if tool is None or tool.binding is None:
            yield unknown_tool(call, tools)
            return
        await context.starting()
        try:
            async with closing(self._run(tool, tool.binding, call, context)) as events:
                async for event in events:
                    yield event
        except BusError as error:
            doubt = "; it may have taken effect all the same" if tool.side_effects and error.sent and error.retryable else ""
            yield make_failure(call, error.code, f"{error.message}{doubt}")

    async def _run(self, tool: Tool, binding: Binding, call: Call, context: Context) -> AsyncIterator[CallEvent]:
        name, version, body = binding.capability, binding.version, binding.body(call.arguments)
        authority = current_authority() if context.authority is None else context.authority
        if context.max_depth is not None:
            authority = replace(authority, max_depth=context.max_depth)
        options: dict[str, Any] = {"session_id": context.conversation, "timeout": tool.timeout, "authority": authority}
        if not (binding.collect or any(offer.descriptor.stream_schema for offer in self._bus.offers(name))):
            answer = await self._bus.call(name, version, body, **options)
            yield Result(call.id, call.name, answer.get("output", dict(answer)))
            return
        collected: list[Mapping[str, Json]] = []
        frames = self._bus.stream(name, version, body, **options)
        async with closing(frames) as items:
            async for frame in items:
                frame.raise_error()
                if frame.event == "done":
                    yield Result(call.id, call.name, _content(binding, frame, collected))
                    return
                if frame.event == binding.collect:
                    collected.append(frame.data)
                yield _progress(call, frame)
        raise BusError("internal_error", f"{binding.capability} ended without its last frame", sent=True)

    def _adapt_tool(self, tool: Tool) -> Tool:
        """The tool, with side effects if its provider says that it has some."""
        if tool.side_effects or tool.binding is None:
            return tool
        harms = any(offer.descriptor.side_effects for offer in self._bus.offers(tool.binding.capability))
        return replace(tool, side_effects=True) if harms else tool


def _content(binding: Binding, last: Frame, collected: Sequence[Mapping[str, Json]]) -> Json:
    """What the model reads: the output, or what was collected of a stream."""
    if not binding.collect:
        return last.data.get("output", dict(last.data))
    if binding.join:
        texts = (str(data.get(binding.join, "")).strip() for data in collected)
        return {"text": " ".join(filter(None, texts)), **last.data}
    return {f"{binding.collect}s": [dict(data) for data in collected], **last.data}


def _progress(call: Call, frame: Frame) -> ToolProgress:
    data = frame.data
    numbers = [
        value if isinstance(value, int | float) else None for value in (data.get("current", data.get("step")), data.get("total"))
    ]
    text = next((value for key in ("stage", "text", "message") if isinstance(value := data.get(key), str)), "")
    return ToolProgress(call.id, text, *numbers)
