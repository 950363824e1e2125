"""What a call over the capability bus costs: within a process, and between two by a NATS server, beside bare nats-py.

The provider is a process of its own and answers at once. Ways are measured in turn, round after round, so that whatever else the
machine does falls on all of them.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from benchmarks.measure import compare
from benchmarks.table import goal, show
from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.nats.messages import decode, encode
from callsmith.bus.opening import open_bus
from callsmith.bus.port import CapabilityCall
from callsmith.bus.trust.authorize import Authorizer
from callsmith.bus.trust.identity import Identity
from callsmith.core.schema import validate
from callsmith.core.values import Json
from callsmith.wire.capability.frames import Frame
from tests.nats_server import NatsServer, program
from tests.waiting import until

ROUNDS = 9
CALLS = 256  # in a round
TOGETHER = 64
FRAMES = 2000
LOCAL_GOAL, CALL_GOAL, FRAME_GOAL = 60.0, 1.5, 2.0  # µs a call; times bare nats-py

SCHEMA: Any = {"type": "object", "properties": {"input": {"type": "object", "properties": {"query": {"type": "string"}}}}}
ECHO = Descriptor("experimental.echo", (1, 0), SCHEMA, {"type": "object", "required": ["output"]}, max_concurrent=1024)
COUNT = Descriptor("experimental.count", stream_schema={"type": "object"})
BODY: dict[str, Json] = {"params": {}, "input": {"query": "Who keeps the key of the village hall, and from when to when?"}}
BARE = b"x" * 200
BY_HAND = "nats-py, JSON, both schemas on both sides, a task, a deadline"

Work = Callable[[int], Awaitable[None]]  # that many calls, or frames


async def echo(call: CapabilityCall) -> dict[str, Json]:
    return {"output": {"text": call.input["query"]}, "meta": {}}


async def count(call: CapabilityCall) -> AsyncIterator[Frame]:
    for number in range(int(call.input["to"])):
        yield Frame("token", {"text": "word ", "number": number})
    yield Frame("done")


def main(model: str) -> None:
    asyncio.run(_local())
    if program() is None:
        print("\nnats-server is not installed: apt-get install nats-server")
        return
    server = NatsServer()
    server.start()
    caller = Identity.create()
    providers = [_provider(server.url, caller.node_id, kind) for kind in ("bare", "unsigned", "signed")]
    try:
        asyncio.run(_nats(server.url, caller))
    finally:
        for process in providers:
            process.kill()
        server.kill()


def _provider(url: str, caller: str, kind: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.bus", url, caller, kind], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline()
    return process


async def _provide(url: str, caller: str, kind: str) -> None:
    async with AsyncExitStack() as stack:
        if kind == "bare":
            await _provide_bare(url)
        else:
            bus = await stack.enter_async_context(_bus(url, Identity.create() if kind == "signed" else None, caller))
            bus.register(ECHO, echo)
            bus.register(COUNT, count)
            await asyncio.sleep(0.2)
        print("ready", flush=True)
        await asyncio.Event().wait()


async def _provide_bare(url: str) -> None:
    import nats

    client, tasks = await nats.connect(url), set[asyncio.Task[None]]()

    async def answer(message: Any) -> None:
        await client.publish(message.reply, message.data)

    async def check(message: Any) -> None:
        task = asyncio.get_running_loop().create_task(answer_checked(message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def answer_checked(message: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_later(10, task.cancel)
        body = decode(message.data)
        assert not validate(SCHEMA, body)
        reply = await echo(CapabilityCall(ECHO.name, (1, 0), body))
        assert ECHO.response_schema is not None and not validate(ECHO.response_schema, reply)
        await client.publish(message.reply, encode(reply))
        timer.cancel()

    async def stream(message: Any) -> None:
        for _ in range(int(message.data)):
            await client.publish(message.reply, BARE)

    await client.subscribe("bare.echo", cb=answer)
    await client.subscribe("bare.check", cb=check)
    await client.subscribe("bare.count", cb=stream)
    await client.flush()


def _bus(url: str, identity: Identity | None, caller: str = "") -> CapabilityBus:
    """A bus of its own community for either kind."""
    if identity is None:
        return open_bus(url, community="unsigned", trust_unsigned="member")
    authorizer = Authorizer(identity.node_id, "signed", {caller: "member"} if caller else {})
    return open_bus(url, community="signed", identity=identity, authorizer=authorizer)


async def _local() -> None:
    bus = open_bus("local")
    bus.register(ECHO, echo)
    took = await _rounds({"the bus": _calls(bus), "by hand": _by_hand}, CALLS, time.process_time)
    best = {name: min(times) for name, times in took.items()}
    compare("a call within a process", "µs", took["the bus"], "by hand: a task, a timer, both schemas", took["by hand"])
    show("a call within a process, with both schemas checked", ("", "µs a call"), list(best.items()))
    goal("µs a call", best["the bus"], LOCAL_GOAL)


async def _by_hand(times: int) -> None:
    """The floor: both schemas checked, and the handler in a task of its own, under a deadline."""
    loop = asyncio.get_running_loop()
    for _ in range(times):
        assert not validate(SCHEMA, BODY)
        task = loop.create_task(echo(CapabilityCall(ECHO.name, (1, 0), BODY)))
        timer = loop.call_later(10, task.cancel)
        answer = await task
        timer.cancel()
        assert ECHO.response_schema is not None and not validate(ECHO.response_schema, answer)


async def _nats(url: str, caller: Identity) -> None:
    import nats

    client = await nats.connect(url)
    async with _bus(url, None) as unsigned, _bus(url, caller) as signed:
        for bus in (unsigned, signed):
            await until(lambda bus=bus: bus.offers(COUNT.name))

        async def bare(times: int) -> None:
            for _ in range(times):
                await client.request("bare.echo", BARE, timeout=10)

        async def checked(times: int) -> None:
            for _ in range(times):
                assert not validate(SCHEMA, BODY)
                reply = await client.request("bare.check", encode(BODY), timeout=10)
                assert ECHO.response_schema is not None and not validate(ECHO.response_schema, decode(reply.data))

        async def bare_stream(frames: int) -> None:
            inbox, remaining, done = client.new_inbox(), frames, asyncio.Event()

            async def take(message: Any) -> None:
                nonlocal remaining
                remaining -= 1
                if not remaining:
                    done.set()

            subscription = await client.subscribe(inbox, cb=take)
            await client.publish("bare.count", str(frames).encode(), reply=inbox)
            await done.wait()
            await subscription.unsubscribe()

        ways = {"bare nats-py": bare, BY_HAND: checked, "bus": _calls(unsigned), "bus, signed": _calls(signed)}
        alone = await _rounds(ways, CALLS)
        together = await _rounds({name: _together(work) for name, work in ways.items()}, CALLS)
        streams = {"bare nats-py": bare_stream, "bus": _stream(unsigned), "bus, signed": _stream(signed)}
        frames = await _rounds(streams, FRAMES)
    measured = {"a call, 1 at a time": alone, f"a call, {TOGETHER} at a time": together, "a frame of a stream": frames}
    for what, times in measured.items():
        wanted = 1 / (FRAME_GOAL if times is frames else CALL_GOAL)
        compare(what, "µs", times["bus"], "bare nats-py", times["bare nats-py"], goal=wanted)
        compare(f"{what}, signed", "µs", times["bus, signed"], "bare nats-py", times["bare nats-py"])
        if BY_HAND in times:
            compare(what, "µs", times["bus"], BY_HAND, times[BY_HAND])
    heads = ("", "1 at a time", "times bare", f"{TOGETHER} at a time", "times bare", "a frame", "times bare")
    rows = [(name, *(cell for took in measured.values() for cell in _cells(took, name))) for name in ways]
    show("by a NATS server, to another process: µs, best rounds", heads, rows)


def _cells(took: dict[str, list[float]], name: str) -> tuple[float | str, float | str]:
    return (min(took[name]), min(took[name]) / min(took["bare nats-py"])) if name in took else ("", "")


def _calls(bus: CapabilityBus) -> Work:
    async def work(times: int) -> None:
        for _ in range(times):
            await bus.call(ECHO.name, (1, 0), BODY, timeout=10)

    return work


def _together(work: Work) -> Work:
    async def works(times: int) -> None:
        await asyncio.gather(*(work(times // TOGETHER) for _ in range(TOGETHER)))

    return works


def _stream(bus: CapabilityBus) -> Work:
    async def work(frames: int) -> None:
        async for _ in bus.stream(COUNT.name, (1, 0), {"input": {"to": frames}}, timeout=60):
            pass

    return work


async def _rounds(ways: dict[str, Work], times: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, list[float]]:
    """µs for one of so many, round by round."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, work in ways.items():
            began = clock()
            await work(times)
            if number:  # the first round warms up
                took[name].append((clock() - began) / times * 1e6)
    return took


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_provide(*sys.argv[1:]))
