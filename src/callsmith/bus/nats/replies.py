"""Replies: the answer to one call, as its provider sends it."""

from callsmith.bus.nats.connection import NatsConnection
from callsmith.bus.nats.messages import PART, Signer, encode, reply_bytes, sign_headers
from callsmith.core.values import Json
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame, error_frame

MOST_BYTES = 64 * 1024 * 1024  # of a frame


class Replies:
    """Sends the frames of an answer. The first message says which node answers."""

    def __init__(self, connection: NatsConnection, subject: str, request_id: str, node: str, identity: Signer | None) -> None:
        self._connection = connection
        self._subject = subject
        self._request_id = request_id
        self._node = node
        self._identity = identity
        self._is_named = False

    def accept(self) -> None:
        """Let the caller know that its call runs here, unless it knows by the answer itself."""
        if not self._is_named:
            self.send(Frame("accepted"))

    def close(self) -> None:
        """Nothing more is sent, not even that the call runs."""
        self._is_named = True

    def send(self, frame: Frame) -> None:
        """Send a frame, in several messages if it is longer than one may be."""
        payload = self._encode(frame)
        most = self._connection.most_bytes
        if len(payload) <= most:
            self._publish(payload)
            self._is_named = True
            return
        self.accept()
        if len(payload) > MOST_BYTES:
            frame = error_frame(BusError("internal_error", f"the answer has more than {MOST_BYTES} bytes, and cannot be sent"))
            payload = self._encode(Frame(frame.event, frame.data, frame.seq))
        parts = [payload[start : start + most] for start in range(0, len(payload), most)]
        for number, part in enumerate(parts, 1):
            self._publish(part, f"{number}/{len(parts)}")

    def _encode(self, frame: Frame) -> bytes:
        entries: dict[str, Json] = {"event": frame.event, "data": frame.data, "seq": frame.seq}
        if not self._is_named:
            entries["node"] = self._node
        return encode(entries)

    def _publish(self, payload: bytes, part: str = "") -> None:
        headers = {PART: part} if part else None
        if self._identity is not None:
            headers = sign_headers(self._identity, reply_bytes(self._request_id, part, payload), headers)
        self._connection.publish(self._subject, payload, "", headers)
