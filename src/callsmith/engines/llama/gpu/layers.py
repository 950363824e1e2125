"""How many layers of a model go to the GPUs: all of them where they fit, else as many as their free memory holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from callsmith.engines.llama.gpu.devices import Device
from callsmith.engines.llama.gpu.header import Header, read_header

_CACHE_BYTES: Final = 2  # of a number in the KV cache
_LOGIT_BYTES: Final = 4
_WORKING: Final = 384 << 20  # bytes on each device for what is computed, and for what the driver needs


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
        """What the library is told: it counts the output as one more layer, and takes that first; -1 is all."""
        return 0 if not self.layers else self.layers + 1 if self.layers < self.of else -1


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes of GPU memory that a model asks for: each of its layers with its part of the KV cache, and what comes once."""

    layers: tuple[int, ...]
    output: int = 0
    working: int = 0  # on each device


def demand_of(header: Header, *, context: int, slice: int) -> Demand:
    """What a model asks for, with a context of so many tokens, `slice` of which are decoded at once."""
    count = header.layers
    heads = header.numbers("attention.head_count_kv", count, header.number("attention.head_count", 1))
    width = header.number("embedding_length") // max(1, header.number("attention.head_count", 1))
    key, value = (header.number(f"attention.{part}_length", width) for part in ("key", "value"))
    cache = [context * number * (key + value) * _CACHE_BYTES for number in heads]
    tensors = header.tensors
    names = ("output.weight",) if "output.weight" in tensors else ("token_embd.weight",)  # the output may be the input's
    output = sum(tensors.get(name, 0) for name in (*names, "output_norm.weight"))
    vocabulary = header.number("vocab_size") or _rows(header)
    layers = tuple(weights + cached for weights, cached in zip(header.layer_bytes(), cache, strict=True))
    return Demand(layers, output, _WORKING + slice * vocabulary * _LOGIT_BYTES)


def memory_of(header: Header, *, context: int, slice: int) -> int:
    """Bytes that a model takes in all, wherever its layers are: its weights, the KV cache, and the logits of a slice."""
    demand = demand_of(header, context=context, slice=slice)
    cache = sum(demand.layers) - sum(header.layer_bytes())
    return sum(header.tensors.values()) + cache + demand.working - _WORKING


def _rows(header: Header) -> int:
    """The size of the vocabulary, at most: an embedding of it has at least half a byte for each number."""
    return header.tensors.get("token_embd.weight", 0) * 2 // max(1, header.number("embedding_length", 1))


def layers_that_fit(demand: Demand, free: Sequence[int]) -> int:
    """How many layers, counted from the last one, the free memory of all devices together holds."""
    room = sum(max(0, one - demand.working) for one in free) - demand.output
    fitting = 0
    for needed in reversed(demand.layers):
        room -= needed
        if room < 0:
            return fitting
        fitting += 1
    return fitting


def place(
    path: Path, devices: tuple[Device, ...], *, wanted: int | None = None, context: int = 8192, slice: int = 256
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
    demand = demand_of(header, context=min(context, trained), slice=slice)
    return Placement(layers_that_fit(demand, [device.free for device in devices]), header.layers, devices)
