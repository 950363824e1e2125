"""What goes wrong between nodes: processes that are killed or hang, a server that dies. Calls end in time; none runs twice."""

import asyncio
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.opening import open_bus
from callsmith.bus.port import CapabilityCall
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from tests.bus.nats.conftest import Providers
from tests.nats_server import NatsServer
from tests.waiting import until

pytestmark = pytest.mark.nats

SPARE = 1.0  # seconds by which a call may end after its deadline


async def ended(
    bus: CapabilityBus, name: str, timeout: float = 20, *, within: float = 0, session: str = "", **fields: Any
) -> Any:
    """The output of a call or the error with which it ends, by its deadline or even within fewer seconds."""
    async with asyncio.timeout((within or timeout) + SPARE):
        try:
            answer = await bus.call(f"experimental.{name}", (1, 0), {"input": fields}, timeout=timeout, session_id=session)
        except BusError as error:
            return error
    return answer["output"]


async def frames(bus: CapabilityBus, timeout: float = 20, *, within: float = 0, **fields: Any) -> list[Frame]:
    async with asyncio.timeout((within or timeout) + SPARE):
        return [frame async for frame in bus.stream("experimental.count", (1, 0), {"input": fields}, timeout=timeout)]


async def knows(bus: CapabilityBus, *nodes: str) -> None:
    """Wait until the bus knows what these nodes offer, and of no others."""
    await until(lambda: {offer.node for offer in bus.offers("experimental.who")} == set(nodes))


async def test_calls_go_on_while_others_fail(bus: CapabilityBus, providers: Providers) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    results = await asyncio.gather(
        ended(bus, "effect", 10, key="a", seconds=0.3),
        ended(bus, "effect", 1, key="late", seconds=5),  # time enough to begin
        *(ended(bus, "effect", 10, key=f"k{number}") for number in range(30)),
    )
    assert results[0]["key"] == "a"
    assert results[1].code == "timeout"
    assert [result["key"] for result in results[2:]] == [f"k{number}" for number in range(30)]
    await providers.has_done("cancelled late")
    assert set(providers.effects().values()) == {1}


@pytest.mark.parametrize("name", ["effect", "again"])
async def test_a_provider_that_is_killed_in_the_middle_of_a_call(bus: CapabilityBus, providers: Providers, name: str) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    calling = asyncio.create_task(ended(bus, name, 20, within=5, key="a", seconds=15))
    await providers.has_done("begun a")
    await asyncio.sleep(0.2)
    first.kill()
    error = await calling
    assert (error.code, error.sent) == ("partition", True)
    assert (await ended(bus, "who", 5)).code in ("partition", "not_found")
    assert providers.effects()["begun a"] == 1


@pytest.mark.parametrize(("name", "runs"), [("effect", 1), ("again", 2)])
async def test_only_what_may_run_twice_is_run_elsewhere(bus: CapabilityBus, providers: Providers, name: str, runs: int) -> None:
    started = {name: providers.start(name) for name in ("one", "two")}
    await knows(bus, *(item.node for item in started.values()))
    calling = asyncio.create_task(ended(bus, name, 20, key="a", seconds=6))
    await providers.has_done("begun a")
    ran = providers.lines()[0].split()[0]
    started[ran].kill()
    result = await calling
    assert (result.code == "partition") if runs == 1 else (result["name"] != ran)
    assert providers.effects()["begun a"] == runs


async def test_a_provider_that_is_killed_in_the_middle_of_a_stream(bus: CapabilityBus, providers: Providers) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    reading = asyncio.create_task(frames(bus, 20, within=6, key="a", to=1000, seconds=0.05))
    await providers.has_done("begun a")
    await asyncio.sleep(0.3)
    first.kill()
    received = await reading
    assert len(received) > 2
    assert [frame.seq for frame in received] == list(range(1, len(received) + 1))
    assert (received[-1].event, received[-1].data["error"]) == ("error", "partition")
    assert providers.effects()["begun a"] == 1


async def test_a_provider_that_hangs_and_comes_back(bus: CapabilityBus, providers: Providers) -> None:
    first, two = providers.start("one"), providers.start("two")
    await knows(bus, first.node, two.node)
    first.hang()
    results = await asyncio.gather(*(ended(bus, "effect", 8, key=f"k{number}") for number in range(20)))
    codes = {result.code for result in results if isinstance(result, BusError)}
    assert codes <= {"partition"}
    await knows(bus, two.node)
    assert (await ended(bus, "who", 5))["name"] == "two"
    first.wake()
    await knows(bus, first.node, two.node)
    await asyncio.sleep(0.5)
    done = providers.effects()
    assert all(done[f"begun k{number}"] <= 1 for number in range(20))
    assert all(done[f"begun {result['key']}"] == 1 for result in results if not isinstance(result, BusError))


