"""An application on a real socket, in a thread of its own: for clients that block, and for those that bring their own loop."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

_PATIENCE = 30.0  # seconds until a server that has not come up will not


@contextmanager
def served_apart(app: Starlette) -> Iterator[str]:
    """The address of the application, which is served until the block is left."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + _PATIENCE
        while not server.started:
            assert thread.is_alive() and time.monotonic() < until, "the server did not come up"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(_PATIENCE)
