"""Networks that are cut and joined again, in network namespaces: whoever is cut off, calls end in time, and none runs twice."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from callsmith.bus.opening import open_bus
from callsmith.wire.capability.errors import BusError
from tests.bus.nats.conftest import Providers
from tests.bus.nats.test_failures import ended, frames, knows
from tests.nats_server import NatsServer, program

pytestmark = pytest.mark.nats


class Network:
    """Two hosts with a cable between them: this one at `here`, and a namespace at `there`."""

    def __init__(self) -> None:
        number = os.getpid() % 250
        self.name = f"cs{os.getpid()}"
        self.here, self.there = f"10.213.{number}.1", f"10.213.{number}.2"
        self.prefix = ["ip", "netns", "exec", self.name]

    def lay(self) -> None:
        _ip("netns", "add", self.name)
        _ip("link", "add", f"{self.name}a", "type", "veth", "peer", "name", f"{self.name}b", "netns", self.name)
        _ip("addr", "add", f"{self.here}/24", "dev", f"{self.name}a")
        _ip("link", "set", f"{self.name}a", "up")
        _ip("-n", self.name, "addr", "add", f"{self.there}/24", "dev", f"{self.name}b")
        _ip("-n", self.name, "link", "set", f"{self.name}b", "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    def cut(self) -> None:
        _ip("link", "set", f"{self.name}a", "down")

    def join(self) -> None:
        _ip("link", "set", f"{self.name}a", "up")

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=False)
        subprocess.run(["ip", "link", "del", f"{self.name}a"], check=False, stderr=subprocess.DEVNULL)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[Network]:
    pytest.importorskip("nats")
    if program() is None or shutil.which("ip") is None:
        pytest.skip("nats-server and ip are needed: apt-get install nats-server iproute2")
    opened = Network()
    try:
        opened.lay()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here, which root can: {error.stderr.decode().strip()}")
    else:
        yield opened
    finally:
        opened.remove()


@pytest.fixture
def server(network: Network, request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    """On this side of the cable, unless the test says "there"."""
    is_there = getattr(request, "param", "here") == "there"
    opened = NatsServer(network.there, network.prefix, port=24_222) if is_there else NatsServer(network.here)
    opened.start()
    yield opened
    opened.kill()


async def test_a_provider_that_is_cut_off(server: NatsServer, providers: Providers, network: Network) -> None:
    far, session = providers.start("far", prefix=network.prefix), "s"
    async with open_bus(server.url, trust_unsigned="member") as bus:
        await knows(bus, far.node)
        assert (await ended(bus, "effect", 10, session=session, key="first"))["name"] == "far"  # and there it stays
        near = providers.start("near")
        await knows(bus, far.node, near.node)
        calling = asyncio.create_task(ended(bus, "effect", 30, within=5, session=session, key="a", seconds=20))
        await providers.has_done("begun a")
        await asyncio.sleep(0.2)
        network.cut()
        late = await ended(bus, "effect", 1, session=session, key="late")
        others = await asyncio.gather(*(ended(bus, "again", 15, key=f"k{number}") for number in range(10)))
        error = await calling
        assert (error.code, error.sent) == ("partition", True)
        assert (late.code, late.sent) == ("timeout", True)
        assert {other["name"] for other in others} == {"near"}
        await knows(bus, near.node)
        assert (await ended(bus, "effect", 5, session=session, key="moved"))["name"] == "near"
        network.join()
        await knows(bus, far.node, near.node)
        names = {(await ended(bus, "who", 10))["name"] for _ in range(40)}
        assert names == {"far", "near"}
    done = providers.effects()
    assert (done["begun a"], done["begun late"], done["begun moved"]) == (1, 0, 1)


@pytest.mark.parametrize("server", ["there"], indirect=True)
async def test_a_caller_that_is_cut_off(server: NatsServer, providers: Providers, network: Network, tmp_path: Path) -> None:
    far = providers.start("far", prefix=network.prefix)
    async with open_bus(server.url, trust_unsigned="member") as bus:
        await knows(bus, far.node)
        calling = asyncio.create_task(ended(bus, "effect", 30, within=6, key="a", seconds=20))
        reading = asyncio.create_task(frames(bus, 30, within=6, key="b", to=10_000, seconds=0.05))
        await providers.has_done("begun a")
        await providers.has_done("begun b")
        await asyncio.sleep(0.2)
        network.cut()
        short = await ended(bus, "effect", 1, key="short")
        error, read = await calling, await reading
        assert (error.code, error.sent) == ("partition", True)
        assert (read[-1].event, read[-1].data["error"]) == ("error", "partition")
        assert short.code in ("timeout", "partition")
        results = [await ended(bus, "effect", 3, key="cut") for _ in range(2)]
        assert {result.code for result in results} <= {"timeout", "partition"}
        await providers.has_done("cancelled a")  # nobody waits for it any more
        network.join()
        async with asyncio.timeout(30):
            while isinstance(await ended(bus, "effect", 5, key="back"), BusError):
                await asyncio.sleep(0.2)
    done = providers.effects()
    assert (done["begun a"], done["begun b"]) == (1, 1)
    assert done["begun short"] == 0
    assert done["begun cut"] == 0