async def test_a_call_that_comes_after_its_deadline_is_not_run(bus: CapabilityBus, providers: Providers) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    await asyncio.sleep(2)  # clocks are known as exactly as messages are quick
    first.hang()
    error = await ended(bus, "effect", 1, key="late")
    assert (error.code, error.sent) == ("timeout", True)
    await asyncio.sleep(1)
    first.wake()
    assert (await ended(bus, "effect", 10, key="next"))["key"] == "next"
    assert providers.effects()["begun late"] == 0


async def test_a_server_that_is_killed_and_comes_back(bus: CapabilityBus, providers: Providers, server: NatsServer) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    calling = asyncio.create_task(ended(bus, "effect", 20, within=2, key="a", seconds=10))
    reading = asyncio.create_task(frames(bus, 20, within=2, key="b", to=1000, seconds=0.05))
    await providers.has_done("begun a")
    await providers.has_done("begun b")
    server.kill()
    error, read = await calling, await reading
    assert (error.code, error.sent) == ("partition", True)
    assert (read[-1].event, read[-1].data["error"]) == ("error", "partition")
    error = await ended(bus, "effect", 5, within=1, key="away")
    assert (error.code, error.sent) == ("partition", False)
    server.start()

    async def answers() -> bool:
        return not isinstance(await ended(bus, "effect", 5, key="back"), BusError)

    async with asyncio.timeout(20):
        while not await answers():
            await asyncio.sleep(0.1)
    done = providers.effects()
    assert (done["begun a"], done["begun b"], done["begun away"]) == (1, 1, 0)


async def test_a_server_that_hangs(bus: CapabilityBus, providers: Providers, server: NatsServer) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    with server.hung():
        error = await ended(bus, "effect", 1, key="late")
        assert (error.code, error.sent) == ("timeout", True)
        error = await ended(bus, "effect", 10, within=3, key="later")
        assert error.code == "partition"
    await until(lambda: bus.offers("experimental.effect"))
    async with asyncio.timeout(20):
        while isinstance(await ended(bus, "effect", 5, key="next"), BusError):
            await asyncio.sleep(0.1)
    assert providers.effects()["begun late"] == 0
    assert providers.effects()["begun later"] <= 1


async def test_a_connection_that_the_client_has_given_up_is_opened_anew(bus: CapabilityBus, providers: Providers) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    connection: Any = bus._transport._connection  # pyright: ignore
    await connection._client.close()  # as after an error that the client thinks is for good, such as a wrong password
    assert (await ended(bus, "who", 5, within=1)).code == "partition"
    async with asyncio.timeout(20):
        while isinstance(await ended(bus, "who", 5), BusError):
            await asyncio.sleep(0.1)


async def test_nodes_with_the_same_offer_share_the_calls(bus: CapabilityBus, providers: Providers) -> None:
    started = [providers.start(name) for name in ("one", "two", "three")]
    await knows(bus, *(item.node for item in started))
    answers = await asyncio.gather(*(ended(bus, "who", 20) for _ in range(60)))
    assert {item["name"] for item in answers} == {"one", "two", "three"}
    started[1].kill()
    # Until the server has noticed, what it gives to the killed one is lost: only what may be repeated is answered for certain.
    answers = await asyncio.gather(*(ended(bus, "again", 20, key="a") for _ in range(60)))
    assert {item["name"] for item in answers} == {"one", "three"}


async def test_a_session_stays_at_its_node_until_that_is_gone(bus: CapabilityBus, providers: Providers) -> None:
    started = {name: providers.start(name) for name in ("one", "two", "three")}
    await knows(bus, *(item.node for item in started.values()))
    names = {(await ended(bus, "again", 20, session="s", key="a"))["name"] for _ in range(10)}
    (name,) = names
    started[name].kill()
    names = {(await ended(bus, "again", 20, session="s", key="a"))["name"] for _ in range(10)}
    assert len(names) == 1 and names != {name}


