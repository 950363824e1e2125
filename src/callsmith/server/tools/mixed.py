"""Mixed mode: a client's tools and the server's own, offered together.

The server's calls run here. A call of the client's ends the answer, once the server's calls beside it have run, and goes back to
the client. What ran here meanwhile the client does not see, so it is remembered and put back into the history it sends next.
"""

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256

from callsmith.core.closing import closing
from callsmith.core.events import ConfirmationNeeded, RunEvent, ToolProgress, TurnEnded
from callsmith.core.ports import Context, Toolset
from callsmith.core.values import Call, Message, Result, Tool

_MOST = 1_000  # answers whose hidden part is remembered


class WithClientTools:
    """The server's tools and, beside them, a client's. Where names are the same, the client's tool is meant."""

    def __init__(self, own: Toolset, clients: Sequence[Tool]) -> None:
        self._own = own
        # What a client's call looks like is the client's business: nothing is checked here.
        self._clients = {tool.name: replace(tool, parameters={}) for tool in clients}

    async def tools(self) -> Sequence[Tool]:
        return [*self._clients.values(), *(tool for tool in await self._own.tools() if tool.name not in self._clients)]

    async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | ConfirmationNeeded | Result]:
        if call.name in self._clients:
            yield ConfirmationNeeded("", call)  # the run pauses until somebody else has answered
            return
        async with closing(self._own.call(call, context)) as items:
            async for item in items:
                yield item


async def setting_aside(events: AsyncIterator[RunEvent], clients: Iterable[Tool], aside: list[Call]) -> AsyncIterator[RunEvent]:
    """The events of a run; calls that wait for the client are put aside instead."""
    names = {tool.name for tool in clients}
    async with closing(events):
        async for event in events:
            if isinstance(event, ConfirmationNeeded) and event.call.name in names:
                aside.append(event.call)
            else:
                yield event


class HiddenRounds:
    """What ran on the server before calls went back to a client, found again by the history up to those very calls."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[tuple[Message, ...], str]] = OrderedDict()  # with the conversation it belongs to

    async def remembering(
        self, events: AsyncIterator[RunEvent], whose: tuple[str, str], history: Sequence[Message], aside: Sequence[Call]
    ) -> AsyncIterator[RunEvent]:
        """The events of a run; what it added is remembered if it ends with calls for the client. `whose`: caller and talk."""
        subject, conversation = whose
        async with closing(events):
            async for event in events:
                if isinstance(event, TurnEnded) and aside:
                    digest = sha256(subject.encode())
                    for message in history:
                        digest.update(_trait(message))
                    digest.update(_calls(aside))
                    self._known[digest.hexdigest()] = event.messages, conversation
                    if len(self._known) > _MOST:
                        self._known.popitem(last=False)
                yield event

    def restored(self, subject: str, history: Sequence[Message]) -> tuple[tuple[Message, ...], str]:
        """The history as the model knows it, and the conversation it is of, if anything was hidden."""
        restored, conversation = list[Message](), ""
        digest = sha256(subject.encode())
        for message in history:
            known: tuple[Message, ...] = (message,)
            if message.calls:
                here = digest.copy()
                here.update(_calls(message.calls))
                known, conversation = self._known.get(here.hexdigest(), (known, conversation))
            digest.update(_trait(message))
            restored += known
        return tuple(restored), conversation


def _trait(message: Message) -> bytes:
    """What is the same of a message whenever it is sent. Reasoning is not: many clients leave it out."""
    return json.dumps([message.role, message.content, message.call_id]).encode() + _calls(message.calls)


def _calls(calls: Iterable[Call]) -> bytes:
    return json.dumps([[call.id, call.name, call.arguments] for call in calls], sort_keys=True).encode()
