"""The bus of one process: calls, streams, versions, capacity, deadlines, trust, health, sticky sessions and the trace."""

from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.local import current_authority
from callsmith.bus.port import CapabilityCall
from callsmith.bus.router import Health
from callsmith.core.capability.authority import Authority
from callsmith.core.capability.execution import Execution
from callsmith.core.errors import StoreUnavailable, UsageError
from callsmith.wire.capability.errors import BusError
from tests.bus.contract import BODY, QUERY, BusContract, BusWith, answer, code_of, frames_of


def bus_with(descriptor: Descriptor = QUERY, handler: Any = answer, **options: Any) -> CapabilityBus:
    bus = CapabilityBus(**options)
    bus.register(descriptor, handler)
    return bus


class TestLocal(BusContract):
    @pytest.fixture
    def bus_with(self) -> BusWith:
        async def make(descriptor: Descriptor = QUERY, handler: Any = answer) -> CapabilityBus:
            return bus_with(descriptor, handler)

        return make


async def test_a_capability_is_offered_until_it_is_withdrawn() -> None:
    bus = CapabilityBus()
    withdraw = bus.register(QUERY, answer)
    with pytest.raises(UsageError, match="already"):
        bus.register(QUERY, answer)
    assert [offer.descriptor.name for offer in bus.offers()] == ["rag.query"]
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


async def test_an_unknown_capability_is_an_error_frame() -> None:
    (frame,) = await frames_of(CapabilityBus())
    assert (frame.event, frame.data["error"]) == ("error", "not_found")


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
    monkeypatch.setattr("callsmith.bus.router.time.monotonic", lambda: now)
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


def test_a_call_that_began_before_the_quarantine_does_not_decide_whether_it_is_over() -> None:
    health, now = Health(), 1000.0
    health.begin()  # ends below
    for _ in range(5):
        health.begin()
        health.end(False, 0.1, now)
    assert health.is_quarantined
    now += 61
    assert health.is_available(now)
    health.begin()
    health.end(False, 61.0, now)
    assert not health.is_available(now)  # one call tries it, still
    health.end(True, 0.1, now + 0.1)
    assert not health.is_quarantined


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


# --- audit --------------------------------------------------------------------------------------------------------------------


async def test_every_capability_that_runs_is_reported_before_it_does_and_when_it_has_ended() -> None:
    reported: list[Execution] = []

    async def audit(execution: Execution) -> None:
        reported.append(execution)

    async def pay(call: CapabilityCall) -> dict[str, Any]:
        assert [item.outcome for item in reported] == [""]
        if call.input.get("fail"):
            raise BusError("rate_limited", "later")
        return {"output": {}, "meta": {}}

    bus = bus_with(Descriptor("market.post", side_effects=True), pay, audit=audit)
    ann = Authority("ann", ("node-b",), trust="member", trace_id="t1")
    await bus.call("market.post", (1, 0), {"input": {"euros": 5}}, authority=ann)
    first, last = reported
    assert (first.kind, first.name, first.subject, first.via, first.trace_id) == (
        "capability",
        "market.post",
        "ann",
        ("node-b",),
        "t1",
    )
    assert (first.side_effects, first.id == last.id, last.outcome) == (True, True, "ok")
    assert last.seconds is not None
    reported.clear()
    assert await code_of(bus.call("market.post", (1, 0), {"input": {"fail": True}})) == "rate_limited"
    assert [item.outcome for item in reported] == ["", "rate_limited"]
    reported.clear()
    frames = [frame async for frame in bus.stream("market.post", (1, 0), {"input": {}})]
    assert (frames[-1].event, [item.outcome for item in reported]) == ("done", ["", "ok"])


async def test_what_cannot_be_reported_does_not_run() -> None:
    async def audit(execution: Execution) -> None:
        raise StoreUnavailable("the store is away")

    ran: list[CapabilityCall] = []

    async def pay(call: CapabilityCall) -> dict[str, Any]:
        ran.append(call)
        return {"output": {}, "meta": {}}

    bus = bus_with(Descriptor("market.post", side_effects=True), pay, audit=audit)
    assert (await code_of(bus.call("market.post", (1, 0), {"input": {}})), ran) == ("internal_error", [])
