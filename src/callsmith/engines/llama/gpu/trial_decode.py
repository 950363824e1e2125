"""A process that decodes a few tokens with one library, on its GPU if it has one: `python -m … FOLDER ACCELERATOR`.

It prints on what it computed. A library that does not work ends it with an error or, as those without code for the card do, by
aborting it. Its last words are on stderr.
"""

import ctypes as C
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import Unavailable
from callsmith.engines.llama.gpu.devices import gpus
from callsmith.engines.llama.gpu.tiny_model import CONTEXT, VOCABULARY, write_tiny_model
from callsmith.engines.llama.libllama import Library
from callsmith.engines.llama_builds.locate import library_in
from callsmith.engines.llama_builds.preload import preload

PROMPT: Final = tuple(range(1, 33))
ANSWER: Final = (40, 41, 42)  # decoded one at a time, which is done by other code than many at once
_TOLERANCE: Final = 0.1  # of the largest logit: processors and GPUs round in different ways


def try_library(folder: Path, accelerator: str) -> str:
    """Decode with the library in this folder; returns on what it computed. Raises `Unavailable` if it does not work."""
    path = library_in(folder)
    if path is None:
        raise Unavailable(f"there is no library in {folder}")
    why = preload(path)
    library = Library(path)
    library.log.echo = sys.stderr  # an abort leaves no other words
    devices = gpus(library)
    if accelerator != "cpu" and not devices:
        raise Unavailable(f"it sees no GPU{f' ({why})' if why else ''}")
    with TemporaryDirectory() as scratch:
        model = Path(scratch) / "tiny.gguf"
        write_tiny_model(model)
        expected = decode(library, model, gpu=False)
        if not np.isfinite(expected).all() or not expected.any():
            raise Unavailable("what it computes on the processor is no number")
        if devices:
            found = decode(library, model, gpu=True)
            if not np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max():  # NaN is not
                raise Unavailable("what it computes on the GPU is not what it computes on the processor")
    return ", ".join(map(str, devices)) or "the processor"


def decode(library: Library, model: Path, *, gpu: bool) -> NDArray[np.float32]:
    """The logits of each token of an answer."""
    c = library.c
    params = c.llama_model_default_params()
    none = (C.c_void_p * 1)()
    if not gpu:
        params.devices, params.n_gpu_layers = C.cast(none, C.c_void_p), 0
    weights = c.llama_model_load_from_file(str(model).encode(), params)
    if not weights:
        raise Unavailable(f"it cannot load a model: {library.log.reason()}")
    settings = c.llama_context_default_params()
    settings.n_ctx, settings.n_threads, settings.n_threads_batch = CONTEXT, 1, 1
    context = c.llama_init_from_model(weights, settings)
    if not context:
        raise Unavailable(f"it cannot make a context: {library.log.reason()}")
    batch = c.llama_batch_init(len(PROMPT), 0, 1)
    rows: list[NDArray[np.float32]] = []
    start = 0
    for tokens in (PROMPT, *((token,) for token in ANSWER)):
        for at, token in enumerate(tokens):
            batch.token[at], batch.pos[at], batch.logits[at] = token, start + at, at == len(tokens) - 1
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0
        batch.n_tokens = len(tokens)
        start += len(tokens)
        if status := c.llama_decode(context, batch):
            raise Unavailable(f"it cannot decode (status {status})")
        rows.append(np.ctypeslib.as_array(c.llama_get_logits_ith(context, len(tokens) - 1), (VOCABULARY,)).copy())
    c.llama_batch_free(batch)
    c.llama_free(context)
    c.llama_model_free(weights)
    return np.stack(rows)


def _leave_no_core_dump() -> None:
    """What a GPU library would leave behind is gigabytes."""
    with suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _leave_no_core_dump()
    print(try_library(Path(sys.argv[1]), sys.argv[2]))
