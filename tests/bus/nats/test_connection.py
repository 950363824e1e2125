"""What a connection writes, as a server on the other side sees it."""

import asyncio

import pytest

from callsmith.bus.nats.connection import NatsConnection

pytestmark = pytest.mark.nats

INFO = b'INFO {"server_id":"x","version":"2.10.0","proto":1,"headers":true,"max_payload":1048576}\r\n'


class RecordingServer:
    """The least of a NATS server: it lets everybody in, answers pings, and remembers the lines it was sent."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while line := await reader.readline():
            self.lines.append(line.strip())
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
        writer.close()


async def test_the_ping_that_ends_a_subscription_comes_after_its_end() -> None:
    """Else calls that the server sends between the two would be taken by nobody."""
    recording = RecordingServer()
    async with await asyncio.start_server(recording.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = NatsConnection([f"nats://127.0.0.1:{port}"], on_lost=lambda: None, on_return=lambda: None)
        await connection.open()
        await connection.subscribe("calls", lambda message: None)
        for _ in range(20):  # what closely follows is written later, together
            connection.publish("beat", b"x", "beat")
        del recording.lines[:]
        await connection.unsubscribe("calls")
        await connection.close()
    ends = [number for number, line in enumerate(recording.lines) if line.startswith(b"UNSUB")]
    assert ends
    assert recording.lines.index(b"PING") > ends[0]
