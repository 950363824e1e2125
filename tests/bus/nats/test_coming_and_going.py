"""Nodes that come and go in odd ways: starts that are broken off, closings at once, clocks that are set, messages too long."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.nats.connection import NatsConnection
from callsmith.bus.opening import open_bus
from callsmith.bus.port import CapabilityCall
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from tests.bus.contract import BODY, COUNT, QUERY, answer
from tests.nats_server import NatsServer
from tests.waiting import until

pytestmark = pytest.mark.nats


@pytest.fixture
async def caller(server: NatsServer) -> AsyncIterator[CapabilityBus]:
    async with open_bus(server.url, trust_unsigned="member") as bus:
        yield bus


async def test_a_start_that_is_cancelled_leaves_nothing_behind(
    server: NatsServer, caller: CapabilityBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callsmith.bus.nats.transport.DISCOVERY_SECONDS", 60)  # it does not end by itself before
    bus = open_bus(server.url, trust_unsigned="member")
    bus.register(QUERY, answer)
    starting = asyncio.create_task(bus.start())
    await until(lambda: caller.offers("rag.query"))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: not caller.offers("rag.query"))


async def test_a_start_that_fails_half_way_and_is_tried_again_answers_each_call_once(
    server: NatsServer, caller: CapabilityBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[CapabilityCall]()

    async def take(call: CapabilityCall) -> dict[str, Any]:
        calls.append(call)
        return await answer(call)

    publish, sent = NatsConnection.publish, list[str]()

    def lost(self: NatsConnection, subject: str, *message: Any, **options: Any) -> None:
        sent.append(subject)
        if len(sent) > 1:
            raise BusError("partition", "the connection is lost")
        publish(self, subject, *message, **options)

    bus = open_bus(server.url, trust_unsigned="member")
    bus.register(QUERY, take)
    with monkeypatch.context() as broken:
        broken.setattr(NatsConnection, "publish", lost)
        with pytest.raises(BusError, match="lost"):
            await bus.start()
    async with bus:
        await until(lambda: caller.offers("rag.query"))
        assert await caller.call("rag.query", (1, 0), BODY)
        await asyncio.sleep(0.2)
    assert len(calls) == 1


async def test_a_bus_may_be_closed_by_several_at_once(server: NatsServer, caller: CapabilityBus) -> None:
    bus = open_bus(server.url, trust_unsigned="member")
    await bus.start()
    bus.register(QUERY, answer)
    await asyncio.gather(*(bus.close() for _ in range(3)))
    await bus.close()
    await until(lambda: not caller.offers("rag.query"))


async def test_what_a_caller_sends_and_the_server_does_not_take_ends_that_call_alone(
    server: NatsServer, caller: CapabilityBus
) -> None:
    async def ask(call: CapabilityCall) -> AsyncIterator[Frame]:
        yield Frame("question")
        yield Frame("done", {"said": bool(await call.receive())})

    async def wait(call: CapabilityCall) -> dict[str, Any]:
        await asyncio.sleep(0.5)
        return {"output": {}}

    messages = iter([{"text": "x" * 2_000_000}])

    async def too_long() -> dict[str, Any] | None:
        return next(messages, None)

    async def broken() -> dict[str, Any]:
        raise ConnectionError

    async with open_bus(server.url, trust_unsigned="member") as bus, AsyncExitStack() as stack:
        stack.callback(bus.register(COUNT, ask))
        stack.callback(bus.register(Descriptor("experimental.wait"), wait))
        await until(lambda: caller.offers("experimental.wait"))
        waiting = asyncio.create_task(caller.call("experimental.wait", (1, 0), {}))
        for receive, code in ((too_long, "bad_request"), (broken, "internal_error")):
            async with asyncio.timeout(20):
                frames = [frame async for frame in caller.stream("rag.query", (1, 0), {"input": {}}, receive=receive)]
            assert (frames[-1].event, frames[-1].data["error"]) == ("error", code)
        assert await waiting == {"output": {}}


@pytest.mark.parametrize("known", [True, False], ids=["of a node that is heard", "of one that only calls"])
async def test_calls_in_time_are_answered_by_a_node_whose_clock_was_set_forward(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    now = time.time
    async with (
        open_bus(server.url, trust_unsigned="member") as bus,
        open_bus(server.url, trust_unsigned="member", calls_only=not known) as calling,
    ):
        bus.register(QUERY, answer)
        await until(lambda: calling.offers("rag.query"))
        monkeypatch.setattr("callsmith.bus.nats.neighbours.time", SimpleNamespace(time=lambda: now() + 3600))
        if known:
            assert await calling.call("rag.query", (1, 0), BODY)
        else:  # nobody knows its clock
            with pytest.raises(BusError, match="after its deadline"):
                await calling.call("rag.query", (1, 0), BODY)


async def test_a_node_that_cannot_say_what_it_offers_since_the_server_takes_less_says_so(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bus(server.url) as bus:
        transport: Any = bus._transport  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(transport._connection, "most_bytes", 4096)
        bus.register(Descriptor("experimental.long", description="x" * 5000), answer)
        await until(lambda: "the NATS server takes 4096" in caplog.text)
