"""Where the layers of a GGUF model go: on GPUs, all of them where they fit, else as many as the free memory holds.

What they take is in the header of the file, which is read without loading the model; which GPUs there are, the library says.
"""

import ctypes as C
import mmap
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Final, TypeAlias

from callsmith.engines.llama.libllama import Library, declare
from callsmith.engines.split_gguf import split_parts

Value: TypeAlias = "int | float | bool | str | list[int | float | bool | str]"

_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_SIZE: Final = struct.Struct("<Q")
_LONGEST: Final = 4096  # numbers of a list that are read: longer ones belong to the vocabulary
_LAYER: Final = re.compile(r"blk\.(\d+)\.")
_GPU, _INTEGRATED = 1, 2  # types of devices; the processor is one too
_Pointer, _Text = C.c_void_p, C.c_char_p
# name: (result, *arguments)
_SIGNATURES: Final[Mapping[str, tuple[Any, ...]]] = {
    "ggml_backend_dev_count": (C.c_size_t,),
    "ggml_backend_dev_get": (_Pointer, C.c_size_t),
    "ggml_backend_dev_name": (_Text, _Pointer),
    "ggml_backend_dev_description": (_Text, _Pointer),
    "ggml_backend_dev_type": (C.c_int, _Pointer),
    "ggml_backend_dev_memory": (None, _Pointer, C.POINTER(C.c_size_t), C.POINTER(C.c_size_t)),
}
_CACHE_BYTES: Final = 2  # of a number in the KV cache
_LOGIT_BYTES: Final = 4
_WORKING: Final = 384 << 20  # bytes on each device for what is computed, and for what the driver needs


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file, or all parts of one, say of themselves. `tensors` maps names to bytes; `parameters` is a count."""

    metadata: Mapping[str, Value]
    tensors: Mapping[str, int]
    parameters: int = 0

    def text(self, key: str) -> str:
        """An entry of the metadata, as text; empty if there is none."""
        value = self.metadata.get(key, "")
        return str(value) if not isinstance(value, list) else ""

    def number(self, key: str, default: int = 0) -> int:
        """A number of this architecture, as in `attention.head_count`; of a list the largest."""
        value = self.metadata.get(f"{self.metadata.get('general.architecture')}.{key}", default)
        largest = max(value, default=default) if isinstance(value, list) else value
        return int(largest)

    def numbers(self, key: str, count: int, default: int = 0) -> list[int]:
        """A number for each layer, from a list or from one that holds for all."""
        stored = self.metadata.get(f"{self.metadata.get('general.architecture')}.{key}", default)
        listed = stored if isinstance(stored, list) else [stored] * count
        return [int(value) for value in [*listed, *[default] * count][:count]]

    @property
    def layers(self) -> int:
        return self.number("block_count")

    def layer_bytes(self) -> list[int]:
        """The bytes of the weights of each layer."""
        sizes = [0] * self.layers
        for name, size in self.tensors.items():
            if (match := _LAYER.match(name)) and (number := int(match[1])) < len(sizes):
                sizes[number] += size
        return sizes


def read_header(path: Path) -> Header:
    """Read the header of a file and of the files that it was split into; ValueError if there is no such thing in it."""
    metadata, tensors, parameters = _read(path)
    for part in split_parts(path)[1:]:
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
            self._skip_texts(count)
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

    def _skip_texts(self, count: int) -> None:
        """A vocabulary has some 100,000 of them, so that no more is done for each than it takes."""
        data, read_size, at = self._data, _SIZE.unpack_from, self._at
        for _ in range(count):
            at += 8 + read_size(data, at)[0]
        self._at = at
        self._skip(0)

    def _unpack(self, form: str) -> tuple[Any, ...]:
        form = f"<{form}"
        begin = self._at
        self._skip(struct.calcsize(form))
        return struct.unpack_from(form, self._data, begin)


def _number(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"there is no type {kind}")
    return _NUMBERS[kind]


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: its name for the library, its own, and bytes of its memory."""

    name: str
    description: str
    free: int
    total: int

    def __str__(self) -> str:
        return f"{self.name} ({self.description}, {self.total / 2**30:.0f} GiB)"


