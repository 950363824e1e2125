"""Three gateways, two upstreams and one PostgreSQL: processes of their own, any of which is killed and started again."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from tests.postgres import Database, running_database

_PATIENCE = 60.0  # seconds until a server that has not come up will not


class Forks:
    """The process that starts the servers."""

    def __init__(self) -> None:
        self.children = set[int]()
        command = [sys.executable, "-m", "tests.journeys.gateway_servers"]
        self._process = subprocess.Popen(
            command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, options: dict[str, Any]) -> int:
        """Start a server: its process id."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(options) + "\n")
        self._process.stdin.flush()
        child = int(self._process.stdout.readline())
        self.children.add(child)
        return child

    def close(self) -> None:
        for child in self.children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()


class Server:
    """A server in a process of its own, always on the same port."""

    def __init__(self, forks: Forks, **options: Any) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._forks, self._asked = forks, {"port": self.port, **options}
        self._pid: int | None = None

    def start(self, **more: Any) -> None:
        self._pid = self._forks.start({**self._asked, **more})

    def wait_until_it_listens(self) -> None:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self.runs and time.monotonic() < until, "the server did not come up"
                time.sleep(0.02)

    @property
    def runs(self) -> bool:
        try:
            return self._pid is not None and os.kill(self._pid, 0) is None
        except ProcessLookupError:
            return False

    def kill(self) -> None:
        """kill -9."""
        if self.runs and self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
        while self.runs:
            time.sleep(0.01)
        self._forks.children.discard(self._pid or 0)
        self._pid = None


class World:
    """All of it. `database` is killed and started as the servers are."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder, self.database = folder, database
        self.client = httpx2.AsyncClient(timeout=20)
        self.forks = Forks()
        self.upstreams = [Server(self.forks, role="upstream") for _ in range(2)]
        shared = {
            "folder": str(folder),
            "store": database.schema_url(),
            "upstreams": [upstream.url for upstream in self.upstreams],
        }
        self.gateways = [Server(self.forks, role="gateway", **shared) for _ in range(3)]

    def start(self) -> None:
        """Start what does not run."""
        if not self.database.runs:
            self.database.start()
        servers = [*self.upstreams, *self.gateways]
        for server in servers:
            if not server.runs:
                server.start()
        for server in servers:
            server.wait_until_it_listens()

    def paid(self) -> Counter[str]:
        """How often what was paid."""
        file = self.folder / "paid"
        return Counter(file.read_text().split()) if file.exists() else Counter()

    async def ask(self, gateway: Server, reference: str, **more: Any) -> str:
        """Have something be paid: the id of the approval that is asked for."""
        answer = await self.client.post(f"{gateway.url}/v1/chat/completions", json=asking(reference, **more))
        assert answer.status_code == 200, answer.text
        return answer.json()["callsmith"]["approvals"][0]["id"]

    async def approve(self, id: str, *gateways: Server) -> Any:
        """Approve at these gateways, one after the other, until it is known what has come of it."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                for gateway in gateways:
                    try:
                        answer = await self.client.post(f"{gateway.url}/v1/approvals/{id}", json={"approve": True})
                        assert answer.status_code in (200, 409, 429, 503), answer.text
                        body = (await self.client.get(f"{gateway.url}/v1/approvals/{id}")).json()
                    except httpx2.HTTPError:
                        continue
                    if body.get("status") in ("done", "denied", "expired"):
                        return body
                await asyncio.sleep(0.2)


def asking(reference: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": f"do pay {json.dumps({'reference': reference})}"}], **more}


def new_reference(kind: str = "quick") -> str:
    return f"{kind}-{uuid4().hex[:12]}"


@contextmanager
def running_world(folder: Path) -> Iterator[World]:
    with running_database() as database:
        world = World(folder, database)
        try:
            world.start()
            yield world
        finally:
            world.forks.close()
