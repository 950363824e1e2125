"""A model behind `callsmith serve`, in a process of its own, for as long as it is asked."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from callsmith.core.options import EngineOptions, options_in

if TYPE_CHECKING:
    from callsmith.models import Options

PATIENCE = 300.0  # seconds until a server that has not come up will not


@asynccontextmanager
async def serve_model(spec: str, options: "Options") -> AsyncGenerator[str, None]:
    """The address of the model, as other servers' models are named."""
    from callsmith.cli.inputs.options import alias_of

    port = _free_port()
    flags = {item.flag.names[0]: item.name.partition(".")[2] for item in options_in("engine", EngineOptions)}
    flags |= {"--concurrency": "live", "--format": "format"}
    values = {flag: getattr(options, name) for flag, name in flags.items()}
    words = [word for flag, value in values.items() if value is not None for word in (flag, str(value))]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "callsmith", "serve", "--model", spec, "--port", str(port), *words),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await _wait(process, port)
        yield f"http://127.0.0.1:{port}/v1#{alias_of(spec)}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _wait(process: asyncio.subprocess.Process, port: int) -> None:
    """Wait until the server listens, which it does once the model is loaded."""
    from callsmith.core.errors import Unavailable

    for _ in range(int(PATIENCE / 0.2)):
        if process.returncode is not None:
            raise Unavailable("callsmith serve has ended before it was asked anything")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.2)
        else:
            writer.close()
            return
    raise Unavailable(f"callsmith serve did not come up within {PATIENCE:g} s")


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
