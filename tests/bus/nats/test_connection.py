"""What a connection writes, as a server on the other side sees it."""

import asyncio

import pytest

from callsmith.bus.nats.connection import NatsConnection
from callsmith.bus.nats.messages import NatsMessage
from tests.waiting import until

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


async def test_messages_are_read_however_they_are_cut_into_pieces() -> None:
    """With and without headers, a reply and a payload, with other lines between them, and with what cannot be read among them."""
    large = bytes(range(256)) * 20
    lines = [
        b"MSG calls 1 5\r\nfirst\r\nPING\r\nMSG calls 1 back.to.me 6\r\nsecond\r\n+OK\r\n",
        b"HMSG calls 1 22 27\r\nNATS/1.0\r\nKey: two\r\n\r\nthird\r\nMSG calls 1 0\r\n\r\nMSG calls 99 4\r\nlost\r\n",
        b"HMSG calls 1 back 6 10\r\nNONSENlost\r\nMSG \xff 1 4\r\nlost\r\nHMSG calls 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"MSG calls 1 %d\r\n%s\r\nMSG calls 1 12\r\nMSG calls 1 \r\nMSG calls 1 4\r\nlast\r\n" % (len(large), large),
    ]
    written = b"".join(lines)
    for size in (1, 7, 100, len(written)):
        taken: list[NatsMessage] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int = size) -> None:
            writer.write(INFO)
            while line := await reader.readline():
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
                elif line.startswith(b"SUB"):
                    for start in range(0, len(written), size):
                        writer.write(written[start : start + size])
                        await asyncio.sleep(0)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            connection = NatsConnection([f"nats://127.0.0.1:{port}"], on_lost=lambda: None, on_return=lambda: None)
            await connection.open()
            await connection.subscribe("calls", taken.append)
            await until(lambda taken=taken: taken and taken[-1].data == b"last")
            await connection.close()
        assert [message.data for message in taken] == [b"first", b"second", b"third", b"", b"", large, b"MSG calls 1 ", b"last"]
        assert [message.reply for message in taken[:2]] == ["", "back.to.me"]
        assert taken[2].headers == {"Key": "two"} and taken[4].is_refused


async def test_a_server_whose_pongs_are_behind_many_messages_is_not_taken_for_gone() -> None:
    lost, taken, pings = list[bool](), list[NatsMessage](), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal pings
        writer.write(INFO)
        while line := await reader.readline():
            if line == b"PING\r\n":
                pings += 1
                writer.write(b"PONG\r\n" if pings == 1 else b"MSG beat 1 1\r\nx\r\n")  # the first is that of the greeting

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connection = NatsConnection([url], on_lost=lambda: lost.append(True), on_return=lambda: None)
        await connection.open()
        await connection.subscribe("beat", taken.append)
        await until(lambda: lost or len(taken) > 4)
        assert not lost and connection.is_up
        await connection.close()
