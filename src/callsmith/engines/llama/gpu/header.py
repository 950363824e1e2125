"""The header of a GGUF file: its metadata, and how many bytes each tensor takes. Read without loading the model."""

import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Final, TypeAlias

Value: TypeAlias = "int | float | bool | str | list[int | float | bool | str]"

_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_LONGEST: Final = 4096  # numbers of a list that are read: longer ones belong to the vocabulary
_LAYER: Final = re.compile(r"blk\.(\d+)\.")
_SPLIT: Final = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file, or all parts of one, say of themselves. `tensors` maps names to bytes; `parameters` is a count."""

    metadata: Mapping[str, Value]
    tensors: Mapping[str, int]
    parameters: int = 0

    def text(self, key: str) -> str:
        """An entry of the metadata, as text; empty if there is none."""
        found = self.metadata.get(key, "")
        return str(found) if not isinstance(found, list) else ""

    def number(self, key: str, default: int = 0) -> int:
        """A number of this architecture, as in `attention.head_count`; of a list the largest."""
        found = self.metadata.get(f"{self.metadata.get('general.architecture')}.{key}", default)
        largest = max(found, default=default) if isinstance(found, list) else found
        return int(largest)

    def numbers(self, key: str, count: int, default: int = 0) -> list[int]:
        """A number for each layer, from a list or from one that holds for all."""
        found = self.metadata.get(f"{self.metadata.get('general.architecture')}.{key}", default)
        listed = found if isinstance(found, list) else [found] * count
        return [int(value) for value in [*listed, *[default] * count][:count]]

    @property
    def layers(self) -> int:
        return self.number("block_count")

    def layer_bytes(self) -> list[int]:
        """The bytes of the weights of each layer."""
        found = [0] * self.layers
        for name, size in self.tensors.items():
            if (match := _LAYER.match(name)) and (number := int(match[1])) < len(found):
                found[number] += size
        return found


def read_header(path: Path) -> Header:
    """Read the header of a file and of the files that it was split into; ValueError if there is no such thing in it."""
    metadata, tensors, parameters = _read(path)
    if match := _SPLIT.search(path.name):
        for number in range(2, int(match[1]) + 1):
            part = path.with_name(path.name[: match.start()] + f"-{number:05}-of-{match[1]}.gguf")
            _, more, count = _read(part)
            tensors, parameters = tensors | more, parameters + count
    return Header(metadata, tensors, parameters)


def _read(path: Path) -> tuple[dict[str, Value], dict[str, int], int]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data).header()
    except (OSError, struct.error, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from error


class _Cursor:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def header(self) -> tuple[dict[str, Value], dict[str, int], int]:
        magic, version, tensors, entries = self._unpack("4sIQQ")
        if magic != b"GGUF" or not 2 <= version <= 3:
            raise ValueError("not a GGUF file of version 2 or 3")
        metadata: dict[str, Value] = {}
        for _ in range(entries):
            key, kind = self._text(), self._unpack("I")[0]
            metadata[key] = self._value(kind)
        places: list[tuple[str, int]] = []
        parameters = 0
        for _ in range(tensors):
            name, dimensions = self._text(), self._unpack("I")[0]
            parameters += prod(self._unpack(f"{dimensions}Q"))
            self._skip(4)
            places.append((name, self._unpack("Q")[0]))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"general.alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        places.sort(key=lambda place: place[1])
        ends = pairwise([*(offset for _, offset in places), len(self._data) - start])
        sizes = {name: max(0, end - begin) for (name, _), (begin, end) in zip(places, ends, strict=True)}
        return metadata, sizes, parameters

    def _value(self, kind: int) -> Value:
        if kind == _TEXT:
            return self._text()
        if kind != _LIST:
            return self._unpack(_number(kind))[0]
        kind, count = self._unpack("IQ")
        if kind == _TEXT:
            for _ in range(count):
                self._skip(self._unpack("Q")[0])
            return []
        code = _number(kind)
        if count <= _LONGEST:
            return list(self._unpack(f"{count}{code}"))
        self._skip(count * struct.calcsize(code))
        return []

    def _text(self) -> str:
        size: int = self._unpack("Q")[0]
        begin = self._at
        self._skip(size)
        return self._data[begin : self._at].decode("utf-8", "replace")

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("it ends before its header does")

    def _unpack(self, form: str) -> tuple[Any, ...]:
        form = f"<{form}"
        begin = self._at
        self._skip(struct.calcsize(form))
        return struct.unpack_from(form, self._data, begin)


def _number(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"there is no type {kind}")
    return _NUMBERS[kind]
