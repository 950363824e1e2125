"""What every bus does, however it is connected: subclass `BusContract`, give it `bus_with`, and the tests below are yours."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from tests.waiting import until

BusWith = Callable[..., Awaitable[CapabilityBus]]

QUERY = Descriptor(
    "rag.query",
    (1, 2),
    {
        "type": "object",
        "properties": {"input": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}},
        "required": ["input"],
    },
    {"type": "object", "properties": {"output": {"type": "object"}}, "required": ["output"]},
    params={"corpus": ["village", "city"]},
)
BODY = {"params": {"corpus": "village"}, "input": {"query": "hall"}}


async def answer(call: CapabilityCall) -> dict[str, Any]:
    return {"output": {"found": call.input["query"], "corpus": call.params.get("corpus")}, "meta": {}}


async def code_of(work: Any) -> str:
    with pytest.raises(BusError) as failed:
        await work
    return failed.value.code


async def count(call: CapabilityCall) -> AsyncIterator[Frame]:
    for number in range(int(call.input.get("to", 3))):
        yield Frame("chunk", {"number": number})
    yield Frame("done", {"count": 3})


async def frames_of(bus: CapabilityBus, name: str = "rag.query", **options: Any) -> list[Frame]:
    return [frame async for frame in bus.stream(name, (1, 0), {"input": {}}, **options)]


COUNT = Descriptor("rag.query", stream_schema={"type": "object", "properties": {"data": {"type": "object"}}})


class BusContract:
    """Give `bus_with(descriptor, handler)`: a bus to call, with this one capability offered where it can be called."""

    async def test_a_call_is_answered_by_whoever_offers_the_capability(self, bus_with: BusWith) -> None:
        response = await (await bus_with()).call("rag.query", (1, 0), BODY)
        assert response == {"output": {"found": "hall", "corpus": "village"}, "meta": {}}

    @pytest.mark.parametrize(
        ("version", "code"), [((1, 0), ""), ((1, 2), ""), ((1, 3), "schema_mismatch"), ((2, 0), "schema_mismatch")]
    )
    async def test_a_version_is_answered_by_the_same_major_and_at_least_the_minor(
        self, bus_with: BusWith, version: tuple[int, int], code: str
    ) -> None:
        calling = (await bus_with()).call("rag.query", version, BODY)
        assert (await code_of(calling) if code else bool(await calling)) == (code or True)

    @pytest.mark.parametrize(
        ("name", "body", "code"),
        [
            ("rag.other", BODY, "not_found"),
            ("rag.query", {"params": {"corpus": "moon"}, "input": {"query": "hall"}}, "not_found"),
            ("rag.query", {"params": {"corpus": "village"}, "input": {}}, "schema_mismatch"),
            ("rag.query", {"params": {"corpus": "village"}, "input": {"query": 5}}, "schema_mismatch"),
            ("RAG.query", BODY, "bad_request"),
            ("rag.quеry", BODY, "bad_request"),  # with a Cyrillic letter
        ],
    )
    async def test_what_cannot_be_answered_is_refused_with_its_code(
        self, bus_with: BusWith, name: str, body: dict[str, Any], code: str
    ) -> None:
        assert await code_of((await bus_with()).call(name, (1, 0), body)) == code

    async def test_an_answer_that_does_not_fit_its_schema_is_the_providers_fault(self, bus_with: BusWith) -> None:
        async def wrong(call: CapabilityCall) -> dict[str, Any]:
            return {"output": "text"}

        assert await code_of((await bus_with(handler=wrong)).call("rag.query", (1, 0), BODY)) == "schema_mismatch"

    async def test_a_handler_that_raises_is_an_internal_error_without_its_text(self, bus_with: BusWith) -> None:
        async def broken(call: CapabilityCall) -> dict[str, Any]:
            raise ConnectionError("password is hunter2")

        with pytest.raises(BusError) as failed:
            await (await bus_with(handler=broken)).call("rag.query", (1, 0), BODY)
        assert failed.value.code == "internal_error"
        assert "hunter2" not in str(failed.value)

    async def test_more_calls_than_the_capability_takes_are_told_to_come_again(self, bus_with: BusWith) -> None:
        gate, started = asyncio.Event(), 0

        async def slow(call: CapabilityCall) -> dict[str, Any]:
            nonlocal started
            started += 1
            await gate.wait()
            return await answer(call)

        bus = await bus_with(Descriptor("rag.query", max_concurrent=2), slow)
        running = [asyncio.create_task(bus.call("rag.query", (1, 0), BODY)) for _ in range(2)]
        await until(lambda: started == 2)
        with pytest.raises(BusError) as failed:
            await bus.call("rag.query", (1, 0), BODY)
        assert (failed.value.code, failed.value.retryable, failed.value.seconds) == ("capacity_exceeded", True, 0.5)
        gate.set()
        assert len(await asyncio.gather(*running)) == 2
        assert await bus.call("rag.query", (1, 0), BODY)

    async def test_a_handler_that_ignores_its_cancellation_holds_nobody_up(self, bus_with: BusWith) -> None:
        ended = asyncio.Event()

        async def stubborn(call: CapabilityCall) -> dict[str, Any]:
            for _ in range(20):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.1)
            ended.set()
            return await answer(call)

        bus = await bus_with(handler=stubborn)
        async with asyncio.timeout(1.5):
            assert await code_of(bus.call("rag.query", (1, 0), BODY, timeout=0.05)) == "timeout"
        assert not ended.is_set()
        await ended.wait()

    async def test_frames_are_numbered_and_the_last_is_done(self, bus_with: BusWith) -> None:
        frames = await frames_of(await bus_with(COUNT, count))
        assert [(frame.event, frame.seq) for frame in frames] == [("chunk", 1), ("chunk", 2), ("chunk", 3), ("done", 4)]

    async def test_what_fails_in_the_middle_ends_with_one_error(self, bus_with: BusWith) -> None:
        async def broken(call: CapabilityCall) -> AsyncIterator[Frame]:
            yield Frame("chunk")
            raise BusError("rate_limited", "later", seconds=2)

        frames = await frames_of(await bus_with(COUNT, broken))
        assert [frame.event for frame in frames] == ["chunk", "error"]
        assert frames[-1].data == {"error": "rate_limited", "message": "later", "retry_after_ms": 2000}

    async def test_a_stream_without_an_end_gets_an_error_as_its_end(self, bus_with: BusWith) -> None:
        async def endless(call: CapabilityCall) -> AsyncIterator[Frame]:
            yield Frame("chunk")

        assert [frame.event for frame in await frames_of(await bus_with(COUNT, endless))] == ["chunk", "error"]

    async def test_what_comes_after_the_end_is_dropped(self, bus_with: BusWith) -> None:
        async def chatty(call: CapabilityCall) -> AsyncIterator[Frame]:
            yield Frame("done")
            yield Frame("chunk")
            yield Frame("done")

        assert [frame.event for frame in await frames_of(await bus_with(COUNT, chatty))] == ["done"]

    async def test_a_call_without_a_stream_is_one_frame_and_the_other_way_round(self, bus_with: BusWith) -> None:
        (frame,) = [frame async for frame in (await bus_with()).stream("rag.query", (1, 0), BODY)]
        assert (frame.event, frame.data["output"]["found"]) == ("done", "hall")
        assert await (await bus_with(COUNT, count)).call("rag.query", (1, 0), {"input": {}}) == {
            "output": {"count": 3},
            "meta": {},
        }

    async def test_closing_a_stream_cancels_its_handler_within_a_moment(self, bus_with: BusWith) -> None:
        cancelled = asyncio.Event()

        async def endless(call: CapabilityCall) -> AsyncIterator[Frame]:
            try:
                while True:
                    yield Frame("chunk")
                    await asyncio.sleep(0.01)
            finally:
                cancelled.set()

        stream = (await bus_with(COUNT, endless)).stream("rag.query", (1, 0), {"input": {}})
        await anext(stream)
        await stream.aclose()
        async with asyncio.timeout(1):
            await cancelled.wait()

    async def test_the_trace_says_how_a_stream_has_ended(self, bus_with: BusWith) -> None:
        async def broken(call: CapabilityCall) -> AsyncIterator[Frame]:
            yield Frame("chunk")
            raise BusError("rate_limited", "later")

        async def sad(call: CapabilityCall) -> AsyncIterator[Frame]:
            yield Frame("error", {"error": "rate_limited", "message": "later"})

        for handler, result in ((count, "ok"), (broken, "rate_limited"), (sad, "rate_limited")):
            bus = await bus_with(COUNT, handler)
            await frames_of(bus)
            assert bus.trace.recent()[-1].result == result
        bus = await bus_with(COUNT, count)
        stream = bus.stream("rag.query", (1, 0), {"input": {}})
        await anext(stream)
        await stream.aclose()
        assert bus.trace.recent()[-1].result == "cancelled"

    async def test_a_stream_that_falls_silent_is_given_up(self, bus_with: BusWith) -> None:
        async def silent(call: CapabilityCall) -> AsyncIterator[Frame]:
            yield Frame("chunk")
            await asyncio.sleep(60)

        frames = await frames_of(await bus_with(replace(COUNT, timeout_seconds=0.05), silent))
        assert [frame.event for frame in frames] == ["chunk", "error"]
        assert frames[-1].data["error"] == "timeout"

    async def test_mistakes_of_callers_do_not_quarantine_a_provider(self, bus_with: BusWith) -> None:
        bus = await bus_with()
        for _ in range(10):
            assert await code_of(bus.call("rag.query", (1, 0), {"input": {}})) == "schema_mismatch"
        assert await bus.call("rag.query", (1, 0), BODY)