async def test_a_provider_that_always_fails_is_left_alone(bus: CapabilityBus, providers: Providers) -> None:
    good, bad = providers.start("good"), providers.start("bad", "broken")
    await knows(bus, good.node, bad.node)
    results = [await ended(bus, "who", 20) for _ in range(60)]
    failed = [result for result in results if isinstance(result, BusError)]
    assert 5 <= len(failed) <= 12
    assert not any(isinstance(result, BusError) for result in results[-20:])


@pytest.mark.parametrize(("idempotent", "times"), [(False, 1), (True, 2)])
async def test_what_was_done_is_not_done_elsewhere_since_a_call_inside_was_refused(
    bus: CapabilityBus, server: NatsServer, idempotent: bool, times: int
) -> None:
    done = list[str]()

    async def pay(call: CapabilityCall) -> dict[str, Any]:
        done.append(call.authority.subject)
        raise BusError("rate_limited", "the bank is busy")  # as a call that it makes is refused

    async with open_bus(server.url, trust_unsigned="member") as one, open_bus(server.url, trust_unsigned="member") as two:
        for node in (one, two):
            node.register(Descriptor("experimental.pay", side_effects=True, idempotent=idempotent), pay)
        await until(lambda: len(bus.offers("experimental.pay")) == 2)
        with pytest.raises(BusError) as failed:
            await bus.call("experimental.pay", (1, 0), {})
    assert (failed.value.code, len(done)) == ("rate_limited", times)


async def test_a_provider_that_withdraws_gets_no_more_calls(bus: CapabilityBus, providers: Providers) -> None:
    first, two = providers.start("one"), providers.start("two")
    await knows(bus, first.node, two.node)
    first.say("withdraw")
    results = []
    while first.node in {offer.node for offer in bus.offers("experimental.who")}:
        results.append(await ended(bus, "who", 20))
    results += [await ended(bus, "who", 20) for _ in range(20)]
    assert [result for result in results if isinstance(result, BusError)] == []
    assert {result["name"] for result in results[-20:]} == {"two"}


async def test_a_provider_that_leaves_finishes_its_calls(bus: CapabilityBus, providers: Providers) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    calling = asyncio.create_task(ended(bus, "effect", 20, key="a", seconds=1.5))
    await providers.has_done("begun a")
    first.leave()
    await knows(bus)
    assert (await ended(bus, "effect", 5, key="b")).code == "not_found"
    assert (await calling)["key"] == "a"
    first.wait()


async def test_closing_a_stream_stops_its_handler(bus: CapabilityBus, providers: Providers) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    body = {"input": {"key": "a", "to": 1000, "seconds": 0.05}}
    stream = bus.stream("experimental.count", (1, 0), body, timeout=60)
    await anext(stream)
    await stream.aclose()
    async with asyncio.timeout(5):
        await providers.has_done("ended a")


async def test_a_call_that_is_cancelled_before_it_was_accepted_is_stopped(bus: CapabilityBus, providers: Providers) -> None:
    started = [providers.start(name) for name in ("one", "two")]
    await knows(bus, *(item.node for item in started))
    calling = asyncio.create_task(ended(bus, "effect", 20, key="a", seconds=10))
    await providers.has_done("begun a")
    calling.cancel()
    async with asyncio.timeout(5):
        await providers.has_done("cancelled a")


async def test_a_reader_that_falls_asleep_is_given_up(bus: CapabilityBus, providers: Providers) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    stream = bus.stream("experimental.count", (1, 0), {"input": {"key": "a", "to": 1000}}, timeout=60)
    received = [await anext(stream) for _ in range(3)]
    await providers.has_done("ended a")
    received += [frame async for frame in stream]
    assert (received[-1].event, received[-1].data["error"]) == ("error", "timeout")
    assert len(received) < 25
    assert [frame.seq for frame in received] == list(range(1, len(received) + 1))


async def test_what_the_caller_sends_meanwhile_reaches_the_handler(bus: CapabilityBus, providers: Providers) -> None:
    first = providers.start("one")
    await knows(bus, first.node)
    messages = iter([{"type": "tool_result", "n": number} for number in range(20)])

    async def receive() -> dict[str, Any] | None:
        return next(messages, None)

    stream = bus.stream("experimental.talk", (1, 0), {}, receive=receive, timeout=20)
    received = [frame async for frame in stream]
    assert [frame.data["echo"]["n"] for frame in received[:-1]] == list(range(20))
    assert received[-1].event == "done"
