"""A real NATS server of the tests' own, on a port of its own; killed, hung and started again."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.processes import hang, wake

_PATIENCE = 30.0


def program() -> str | None:
    """The server; Debian puts it where only root looks."""
    return shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class NatsServer:
    """A server. `prefix` is what its command begins with, such as that of a network namespace."""

    def __init__(self, host: str = "127.0.0.1", prefix: Sequence[str] = (), port: int = 0) -> None:
        if not port:
            with socket.socket() as free:
                free.bind((host, 0))
                port = free.getsockname()[1]
        self.host, self.port = host, port
        self.url = f"nats://{host}:{self.port}"
        self._prefix = list(prefix)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = program()
        assert path is not None
        command = [*self._prefix, path, "-a", self.host, "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + _PATIENCE
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < until, "nats-server does not come up"
            time.sleep(0.02)

    def _answers(self) -> bool:
        if self._prefix:
            time.sleep(0.3)  # it is in another network
            return True
        try:
            with socket.create_connection((self.host, self.port), 1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_PATIENCE)
            self._process = None

    @contextmanager
    def hung(self) -> Iterator[None]:
        """It is there, and passes nothing on."""
        assert self._process is not None
        hang(self._process.pid)
        try:
            yield
        finally:
            wake(self._process.pid)


@contextmanager
def running_nats() -> Iterator[NatsServer]:
    """A server while the block runs; the test is skipped where there is none."""
    pytest.importorskip("nats")
    if program() is None:
        pytest.skip("nats-server is not installed: apt-get install nats-server")
    server = NatsServer()
    server.start()
    try:
        yield server
    finally:
        server.kill()
