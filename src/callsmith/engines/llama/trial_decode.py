"""A process that decodes a few tokens with one library, on its GPU if it has one: `python -m … FOLDER ACCELERATOR`.

It prints on what it computed. A library that does not work ends it with an error or, as those without code for the card do, by
aborting it. Its last words are on stderr. The model is one of a few hundred kilobytes with random weights and no vocabulary.
"""

import ctypes as C
import random
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import Unavailable
from callsmith.engines.llama.libllama import Library
from callsmith.engines.llama.placement import gpus
from callsmith.engines.llama_builds.locate import library_in, preload

VOCABULARY: Final = 64
CONTEXT: Final = 256
_WIDTH: Final = 64  # of the only head too: smaller ones have no kernels of their own
_LAYERS: Final = 2
_ALIGNMENT: Final = 32
_U32, _F32, _TEXT = 4, 6, 8  # types of metadata
_TENSOR_F32, _TENSOR_F16, _TENSOR_Q8_0 = 0, 1, 8

_METADATA: Final[tuple[tuple[str, int, int | float | str], ...]] = (
    ("general.architecture", _TEXT, "llama"),
    ("llama.context_length", _U32, CONTEXT),
    ("llama.embedding_length", _U32, _WIDTH),
    ("llama.block_count", _U32, _LAYERS),
    ("llama.feed_forward_length", _U32, 2 * _WIDTH),
    ("llama.attention.head_count", _U32, 1),
    ("llama.attention.layer_norm_rms_epsilon", _F32, 1e-5),
    ("llama.vocab_size", _U32, VOCABULARY),
    ("tokenizer.ggml.model", _TEXT, "no_vocab"),
)
PROMPT: Final = tuple(range(1, 33))
ANSWER: Final = (40, 41, 42)  # decoded one at a time, which is done by other code than many at once
_TOLERANCE: Final = 0.1  # of the largest logit: processors and GPUs round in different ways


def write_tiny_model(path: Path) -> None:
    """Write it: the attention in halves, the rest quantised, so that both kinds of kernels are used."""
    tensors = [(name, shape, kind, _content(name, shape, kind)) for name, shape, kind in _tensors()]
    header = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(_METADATA)))
    for key, kind, value in _METADATA:
        spelled = _text(value) if isinstance(value, str) else struct.pack("<I" if kind == _U32 else "<f", value)
        header += _text(key) + struct.pack("<I", kind) + spelled
    offset = 0
    for name, shape, kind, content in tensors:
        header += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        offset += len(_pad(content))
    path.write_bytes(_pad(bytes(header)) + b"".join(_pad(content) for *_, content in tensors))


def _tensors() -> Iterator[tuple[str, tuple[int, ...], int]]:
    yield "token_embd.weight", (_WIDTH, VOCABULARY), _TENSOR_F16
    yield "output_norm.weight", (_WIDTH,), _TENSOR_F32
    yield "output.weight", (_WIDTH, VOCABULARY), _TENSOR_Q8_0
    for layer in range(_LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{norm}.weight", (_WIDTH,), _TENSOR_F32
        for part in ("q", "k", "v", "output"):
            yield f"blk.{layer}.attn_{part}.weight", (_WIDTH, _WIDTH), _TENSOR_F16
        for part, shape in (("gate", (_WIDTH, 2 * _WIDTH)), ("up", (_WIDTH, 2 * _WIDTH)), ("down", (2 * _WIDTH, _WIDTH))):
            yield f"blk.{layer}.ffn_{part}.weight", shape, _TENSOR_Q8_0


def _content(name: str, shape: tuple[int, ...], kind: int) -> bytes:
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    chance = random.Random(name)
    if kind == _TENSOR_F32:  # only norms
        return struct.pack(f"<{count}f", *[1.0] * count)
    if kind == _TENSOR_F16:
        return struct.pack(f"<{count}e", *(chance.uniform(-0.2, 0.2) for _ in range(count)))
    blocks = (struct.pack("<e32b", 0.0016, *(chance.randint(-127, 127) for _ in range(32))) for _ in range(count // 32))
    return b"".join(blocks)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _pad(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNMENT)


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
            logits = decode(library, model, gpu=True)
            if not np.abs(logits - expected).max() <= _TOLERANCE * np.abs(expected).max():  # NaN is not
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
