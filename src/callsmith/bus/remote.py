"""RemoteProvider: a capability of another node, called over the transport; what is sent and what comes back is checked here."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from callsmith.bus.flow import screen_frames
from callsmith.bus.port import Answer, CapabilityCall, Offer, Transport
from callsmith.core.closing import closing
from callsmith.wire.capability.envelopes import Envelope
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame

ACCEPTED = "accepted"  # the first frame of an answer over a transport, by itself; nobody else sees it


class RemoteProvider:
    """An offer of another node. `node` is who has answered: with `share` it may be another node that has the same offer."""

    def __init__(self, transport: Transport, offer: Offer, *, share: bool) -> None:
        self._transport = transport
        self._offer = offer
        self._share = share
        self.node = "" if share else offer.node

    async def answer(self, call: CapabilityCall) -> Answer:
        descriptor = self._offer.descriptor
        descriptor.check_request(call.body)
        self.node, frame = await self._transport.request(
            self._envelope(call), self._offer, share=self._share, authority=call.authority
        )
        frame.raise_error()
        descriptor.check_response(frame.data)
        return frame.data

    async def frames(self, call: CapabilityCall) -> AsyncGenerator[Sequence[Frame], None]:
        """The frames of an answer, in bursts."""
        descriptor = self._offer.descriptor
        descriptor.check_request(call.body)
        sending = self._transport.send(
            self._envelope(call), self._offer, share=self._share, receive=call.receive, authority=call.authority
        )
        async with closing(sending) as bursts:
            async for burst in bursts:
                if burst[0].event == ACCEPTED:
                    self.node = str(burst[0].data.get("node", self.node))
                    continue
                for frames in screen_frames(burst, descriptor.check_frame):
                    yield frames
                    if frames[-1].is_end:
                        return
        raise BusError("partition", f"{call.capability} ended without its last frame", sent=True)

    def _envelope(self, call: CapabilityCall) -> Envelope:
        authority, loop = call.authority, asyncio.get_running_loop()
        seconds = None if call.deadline is None else call.deadline - loop.time()
        if seconds is None and not call.stream:  # between the frames of a stream there is that much time, again and again
            seconds = self._offer.descriptor.timeout_seconds
        if seconds is not None and seconds <= 0:
            raise BusError("timeout", f"there was no time left for {call.capability}")
        return Envelope(
            capability=call.capability,
            version=call.version,
            body=call.body,
            request_id=call.request_id,
            sender=self._transport.node,
            to="" if self._share else self._offer.node,
            session_id=call.session_id,
            seconds=seconds,
            stream=call.stream,
            subject=authority.subject,
            via=authority.via,
            trace_id=authority.trace_id or call.request_id,
            depth=authority.depth,
            trust=authority.trust,
            capabilities=authority.capabilities,
        )
