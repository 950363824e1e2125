"""A NATS server, providers in processes of their own, and a bus that calls them."""

import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.opening import open_bus
from tests.nats_server import NatsServer, running_nats
from tests.processes import hang, wake
from tests.waiting import until


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with running_nats() as running:
        yield running


class Process:
    """A provider in a process of its own (tests/bus/nats/provider.py)."""

    def __init__(self, url: str, name: str, folder: Path, *options: str, prefix: Sequence[str] = ()) -> None:
        self.name = name
        command = [*prefix, sys.executable, "-m", "tests.bus.nats.provider", url, name, str(folder), *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.node = self._process.stdout.readline().strip()
        assert self.node, "the provider has not started"

    def kill(self) -> None:
        """kill -9."""
        self.wake()
        self._process.kill()
        self._process.wait()

    def hang(self) -> None:
        hang(self._process.pid)

    def wake(self) -> None:
        if self._process.poll() is None:
            wake(self._process.pid)

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        """End its input, at which it leaves in an orderly way."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        self._process.wait(30)


class Providers:
    """Starts providers, and knows what they have done."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._started: list[Process] = []

    def start(self, name: str, *options: str, url: str = "", prefix: Sequence[str] = ()) -> Process:
        process = Process(url or self._server.url, name, self._folder, *options, prefix=prefix)
        self._started.append(process)
        return process

    def effects(self) -> Counter[str]:
        """What was done, without by whom, and how often."""
        return Counter(line.split(" ", 1)[1] for line in self.lines())

    def lines(self) -> list[str]:
        file = self._folder / "effects"
        return file.read_text().splitlines() if file.exists() else []

    async def has_done(self, what: str) -> None:
        await until(lambda: self.effects()[what] > 0)

    def end(self) -> None:
        for process in self._started:
            process.kill()


@pytest.fixture
def providers(server: NatsServer, tmp_path: Path) -> Iterator[Providers]:
    opened = Providers(server, tmp_path)
    yield opened
    opened.end()


@pytest.fixture
async def bus(server: NatsServer, providers: Providers) -> AsyncIterator[CapabilityBus]:
    """A bus of a node that offers nothing, and is a member to others."""
    async with open_bus(server.url, trust_unsigned="member") as opened:
        yield opened