def gpus(library: Library) -> tuple[Device, ...]:
    """The GPUs that the library would use: those with memory of their own, else those that share the processor's."""
    c = library.c
    if not all(hasattr(c, name) for name in _SIGNATURES):
        return ()
    declare(c, _SIGNATURES)
    devices = [c.ggml_backend_dev_get(number) for number in range(c.ggml_backend_dev_count())]
    types = {device: c.ggml_backend_dev_type(device) for device in devices}
    wanted = _GPU if _GPU in types.values() else _INTEGRATED
    return tuple(_device(c, device) for device in devices if types[device] == wanted)


def _device(c: C.CDLL, device: int) -> Device:
    free, total = C.c_size_t(), C.c_size_t()
    c.ggml_backend_dev_memory(device, C.byref(free), C.byref(total))
    name, description = (
        text(device).decode("utf-8", "replace") for text in (c.ggml_backend_dev_name, c.ggml_backend_dev_description)
    )
    return Device(name, description, free.value, total.value)


@dataclass(frozen=True, slots=True)
class Placement:
    """How many of a model's layers are on which GPUs; `chosen` by the user, or as many as fit. `of` is 0 if that is not known."""

    layers: int = 0
    of: int = 0
    devices: tuple[Device, ...] = ()
    chosen: bool = False

    def __str__(self) -> str:
        if not self.devices:
            return ""
        where = " and ".join(map(str, self.devices))
        if self.layers:
            return f"{self.layers} of {self.of} layers on {where}" if self.of else f"all layers on {where}"
        return f"on the processor; {where} is not used: " + ("as chosen" if self.chosen else "too little of its memory is free")

    @property
    def parameter(self) -> int:
        """What is passed to the library: it counts the output as one more layer, and takes that first; -1 is all."""
        return 0 if not self.layers else self.layers + 1 if self.layers < self.of else -1


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes of GPU memory that a model asks for: each of its layers with its part of the KV cache, and what comes once."""

    layers: tuple[int, ...]
    output: int = 0
    working: int = 0  # on each device


def demand_of(header: Header, *, context: int, outputs: int) -> Demand:
    """What a model asks for, with a context of so many tokens, of which `outputs` have logits in one decode."""
    count = header.layers
    heads = header.numbers("attention.head_count_kv", count, header.number("attention.head_count", 1))
    width = header.number("embedding_length") // max(1, header.number("attention.head_count", 1))
    key, value = (header.number(f"attention.{part}_length", width) for part in ("key", "value"))
    cache = [context * number * (key + value) * _CACHE_BYTES for number in heads]
    tensors = header.tensors
    names = ("output.weight",) if "output.weight" in tensors else ("token_embd.weight",)  # the output may be the input's
    output = sum(tensors.get(name, 0) for name in (*names, "output_norm.weight"))
    # The size of the vocabulary, at most: an embedding of it has at least half a byte for each number.
    rows = tensors.get("token_embd.weight", 0) * 2 // max(1, header.number("embedding_length", 1))
    vocabulary = header.number("vocab_size") or rows
    layers = tuple(weights + cached for weights, cached in zip(header.layer_bytes(), cache, strict=True))
    return Demand(layers, output, _WORKING + outputs * vocabulary * _LOGIT_BYTES)


def memory_of(header: Header, *, context: int, outputs: int) -> int:
    """Bytes that a model takes in all, wherever its layers are: its weights, the KV cache, and the logits of a decode."""
    demand = demand_of(header, context=context, outputs=outputs)
    cache = sum(demand.layers) - sum(header.layer_bytes())
    return sum(header.tensors.values()) + cache + demand.working - _WORKING


def layers_that_fit(demand: Demand, free: Sequence[int]) -> int:
    """How many layers, counted from the last one, the free memory of all devices together holds."""
    room = sum(max(0, item - demand.working) for item in free) - demand.output
    fitting = 0
    for needed in reversed(demand.layers):
        room -= needed
        if room < 0:
            return fitting
        fitting += 1
    return fitting


def place(
    path: Path, devices: tuple[Device, ...], *, wanted: int | None = None, context: int = 8192, outputs: int = 64
) -> Placement:
    """Where the layers of the model in this file go. A file that cannot be read is left to the library, which says why."""
    if not devices:
        return Placement()
    try:
        header = read_header(path)
    except ValueError:
        return Placement(1 if wanted is None else wanted, 0, devices, chosen=wanted is not None)
    if wanted is not None:
        return Placement(min(wanted, header.layers), header.layers, devices, chosen=True)
    trained = header.number("context_length") or context
    demand = demand_of(header, context=min(context, trained), outputs=outputs)
    return Placement(layers_that_fit(demand, [device.free for device in devices]), header.layers, devices)
