"""The server of a soak as a process, which is killed and started again, and what is measured of it."""

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tests.attack.ticking import Latencies
from tests.serving import free_port

ROOT = Path(__file__).parents[3]
_EVERY = 5.0  # seconds between two looks
_WARM = 300.0  # seconds after which a server has loaded what it loads once


@dataclass(slots=True)
class Life:
    """What was measured of one process, from its start to its end: (seconds, MB), and how late its loop was."""

    began: float = field(default_factory=time.monotonic)
    memory: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    latencies: Latencies = field(default_factory=Latencies)
    tasks: int = 0
    files: int = 0

    @property
    def seconds(self) -> float:
        return self.memory[-1][0] if self.memory else 0.0

    def warm_and_last(self) -> tuple[float, float]:
        """MB when it was warm, and at its end."""
        warm = min(_WARM, self.seconds / 2)
        return next((size for at, size in self.memory if at >= warm), 0.0), self.memory[-1][1] if self.memory else 0.0


class Server:
    """A server with one store. `store` is where that is, `folder` where its tools note what they did."""

    def __init__(self, folder: Path, store: str, upstream: str, faults: str = "") -> None:
        self.folder, self._arguments = folder, [store, upstream, *([faults] if faults else [])]
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.lives: list[Life] = []
        self.trouble = time.monotonic()  # when something was last done to it
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        self.lives.append(Life())
        command = [sys.executable, "-m", "tests.attack.soak.program", str(self.folder), str(self.port), *self._arguments]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def restart(self) -> None:
        """Kill it, and wait until another one has come up."""
        await asyncio.to_thread(self.kill)
        self.process = self._start()
        await self.ready()

    async def ready(self) -> None:
        """Wait until it answers; one that cannot, as its store is away, is started again."""
        until = time.monotonic() + 120
        async with httpx2.AsyncClient(base_url=self.url, timeout=10) as client:
            while time.monotonic() < until:
                if self.process.poll() is not None:
                    await asyncio.sleep(1)
                    self.process = self._start()
                try:
                    if (await client.get("/ready")).status_code == 200:
                        self.trouble = time.monotonic()
                        return
                except (httpx2.HTTPError, OSError):
                    pass
                await asyncio.sleep(0.2)
        raise RuntimeError(f"the server did not come up: {(self.folder / 'log').read_text()[-3000:]}")

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def raised(self) -> Counter[str]:
        """What its log has of exceptions that nobody has handled: their last lines."""
        blocks = (self.folder / "log").read_text(errors="replace").split("Traceback (most recent call last)")[1:]
        return Counter(next((line for line in block.splitlines()[1:] if line and line[0] != " "), "")[:150] for block in blocks)

    def limit_files(self, size: int) -> None:
        """Let it write no file beyond so many bytes, as on a disk that is full; -1: any again."""
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size if size >= 0 else hard, hard))

    async def watch(self) -> None:
        """Measure it, for ever."""
        async with httpx2.AsyncClient(base_url=self.url, timeout=30) as client:
            while True:
                await asyncio.sleep(_EVERY)
                life = self.lives[-1]
                try:
                    state = (await client.get("/soak")).json()
                    pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
                    files = len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))
                except (httpx2.HTTPError, OSError, ValueError):
                    continue
                if life is self.lives[-1]:
                    life.memory.append((time.monotonic() - life.began, pages * os.sysconf("SC_PAGE_SIZE") / 2**20))
                    life.latencies, life.tasks, life.files = Latencies(state["latencies"]), state["tasks"], files
