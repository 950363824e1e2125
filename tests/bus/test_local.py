"""The bus of one process: calls, streams, versions, capacity, deadlines, trust, health, sticky sessions and the trace."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.local import current_authority
from callsmith.bus.port import CapabilityCall
from callsmith.core.capability.authority import Authority
from callsmith.core.errors import BusError, UsageError
from callsmith.wire.capability.frames import Frame

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


def bus_with(descriptor: Descriptor = QUERY, handler: Any = answer, **options: Any) -> CapabilityBus:
    bus = CapabilityBus(**options)
    bus.register(descriptor, handler)
    return bus


async def code_of(work: Any) -> str:
    with pytest.raises(BusError) as failed:
        await work
    return failed.value.code


async def test_a_call_is_answered_by_whoever_offers_the_capability() -> None:
    found = await bus_with().call("rag.query", (1, 0), BODY)
    assert found == {"output": {"found": "hall", "corpus": "village"}, "meta": {}}


@pytest.mark.parametrize(
    ("version", "code"), [((1, 0), ""), ((1, 2), ""), ((1, 3), "schema_mismatch"), ((2, 0), "schema_mismatch")]
)
async def test_a_version_is_answered_by_the_same_major_and_at_least_the_minor(version: tuple[int, int], code: str) -> None:
    calling = bus_with().call("rag.query", version, BODY)
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
async def test_what_cannot_be_answered_is_refused_with_its_code(name: str, body: dict[str, Any], code: str) -> None:
    assert await code_of(bus_with().call(name, (1, 0), body)) == code


async def test_an_answer_that_does_not_fit_its_schema_is_the_providers_fault() -> None:
    async def wrong(call: CapabilityCall) -> dict[str, Any]:
        return {"output": "text"}

    assert await code_of(bus_with(handler=wrong).call("rag.query", (1, 0), BODY)) == "schema_mismatch"


async def test_a_handler_that_raises_is_an_internal_error_without_its_text() -> None:
    async def broken(call: CapabilityCall) -> dict[str, Any]:
        raise ConnectionError("password is hunter2")

    with pytest.raises(BusError) as failed:
        await bus_with(handler=broken).call("rag.query", (1, 0), BODY)
    assert failed.value.code == "internal_error"
    assert "hunter2" not in str(failed.value)


async def test_more_calls_than_the_capability_takes_are_told_to_come_again() -> None:
    gate = asyncio.Event()

    async def slow(call: CapabilityCall) -> dict[str, Any]:
        await gate.wait()
        return await answer(call)

    bus = bus_with(Descriptor("rag.query", max_concurrent=2), slow)
    running = [asyncio.create_task(bus.call("rag.query", (1, 0), BODY)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(BusError) as failed:
        await bus.call("rag.query", (1, 0), BODY)
    assert (failed.value.code, failed.value.retryable, failed.value.seconds) == ("capacity_exceeded", True, 0.5)
    gate.set()
    assert len(await asyncio.gather(*running)) == 2
    assert await bus.call("rag.query", (1, 0), BODY)


async def test_a_handler_that_ignores_its_cancellation_holds_nobody_up() -> None:
    ended = asyncio.Event()

    async def stubborn(call: CapabilityCall) -> dict[str, Any]:
        for _ in range(20):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.1)
        ended.set()
        return await answer(call)

    bus = bus_with(handler=stubborn)
    async with asyncio.timeout(1.5):
        assert await code_of(bus.call("rag.query", (1, 0), BODY, timeout=0.05)) == "timeout"
    assert not ended.is_set()
    await ended.wait()


async def test_a_capability_is_offered_until_it_is_withdrawn() -> None:
    bus = CapabilityBus()
    withdraw = bus.register(QUERY, answer)
    with pytest.raises(UsageError, match="already"):
        bus.register(QUERY, answer)
    assert [one.descriptor.name for one in bus.offers()] == ["rag.query"]
    withdraw()
    assert bus.offers() == []
    assert await code_of(bus.call("rag.query", (1, 0), BODY)) == "not_found"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"name": "weather.today"}, "namespace_violation"),
        ({"name": "weather"}, "bad_request"),
        ({"request_schema": {"type": "strnig"}}, "schema_invalid"),
        ({"max_concurrent": 0}, "bad_request"),
    ],
)
def test_a_descriptor_that_makes_no_sense_is_refused(wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(BusError) as failed:
        Descriptor(**{"name": "rag.query", **wrong})
    assert failed.value.code == code


def test_names_of_ones_own_are_experimental() -> None:
    assert Descriptor("experimental.weather").reference == "experimental.weather@1.0"


# --- streams ------------------------------------------------------------------------------------------------------------------


async def count(call: CapabilityCall) -> AsyncIterator[Frame]:
    for number in range(int(call.input.get("to", 3))):
        yield Frame("chunk", {"number": number})
    yield Frame("done", {"count": 3})


async def frames_of(bus: CapabilityBus, name: str = "rag.query", **options: Any) -> list[Frame]:
    return [frame async for frame in bus.stream(name, (1, 0), {"input": {}}, **options)]


COUNT = Descriptor("rag.query", stream_schema={"type": "object", "properties": {"data": {"type": "object"}}})


async def test_frames_are_numbered_and_the_last_is_done() -> None:
    frames = await frames_of(bus_with(COUNT, count))
    assert [(frame.event, frame.seq) for frame in frames] == [("chunk", 1), ("chunk", 2), ("chunk", 3), ("done", 4)]


async def test_what_fails_in_the_middle_ends_with_one_error() -> None:
    async def broken(call: CapabilityCall) -> AsyncIterator[Frame]:
        yield Frame("chunk")
        raise BusError("rate_limited", "later", seconds=2)

    frames = await frames_of(bus_with(COUNT, broken))
    assert [frame.event for frame in frames] == ["chunk", "error"]
    assert frames[-1].data == {"error": "rate_limited", "message": "later", "retry_after_ms": 2000}


async def test_a_stream_without_an_end_gets_an_error_as_its_end() -> None:
    async def endless(call: CapabilityCall) -> AsyncIterator[Frame]:
        yield Frame("chunk")

    assert [frame.event for frame in await frames_of(bus_with(COUNT, endless))] == ["chunk", "error"]


async def test_what_comes_after_the_end_is_dropped() -> None:
    async def chatty(call: CapabilityCall) -> AsyncIterator[Frame]:
        yield Frame("done")
        yield Frame("chunk")
        yield Frame("done")

    assert [frame.event for frame in await frames_of(bus_with(COUNT, chatty))] == ["done"]


async def test_a_call_without_a_stream_is_one_frame_and_the_other_way_round() -> None:
    (frame,) = [frame async for frame in bus_with().stream("rag.query", (1, 0), BODY)]
    assert (frame.event, frame.data["output"]["found"]) == ("done", "hall")
    assert await bus_with(COUNT, count).call("rag.query", (1, 0), {"input": {}}) == {"output": {"count": 3}, "meta": {}}


async def test_an_unknown_capability_is_an_error_frame() -> None:
    (frame,) = await frames_of(CapabilityBus())
    assert (frame.event, frame.data["error"]) == ("error", "not_found")


async def test_closing_a_stream_cancels_its_handler_within_a_moment() -> None:
    cancelled = asyncio.Event()

    async def endless(call: CapabilityCall) -> AsyncIterator[Frame]:
        try:
            while True:
                yield Frame("chunk")
                await asyncio.sleep(0.01)
        finally:
            cancelled.set()

    stream = bus_with(COUNT, endless).stream("rag.query", (1, 0), {"input": {}})
    await anext(stream)
    await stream.aclose()
    assert cancelled.is_set()


async def test_a_stream_that_falls_silent_is_given_up() -> None:
    async def silent(call: CapabilityCall) -> AsyncIterator[Frame]:
        yield Frame("chunk")
        await asyncio.sleep(60)

    frames = await frames_of(bus_with(Descriptor("rag.query", timeout_seconds=0.05), silent))
    assert [frame.event for frame in frames] == ["chunk", "error"]
    assert frames[-1].data["error"] == "timeout"


# --- trust --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("R97")
@pytest.mark.parametrize(
    ("required", "trust", "passes"),
    [
        ("member", "unknown", False),
        ("member", "member", True),
        ("trusted", "member", False),
        ("anchor", "trusted", False),
        ("self", "anchor", False),
        ("self", "self", True),
        ("unknown", "unknown", True),
    ],
)
async def test_a_caller_has_to_be_trusted_as_far_as_the_capability_says(required: Any, trust: Any, passes: bool) -> None:
    bus = bus_with(Descriptor("rag.query", trust_required=required))
    calling = bus.call("rag.query", (1, 0), BODY, authority=Authority("ann", trust=trust))
    assert (bool(await calling) if passes else await code_of(calling)) == (True if passes else "unauthorized")


@pytest.mark.req("R97")
async def test_a_call_inside_a_handler_is_made_with_the_authority_of_the_caller() -> None:
    bus = bus_with(Descriptor("rag.query", trust_required="trusted"))

    async def asks(call: CapabilityCall) -> dict[str, Any]:
        assert current_authority().subject == "ann"
        return dict(await bus.call("rag.query", (1, 0), BODY))

    bus.register(Descriptor("experimental.ask"), asks)
    assert await code_of(bus.call("experimental.ask", (1, 0), {}, authority=Authority("ann", trust="member"))) == "unauthorized"
    assert await bus.call("experimental.ask", (1, 0), {}, authority=Authority("ann", trust="trusted"))


@pytest.mark.req("R96")
async def test_calls_inside_calls_come_to_an_end() -> None:
    bus = CapabilityBus()
    depth = 0

    async def recurse(call: CapabilityCall) -> dict[str, Any]:
        nonlocal depth
        depth += 1
        return dict(await bus.call("experimental.again", (1, 0), {}))

    bus.register(Descriptor("experimental.again"), recurse)
    with pytest.raises(BusError, match="nested 6 deep"):
        await bus.call("experimental.again", (1, 0), {})
    assert depth == 6


async def test_a_token_is_worth_nothing_where_no_issuer_is_known() -> None:
    assert (
        await code_of(bus_with().call("rag.query", (1, 0), BODY, authority=Authority("ann", token="hntoken://v1/x.y.z")))
        == "token_invalid"
    )


# --- health and trace ---------------------------------------------------------------------------------------------------------


async def test_a_provider_that_fails_more_often_than_not_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("callsmith.bus.routing.router.time.monotonic", lambda: now)
    calls, works = 0, False

    async def broken(call: CapabilityCall) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if not works:
            raise RuntimeError
        return await answer(call)

    bus = bus_with(handler=broken)
    codes = [await code_of(bus.call("rag.query", (1, 0), BODY)) for _ in range(7)]
    assert codes == ["internal_error"] * 5 + ["partition"] * 2
    now += 61
    assert await code_of(bus.call("rag.query", (1, 0), BODY)) == "internal_error"  # one call tries it
    assert (await code_of(bus.call("rag.query", (1, 0), BODY)), calls) == ("partition", 6)
    now, works = now + 61, True
    assert await bus.call("rag.query", (1, 0), BODY)
    assert await bus.call("rag.query", (1, 0), BODY)


async def test_mistakes_of_callers_do_not_quarantine_a_provider() -> None:
    bus = bus_with()
    for _ in range(10):
        assert await code_of(bus.call("rag.query", (1, 0), {"input": {}})) == "schema_mismatch"
    assert await bus.call("rag.query", (1, 0), BODY)


async def test_every_call_leaves_a_trace_without_its_content() -> None:
    seen: list[Any] = []
    bus = bus_with(observers=(seen.append,))
    await bus.call("rag.query", (1, 0), BODY, authority=Authority("ann", trust="member", trace_id="t1"))
    await code_of(bus.call("rag.query", (1, 0), {"input": {}}))
    first, second = bus.trace.recent()
    assert (first.capability, first.result, first.authority.subject, first.is_local) == ("rag.query", "ok", "ann", True)
    assert second.result == "schema_mismatch"
    assert bus.trace.counts() == {("rag.query", "ok"): 1, ("rag.query", "schema_mismatch"): 1}
    assert seen == [first, second]
    assert "hall" not in repr(first)


async def test_patterns_of_an_authority_hold_for_calls_that_are_made_in_turn() -> None:
    bus = bus_with()

    async def ask(call: CapabilityCall) -> dict[str, Any]:
        return {**await bus.call("rag.query", (1, 0), BODY)}

    bus.register(Descriptor("experimental.ask"), ask)
    assert await bus.call("experimental.ask", (1, 0), {}, authority=Authority("alice", trust="member"))
    narrow = Authority("alice", trust="member", capabilities=("experimental.*",))
    assert await code_of(bus.call("experimental.ask", (1, 0), {}, authority=narrow)) == "unauthorized"
    assert await code_of(bus.call("rag.query", (1, 0), BODY, authority=narrow)) == "unauthorized"
