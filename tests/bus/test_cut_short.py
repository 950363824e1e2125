"""Handlers that are cut short: by their own doing, by callers who cancel more than once, and by deadlines while frames wait."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.port import CapabilityCall
from callsmith.core.capability.authority import Authority
from callsmith.wire.capability.envelopes import Envelope
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from tests.bus.contract import BODY, COUNT, QUERY, frames_of


async def wait_for_something_cancelled() -> None:
    """As a handler does that shares its work with others, who have given up."""
    work = asyncio.get_running_loop().create_future()
    work.cancel()
    await work


@pytest.mark.parametrize("how", ["call", "stream", "from elsewhere"])
async def test_a_handler_that_waits_for_something_cancelled_has_failed_and_its_caller_is_not_cancelled(how: str) -> None:
    async def whole(call: CapabilityCall) -> dict[str, Any]:
        await wait_for_something_cancelled()
        return {"output": {}}

    async def streamed(call: CapabilityCall) -> AsyncIterator[Frame]:
        yield Frame("chunk")
        await wait_for_something_cancelled()

    bus = CapabilityBus()
    bus.register(*((COUNT, streamed) if how == "stream" else (QUERY, whole)))
    if how == "stream":
        last = (await asyncio.create_task(frames_of(bus)))[-1]
    elif how == "from elsewhere":
        last = await asyncio.create_task(bus.answer(Envelope(capability="rag.query", version=(1, 0), body=BODY), Authority()))
    else:
        with pytest.raises(BusError) as failed:
            await asyncio.create_task(bus.call("rag.query", (1, 0), BODY))
        last = Frame("error", {"error": failed.value.code})
    assert (last.event, last.data["error"]) == ("error", "internal_error")


async def test_a_reader_that_is_cancelled_twice_gives_its_place_back() -> None:
    is_reading = asyncio.Event()

    async def slow_to_end(call: CapabilityCall) -> AsyncIterator[Frame]:
        try:
            yield Frame("chunk")
            is_reading.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)

    bus = CapabilityBus()
    bus.register(replace(COUNT, max_concurrent=1), slow_to_end)
    reading = asyncio.create_task(frames_of(bus))
    await is_reading.wait()
    for _ in range(2):
        reading.cancel()
        await asyncio.sleep(0.01)
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    stream = bus.stream("rag.query", (1, 0), {"input": {}})
    assert (await anext(stream)).event == "chunk"
    await stream.aclose()


async def test_a_stream_that_always_has_frames_ends_at_its_deadline() -> None:
    async def quick(call: CapabilityCall) -> AsyncIterator[Frame]:
        while True:
            yield Frame("chunk")
            await asyncio.sleep(0)

    bus = CapabilityBus()
    bus.register(COUNT, quick)
    async with asyncio.timeout(10):
        frames = await frames_of(bus, timeout=0.1)
    assert frames[-1].data["error"] == "timeout"


async def test_what_ended_before_its_deadline_is_read_after_it() -> None:
    async def quick(call: CapabilityCall) -> AsyncIterator[Frame]:
        for _ in range(20):
            yield Frame("chunk")
        yield Frame("done")

    bus = CapabilityBus()
    bus.register(COUNT, quick)
    events = list[str]()
    async for frame in bus.stream("rag.query", (1, 0), {"input": {}}, timeout=1):
        events.append(frame.event)
        await asyncio.sleep(0.07)
    assert events == [*["chunk"] * 20, "done"]
