"""A real PostgreSQL server of the tests' own: in a temporary folder, as an ordinary user; stopped, killed and started again."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.processes import hang, wake

_PATIENCE = 60.0  # seconds until a database that has not come up will not
_SETTINGS = {
    "fsync": "off",  # what is killed here is a process, and not the machine
    "max_connections": "60",
    "shared_buffers": "16MB",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
}


def programs() -> Path | None:
    """The folder with initdb and postgres: that of Debian's packages, or that in which initdb is found."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True)
    initdb = shutil.which("initdb")
    return next((folder for folder in folders if (folder / "initdb").exists()), Path(initdb).parent if initdb else None)


def why_not() -> str:
    """Why there is no PostgreSQL to test with; empty if there is."""
    try:
        import asyncpg  # noqa: F401
    except ImportError:
        return "asyncpg is not installed: pip install 'callsmith[postgres]'"
    if programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if os.getuid() == 0 and not _ordinary_user():
        return "PostgreSQL does not run as root, and there is no other user to run it as"
    return ""


def _ordinary_user() -> str:
    known = {item.pw_name for item in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), "")


def _command(program: str, *arguments: str) -> list[str]:
    folder = programs()
    assert folder is not None
    return [str(folder / program), *arguments]


class Database:
    """A server with one database. `url` is its address; `schema_url` one of a schema of its own in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"postgresql://tester@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        user = pwd.getpwnam(_ordinary_user()) if os.getuid() == 0 else None  # it does not run as root
        self._as: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        if user:
            os.chown(folder, user.pw_uid, user.pw_gid)
        options = ["-D", str(folder / "data"), "-U", "tester", "-E", "UTF8", "--locale=C", "--no-sync", "-A", "trust"]
        done = subprocess.run(_command("initdb", *options), capture_output=True, text=True, cwd="/", **self._as)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        options = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = _command("postgres", "-D", str(self.folder / "data"), "-p", str(self.port), *options)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._as)
        until = time.monotonic() + _PATIENCE
        while "ready" not in (self.folder / "data" / "postmaster.pid").read_text() if self._started() else True:
            assert self._process.poll() is None and time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.05)

    def _started(self) -> bool:
        return (self.folder / "data" / "postmaster.pid").exists()

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id of the server itself."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def stop(self) -> None:
        """Shut it down: whoever is connected is disconnected."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9, of the server and all of its processes: they end by themselves when it is gone."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        os.kill(self.pid, number)
        self._process.wait(_PATIENCE)
        self._process = None
        if number == signal.SIGKILL:
            (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
            time.sleep(0.2)  # until its processes have seen it

    @contextmanager
    def hung(self) -> Iterator[None]:
        """It is there, and does not answer: neither those who are connected nor anybody new."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        processes = [self.pid, *map(int, children)]
        for process in processes:
            hang(process)
        try:
            yield
        finally:
            for process in processes:
                wake(process)

    def sql(self, *statements: str) -> str:
        """Run statements, each by itself; what the last one finds."""
        arguments = [part for statement in statements for part in ("-c", statement)]
        command = _command("psql", "-qAtX", "-v", "ON_ERROR_STOP=1", self.url, *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.strip()

    def schema_url(self) -> str:
        """The address of an empty place: a schema of its own."""
        schema = f"s{uuid4().hex[:12]}"
        self.sql(f"CREATE SCHEMA {schema}")
        return f"{self.url}?search_path={schema}"


@contextmanager
def running_database() -> Iterator[Database]:
    """A server that runs until the block is left. Skips the test where there is none to be had."""
    if reason := why_not():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="callsmith-pg-"))
    try:
        database = Database(folder)
        database.start()
        try:
            yield database
        finally:
            database.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
