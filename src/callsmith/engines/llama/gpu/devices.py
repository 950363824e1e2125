"""The GPUs that the library sees, with their memory."""

import ctypes as C
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from callsmith.engines.llama.libllama import Library

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
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    found = [c.ggml_backend_dev_get(number) for number in range(c.ggml_backend_dev_count())]
    types = {device: c.ggml_backend_dev_type(device) for device in found}
    wanted = _GPU if _GPU in types.values() else _INTEGRATED
    return tuple(_device(c, device) for device in found if types[device] == wanted)


def _device(c: C.CDLL, device: int) -> Device:
    free, total = C.c_size_t(), C.c_size_t()
    c.ggml_backend_dev_memory(device, C.byref(free), C.byref(total))
    name, description = (
        text(device).decode("utf-8", "replace") for text in (c.ggml_backend_dev_name, c.ggml_backend_dev_description)
    )
    return Device(name, description, free.value, total.value)
