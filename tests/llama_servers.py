"""A real llama-server, in a process of its own: the one that comes with the llama.cpp library."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.serving import killed_program
from tests.small import shallow_file

_PROGRAM = """
import sys, time

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.port = sys.argv[1], int(sys.argv[2])
parameters.n_ctx, parameters.n_parallel, parameters.warmup = 2 * int(sys.argv[3]), 2, False
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.verbosity = -1
parameters.api_keys = [key for key in sys.argv[4:] if key]
server = xllamacpp.Server(parameters)
while True:
    time.sleep(60)
"""


@contextmanager
def llama_server(context: int, key: str = "", weights: Path | None = None) -> Iterator[str]:
    """The address of a llama-server for two answers at once, which is killed when the block is left: of the shallow model, if not
    of other weights."""
    with killed_program(_PROGRAM, str(weights or shallow_file()), "PORT", str(context), key) as url:
        yield url
