"""A GGUF file with only the first layers of another: the same vocabulary, and an answer takes a fraction of the time.

What it says makes no sense, which is enough for whatever is about caches, grammars, limits and the order of work.
"""

import re
import struct
from pathlib import Path

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of the numbers in the metadata
_TEXT, _LIST, _U32 = 8, 9, 4
_ALIGNMENT = 32
_LAYER = re.compile(rb"blk\.(\d+)\.")


def write_fewer_layers(whole: Path, target: Path, layers: int) -> None:
    """Write the file. Of the metadata only the number of layers changes."""
    data = whole.read_bytes()
    reader = _Reader(data)
    magic, version, tensors, entries = reader.unpack("4sIQQ")
    begin = reader.at
    metadata = bytearray()
    for _ in range(entries):
        start, key = reader.at, reader.text()
        kind = reader.unpack("I")[0]
        before = reader.at
        reader.skip_value(kind)
        is_count = key.endswith(b".block_count") and kind == _U32
        metadata += data[start:before] + (struct.pack("<I", layers) if is_count else data[before : reader.at])
    assert len(metadata) == reader.at - begin
    places: list[tuple[int, bytes, bytes]] = []  # where its content begins, its name, and its shape and type
    for _ in range(tensors):
        name, start = reader.text(), reader.at
        dimensions = reader.unpack("I")[0]
        reader.at += 8 * dimensions + 4
        shape = data[start : reader.at]
        places.append((reader.unpack("Q")[0], name, shape))
    contents = data[-(-reader.at // _ALIGNMENT) * _ALIGNMENT :]
    places.sort()
    ends = [*(offset for offset, *_ in places[1:]), len(contents)]
    kept = [
        (name, shape, contents[offset:end])
        for (offset, name, shape), end in zip(places, ends, strict=True)
        if not (layer := _LAYER.match(name)) or int(layer[1]) < layers
    ]
    header, offset = bytearray(struct.pack("<4sIQQ", magic, version, len(kept), entries)) + metadata, 0
    for name, shape, content in kept:
        header += struct.pack("<Q", len(name)) + name + shape + struct.pack("<Q", offset)
        offset += len(content) + -len(content) % _ALIGNMENT
    padded = (content + bytes(-len(content) % _ALIGNMENT) for content in (bytes(header), *(content for *_, content in kept)))
    target.write_bytes(b"".join(padded))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def unpack(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def text(self) -> bytes:
        size = self.unpack("Q")[0]
        self.at += size
        return self.data[self.at - size : self.at]

    def skip_value(self, kind: int) -> None:
        if kind == _TEXT:
            self.text()
        elif kind == _LIST:
            kind, count = self.unpack("IQ")
            if kind == _TEXT:
                for _ in range(count):
                    self.text()
            else:
                self.at += count * _SIZES[kind]
        else:
            self.at += _SIZES[kind]
