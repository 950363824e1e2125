"""A real vLLM server with a tiny model that writes at random, in a process of its own; or the one that CALLSMITH_VLLM names."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callsmith.models.weights.fetch import fetch
from tests.adapters.tiny_model import write_model

STARTS_WITHIN = 900  # seconds, on a busy machine


@contextmanager
def vllm_server(folder: Path) -> Iterator[str]:
    """The address of the server; its model is written into the folder."""
    if running := os.environ.get("CALLSMITH_VLLM"):
        yield running
        return
    write_model(fetch("smollm2-135m"), folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "vllm"), "serve", str(folder), "--port", str(port), "--host", "127.0.0.1"]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "16"]
    alone = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_PLUGINS": ""}
    log = folder / "server.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **alone}) as server:
        try:
            until = time.monotonic() + STARTS_WITHIN
            while not _listens(port):
                assert server.poll() is None and time.monotonic() < until, log.read_text()[-4000:]
                time.sleep(1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
