"""Outgoing calls: sends them, and gives the frames of their answers."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from math import inf
from secrets import token_hex

from callsmith.bus.flow import Acknowledgements
from callsmith.bus.nats.announcements import offer_digest
from callsmith.bus.nats.answers import IncomingAnswer
from callsmith.bus.nats.connection import NatsConnection
from callsmith.bus.nats.messages import NatsMessage, Signer, control_bytes, encode, sign_headers
from callsmith.bus.nats.neighbours import Neighbours
from callsmith.bus.nats.subjects import Subjects
from callsmith.bus.port import Offer, Receive
from callsmith.core.values import Json
from callsmith.wire.capability.envelopes import Envelope, write_envelope
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame

ACCEPT_SECONDS = 2.0  # within which somebody accepts a call

_SPARE_SECONDS = 1.0  # a provider that is too slow for its own limit says so itself


class OutgoingCalls:
    """The calls that this node makes of others."""

    def __init__(self, connection: NatsConnection, subjects: Subjects, neighbours: Neighbours, identity: Signer | None) -> None:
        self._connection = connection
        self._subjects = subjects
        self._neighbours = neighbours
        self._identity = identity
        self._prefix = subjects.replies(token_hex(16))
        self._numbers = count(1)
        self._answers: dict[str, IncomingAnswer] = {}  # by the subject of their messages

    async def open(self) -> None:
        await self._connection.subscribe(f"{self._prefix}*", self._take)

    def _take(self, message: NatsMessage) -> None:
        if answer := self._answers.get(message.subject):
            answer.take(message)

    def fail(self, error: BusError, node: str = "") -> None:
        """Give up all calls, or those that a node has accepted."""
        for answer in list(self._answers.values()):
            if not node or (answer.is_accepted and answer.node == node):
                answer.fail(error)

    async def request(self, envelope: Envelope, offer: Offer, *, share: bool, added: dict[str, str]) -> tuple[str, Frame]:
        """Send a call that is not streamed; the node that has answered, and the one frame of its answer."""
        sent = self._prepare(envelope, offer, share, added)
        answer, caller, loop = sent.answer, sent.caller, asyncio.get_running_loop()
        try:
            self._publish(sent)
            frame = await answer.next(min(sent.deadline, loop.time() + ACCEPT_SECONDS))
            if frame is None:
                self._check_accepted(sent)
                frame = await answer.next(min(sent.deadline, loop.time() + offer.descriptor.timeout_seconds + _SPARE_SECONDS))
            if frame is None:
                raise BusError("timeout", f"{envelope.capability} gave no answer in time", sent=True)
            caller.is_ended = True
            return answer.node, frame
        finally:
            self._leave(sent)

    async def send(
        self, envelope: Envelope, offer: Offer, *, share: bool, receive: Receive, added: dict[str, str]
    ) -> AsyncGenerator[Frame, None]:
        """Send a call with what is added to its envelope, and give the frames of its answer, of which the first is "accepted"."""
        sent = self._prepare(envelope, offer, share, added)
        answer, caller, loop = sent.answer, sent.caller, asyncio.get_running_loop()
        forwarding, acknowledgements = None, Acknowledgements()
        try:
            self._publish(sent)
            if not await answer.wait_until_accepted(min(sent.deadline, loop.time() + ACCEPT_SECONDS)):
                self._check_accepted(sent)
            forwarding = loop.create_task(caller.forward(receive))
            yield Frame("accepted", {"node": answer.node})
            frame_seconds = offer.descriptor.timeout_seconds + _SPARE_SECONDS
            while frame := await answer.next(min(sent.deadline, loop.time() + frame_seconds)):
                acknowledgements.check_order(frame)
                caller.is_ended = frame.is_end
                yield frame
                if frame.is_end:
                    return
                if upto := acknowledgements.take_due():
                    caller.control({"type": "ack", "upto": upto})
            raise BusError("timeout", f"{envelope.capability} gave no answer in time", sent=True)
        finally:
            if forwarding is not None:
                forwarding.cancel()
            self._leave(sent)

    def _prepare(self, envelope: Envelope, offer: Offer, share: bool, added: dict[str, str]) -> "_Sent":
        """A call that is about to be sent, and that its answer is awaited for."""
        number, now = str(next(self._numbers)), asyncio.get_running_loop().time()
        # A call that is repeated elsewhere gets an id of its own each time: nodes that see one twice refuse it as a replay.
        request_id = f"{envelope.request_id}-{number}"
        written = write_envelope(envelope)
        written.update(added, request_id=request_id, timestamp=time.time())
        payload = encode(written)
        if len(payload) > self._connection.most_bytes:
            most = self._connection.most_bytes
            raise BusError("bad_request", f"the call has {len(payload)} bytes, and the NATS server takes {most}")
        digest = offer_digest(offer.descriptor) if share else ""
        node = "" if share else offer.node
        answer = IncomingAnswer(request_id, node, lambda node: self._neighbours.has_offer(node, digest))
        subject = f"{self._prefix}{number}"
        where = self._subjects.call(envelope.capability, digest) if share else self._subjects.node(node)
        self._answers[subject] = answer
        deadline = inf if envelope.seconds is None else now + envelope.seconds
        caller = _Caller(self, request_id, envelope.sender, answer)
        return _Sent(envelope.capability, where, subject, payload, deadline, answer, caller)

    def _publish(self, sent: "_Sent") -> None:
        self._connection.publish(sent.where, sent.payload, sent.subject, sign_headers(self._identity, sent.payload))
        sent.caller.is_ended = False

    def _check_accepted(self, sent: "_Sent") -> None:
        if not sent.answer.is_accepted:
            code = "timeout" if asyncio.get_running_loop().time() >= sent.deadline else "partition"
            raise BusError(code, f"nobody has accepted the call of {sent.capability}", sent=True)

    def _leave(self, sent: "_Sent") -> None:
        if sent.caller.is_ended:
            del self._answers[sent.subject]
        else:
            self._cancel(sent.subject, sent.answer, sent.caller)

    def _cancel(self, subject: str, answer: IncomingAnswer, caller: "_Caller") -> None:
        """Have the provider stop: now, or as soon as it is known who it is."""
        if answer.is_accepted:
            del self._answers[subject]
            caller.control({"type": "cancel"})
            return
        loop = asyncio.get_running_loop()
        forgetting = loop.call_later(ACCEPT_SECONDS, self._answers.pop, subject, None)

        def cancel() -> None:
            forgetting.cancel()
            self._answers.pop(subject, None)
            caller.control({"type": "cancel"})

        answer.on_late = cancel

    def control(self, node: str, message: dict[str, Json]) -> None:
        """Send something to the node at which a call runs; if that cannot be done, the call ends by itself."""
        payload = encode(message)
        with suppress(BusError):
            headers = sign_headers(self._identity, control_bytes(payload))
            self._connection.publish(self._subjects.control(node), payload, "", headers)


@dataclass(slots=True)
class _Sent:
    """A call that is on its way: where to, what, and its answer on the subject for it."""

    capability: str
    where: str
    subject: str
    payload: bytes
    deadline: float
    answer: IncomingAnswer
    caller: "_Caller"


class _Caller:
    """What is sent to the provider while a call runs there."""

    def __init__(self, calls: OutgoingCalls, request_id: str, sender: str, answer: IncomingAnswer) -> None:
        self._calls = calls
        self._request_id = request_id
        self._sender = sender
        self._answer = answer
        self._numbers = count(1)
        self.is_ended = True  # or has not begun yet

    def control(self, message: dict[str, Json]) -> None:
        whole = {**message, "id": self._request_id, "from": self._sender, "n": next(self._numbers)}
        self._calls.control(self._answer.node, whole)

    async def forward(self, receive: Receive) -> None:
        """Send what the caller says while the call runs."""
        while (message := await receive()) is not None:
            self.control({"type": "message", "body": dict(message)})
        self.control({"type": "end"})
