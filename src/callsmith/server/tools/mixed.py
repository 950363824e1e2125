"""Mixed mode: a client's tools and the server's own, offered together.

The server's calls run here. A call of the client's ends the answer, once the server's calls beside it have run, and goes back to
the client. The client does not see the rounds that ran here, so they are remembered and put back into the history it sends next.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from callsmith.core.values import Call, Message
from callsmith.engines.lru import LRU

# Of each caller: answers whose hidden rounds are remembered, and characters in them.
_MOST = 1_000
_MOST_CHARACTERS = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HiddenRound:
    """What a run added before calls went back to the client: messages, the approvals that wait, and the conversation it is of.

    `calls` are those in the messages that the model is known to have made.
    """

    messages: tuple[Message, ...]
    approvals: tuple[str, ...] = ()
    conversation: str = ""
    calls: tuple[Call, ...] = ()


class HiddenRounds:
    """The rounds that ran on the server before calls went back to a client, found again by the history up to those calls."""

    def __init__(self) -> None:
        self._known: dict[str, LRU[HiddenRound]] = {}  # by caller

    def remember(self, subject: str, history: Sequence[Message], calls: Sequence[Call], hidden: HiddenRound) -> None:
        """Remember what a run of this caller added, which ended with these calls for the client."""
        digest = sha256(subject.encode())
        for message in history:
            digest.update(_trait(message))
        digest.update(_calls(calls))
        weight = max(_MOST_CHARACTERS // _MOST, sum(message.size for message in hidden.messages))
        self._known.setdefault(subject, LRU(_MOST_CHARACTERS)).set(digest.hexdigest(), hidden, weight)

    def restore(self, subject: str, history: Sequence[Message]) -> HiddenRound:
        """The history as the model knows it, with the approvals and the conversation of the latest hidden round."""
        restored, calls, latest = list[Message](), list[Call](), HiddenRound(())
        own, digest = self._known.get(subject, LRU[HiddenRound](0)), sha256(subject.encode())
        for message in history:
            known: tuple[Message, ...] = (message,)
            if message.calls:
                up_to_calls = digest.copy()
                up_to_calls.update(_calls(message.calls))
                if hidden := own.get(up_to_calls.hexdigest()):
                    known, latest = hidden.messages, hidden
                    calls += (call for restored_message in known for call in restored_message.calls)
            digest.update(_trait(message))
            restored += known
        return replace(latest, messages=tuple(restored), calls=tuple(calls))


def _trait(message: Message) -> bytes:
    """What is the same of a message whenever it is sent. Reasoning is not: many clients leave it out."""
    return json.dumps([message.role, message.content, message.call_id]).encode() + _calls(message.calls)


def _calls(calls: Iterable[Call]) -> bytes:
    return json.dumps([[call.id, call.name, call.arguments] for call in calls], sort_keys=True).encode()
