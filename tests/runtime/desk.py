"""Tools that write down what they do, a model that says what it was told once, and calls for conversations to make."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from callsmith.core.approval import Denied
from callsmith.core.events import ConfirmationNeeded, ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.runtime.conversation.conversation import Conversation

SEND = Tool("send", side_effects=True)
LOOK = Tool("look")


class Desk:
    """Tools that write down what they do. `send` asks first, unless it is granted; `look` does not."""

    def __init__(self, *tools: Tool, expires: float | None = None) -> None:
        self.done: list[str] = []
        self.contexts: list[Context] = []
        self._tools = tools or (SEND, LOOK)
        self._expires = expires

    async def tools(self) -> Sequence[Tool]:
        return self._tools

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | ConfirmationNeeded | Result]:
        self.contexts.append(context)
        decision = context.decisions.get(call.id)
        if call.name == "send" and decision is None and "send" not in context.granted:
            yield ConfirmationNeeded(f"ask {call.id}", call, "it has side effects", self._expires)
            return
        if isinstance(decision, Denied):
            yield Result(call.id, call.name, f"denied: {decision.message}", ok=False, code="denied")
            return
        arguments = (decision.arguments if decision else None) or call.arguments
        await context.starting()
        self.done.append(f"{call.name} {arguments.get('to', '')}".strip())
        yield Result(call.id, call.name, "done")


class Free(Desk):
    """The same tools; nobody is asked."""

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        self.contexts.append(context)
        await context.starting()
        self.done.append(f"{call.name} {call.arguments.get('to', '')}".strip())
        yield Result(call.id, call.name, "done")


class Stuck(Free):
    """Its tools begin, and never end."""

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
        async for item in super().call(call, context):
            await asyncio.sleep(60)
            yield item


ADA, BOB, SEE = Call("send", {"to": "Ada"}, "c1"), Call("send", {"to": "Bob"}, "c2"), Call("look", {}, "c3")


def tool_texts(conversation: Conversation) -> list[tuple[str, str]]:
    return [(message.call_id, message.content) for message in conversation.messages if message.role == "tool"]
