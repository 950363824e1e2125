"""A GGUF model of a few hundred kilobytes with random weights and no vocabulary: enough to see whether a library decodes."""

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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
        offset += len(_padded(content))
    path.write_bytes(_padded(bytes(header)) + b"".join(_padded(content) for *_, content in tensors))


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


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNMENT)
