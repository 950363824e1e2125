"""Projectors of random weights: GGUF files of some hundred kilobytes, of which llama.cpp makes rows for a model of any width.

What a model says of an image with one makes no sense. But that it gets exactly these rows, at these places, can be seen.
"""

import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from tests.fewer_layers import _Reader

# Rows one after another; rows that see each other; rows that have columns and lines for positions.
Kind = Literal["mlp", "gemma3", "qwen2vl_merger"]
Value = bool | str | int | float | tuple[float, ...]

_U32, _I32, _F32, _BOOL, _TEXT, _LIST = 4, 5, 6, 7, 8, 9
_ALIGNMENT = 32
_WIDTH, _HEADS, _LAYERS, _PATCH = 64, 2, 1, 14
_SIDES = {"mlp": 56, "gemma3": 112, "qwen2vl_merger": 56}  # of an image, in pixels


def write_projector(path: Path, width: int, kind: Kind = "mlp") -> None:
    """Write one whose rows are so wide."""
    metadata: dict[str, tuple[int, Value]] = {
        "general.architecture": (_TEXT, "clip"),
        "clip.has_vision_encoder": (_BOOL, True),
        "clip.projector_type": (_TEXT, kind),
        "clip.use_gelu": (_BOOL, True),
        "clip.vision.embedding_length": (_U32, _WIDTH),
        "clip.vision.feed_forward_length": (_U32, 2 * _WIDTH),
        "clip.vision.block_count": (_U32, _LAYERS),
        "clip.vision.attention.head_count": (_U32, _HEADS),
        "clip.vision.attention.layer_norm_epsilon": (_F32, 1e-6),
        "clip.vision.projection_dim": (_U32, width),
        "clip.vision.image_size": (_U32, _SIDES[kind]),
        "clip.vision.patch_size": (_U32, _PATCH),
        "clip.vision.projector.scale_factor": (_U32, 2),
        "clip.vision.image_mean": (_LIST, (0.5, 0.5, 0.5)),
        "clip.vision.image_std": (_LIST, (0.5, 0.5, 0.5)),
    }
    tensors = [(name, shape, _content(name, shape)) for name, shape in _tensors(kind, width)]
    header = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)))
    for key, (type_, value) in metadata.items():
        header += _text(key) + struct.pack("<I", type_) + _value(type_, value)
    offset = 0
    for name, shape, content in tensors:
        header += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        offset += len(_pad(content))
    path.write_bytes(_pad(bytes(header)) + b"".join(_pad(content) for *_, content in tensors))


def _tensors(kind: Kind, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    patches = (_SIDES[kind] // _PATCH) ** 2
    yield "v.patch_embd.weight", (_PATCH, _PATCH, 3, _WIDTH)
    if kind == "qwen2vl_merger":
        yield "v.patch_embd.weight.1", (_PATCH, _PATCH, 3, _WIDTH)
    else:
        yield "v.patch_embd.bias", (_WIDTH,)
        yield "v.position_embd.weight", (_WIDTH, patches)
    for layer in range(_LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            yield f"v.blk.{layer}.{part}.weight", (_WIDTH, _WIDTH)
            yield f"v.blk.{layer}.{part}.bias", (_WIDTH,)
        for norm in ("ln1", "ln2"):
            yield f"v.blk.{layer}.{norm}.weight", (_WIDTH,)
            yield f"v.blk.{layer}.{norm}.bias", (_WIDTH,)
        yield f"v.blk.{layer}.ffn_up.weight", (_WIDTH, 2 * _WIDTH)
        yield f"v.blk.{layer}.ffn_up.bias", (2 * _WIDTH,)
        yield f"v.blk.{layer}.ffn_down.weight", (2 * _WIDTH, _WIDTH)
        yield f"v.blk.{layer}.ffn_down.bias", (_WIDTH,)
    yield "v.post_ln.weight", (_WIDTH,)
    yield "v.post_ln.bias", (_WIDTH,)
    match kind:
        case "mlp":
            yield "mm.0.weight", (_WIDTH, width)
            yield "mm.0.bias", (width,)
            yield "mm.2.weight", (width, width)
            yield "mm.2.bias", (width,)
        case "gemma3":
            yield "mm.input_projection.weight", (width, _WIDTH)
            yield "mm.soft_emb_norm.weight", (_WIDTH,)
        case "qwen2vl_merger":
            yield "mm.0.weight", (4 * _WIDTH, 4 * _WIDTH)
            yield "mm.0.bias", (4 * _WIDTH,)
            yield "mm.2.weight", (4 * _WIDTH, width)
            yield "mm.2.bias", (width,)


def _content(name: str, shape: tuple[int, ...]) -> bytes:
    count = 1
    for size in shape:
        count *= size
    if "norm" in name or "ln" in name:
        return struct.pack(f"<{count}f", *[1.0 if name.endswith("weight") else 0.0] * count)
    chance = random.Random(name)
    return struct.pack(f"<{count}f", *(chance.uniform(-0.1, 0.1) for _ in range(count)))


def _value(kind: int, value: Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<?", value)
        case str():
            return _text(value)
        case tuple():
            return struct.pack(f"<IQ{len(value)}f", _F32, len(value), *value)
        case _:
            return struct.pack("<I" if kind == _U32 else "<f", value)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _pad(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNMENT)


def write_with_sections(whole: Path, target: Path) -> None:
    """Write a model again as one whose positions have sections, for time, lines and columns: its projector is
    `qwen2vl_merger`."""
    data = whole.read_bytes()
    reader = _Reader(data)
    _, _, tensors, entries = reader.unpack("4sIQQ")
    metadata = bytearray()
    for _ in range(entries):
        key, begin = reader.text(), reader.at
        kind = reader.unpack("I")[0]
        reader.skip_value(kind)
        value = struct.pack("<I", _TEXT) + _text("qwen2vl") if key == b"general.architecture" else data[begin : reader.at]
        metadata += _text(key.decode().replace("llama.", "qwen2vl.", 1)) + value
    metadata += _text("qwen2vl.rope.dimension_sections") + struct.pack("<IIQ4i", _LIST, _I32, 4, 8, 12, 12, 0)
    begin = reader.at
    for _ in range(tensors):
        reader.text()
        dimensions = reader.unpack("I")[0]
        reader.at += 8 * dimensions + 12
    header = struct.pack("<4sIQQ", b"GGUF", 3, tensors, entries + 1) + metadata + data[begin : reader.at]
    target.write_bytes(_pad(header) + data[-(-reader.at // _ALIGNMENT) * _ALIGNMENT :])


def write_png(width: int, height: int, color: tuple[int, int, int]) -> bytes:
    """The file of an image of one colour, a little lighter towards the right."""
    rows = b"".join(
        b"\0" + b"".join(bytes(min(255, part + 64 * x // width) for part in color) for x in range(width)) for _ in range(height)
    )

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
