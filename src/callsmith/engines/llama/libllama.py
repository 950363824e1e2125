"""llama.cpp's C library: whether it fits, and how it is called. Where it is found is in `llama_builds`.

The layout of the two parameter structs changes between builds of llama.cpp, and a wrong one corrupts memory without a word.
So the layouts below belong to known builds, and loading a library proves that one of them fits: all symbols are there, the
library writes exactly as many bytes as our structs have, and known defaults stand where we expect them. Otherwise `Unavailable`.
"""

import _ctypes
import ctypes as C
import os
import platform
import sys
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, Final, TextIO, TypeAlias

from callsmith.core.errors import CallsmithError, Unavailable
from callsmith.engines.llama_builds.locate import INSTALL, PACKAGE, locate, pinned_library, preload, suggest_install

_Pointer = C.c_void_p
_SPINS: Final = "GOMP_SPINCOUNT"  # rounds of waiting
_loading = Lock()


class ModelParams(C.Structure):
    """`llama_model_params`, alike in all known builds."""

    _fields_ = (
        ("devices", _Pointer),
        ("tensor_buft_overrides", _Pointer),
        ("n_gpu_layers", C.c_int32),
        ("split_mode", C.c_int),
        ("load_mode", C.c_int),
        ("lazy_mode", C.c_int),
        ("main_gpu", C.c_int32),
        ("tensor_split", _Pointer),
        ("progress_callback", _Pointer),
        ("progress_callback_user_data", _Pointer),
        ("kv_overrides", _Pointer),
        ("vocab_only", C.c_bool),
        ("check_tensors", C.c_bool),
        ("use_extra_bufts", C.c_bool),
        ("no_host", C.c_bool),
        ("no_alloc", C.c_bool),
        ("load_mtp", C.c_bool),
    )


_Fields: TypeAlias = tuple[tuple[str, Any], ...]


def _context_fields(added: _Fields) -> _Fields:
    return (
        *((name, C.c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq")),
        ("n_outputs_max", C.c_uint32),
        ("n_outputs_max_per_seq", C.c_uint32),
        ("n_threads", C.c_int32),
        ("n_threads_batch", C.c_int32),
        *((name, C.c_int) for name in ("ctx_type", "rope_scaling_type", "pooling_type", "attention_type", "flash_attn_type")),
        *((name, C.c_float) for name in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor")),
        ("yarn_beta_fast", C.c_float),
        ("yarn_beta_slow", C.c_float),
        ("yarn_orig_ctx", C.c_uint32),
        ("defrag_thold", C.c_float),
        ("cb_eval", _Pointer),
        ("cb_eval_user_data", _Pointer),
        ("type_k", C.c_int),
        ("type_v", C.c_int),
        *added,
        ("abort_callback", _Pointer),
        ("abort_callback_data", _Pointer),
        *((name, C.c_bool) for name in ("embeddings", "offload_kqv", "no_perf", "op_offload", "swa_full", "kv_unified")),
        ("samplers", _Pointer),
        ("n_samplers", C.c_size_t),
        ("ctx_other", _Pointer),
    )


class ContextParams(C.Structure):
    """`llama_context_params` of the pinned build."""

    _fields_ = _context_fields((("moe_cache_size", C.c_size_t),))


class ContextParamsV05(C.Structure):
    """`llama_context_params` of llama.cpp v0.5.0."""

    _fields_ = _context_fields(())


CONTEXTS: Final = (ContextParams, ContextParamsV05)


class LlamaBatch(C.Structure):
    """`llama_batch`: tokens with their positions and sequences, and which of them want logits."""

    _fields_ = (
        ("n_tokens", C.c_int32),
        ("token", C.POINTER(C.c_int32)),
        ("embd", _Pointer),
        ("pos", C.POINTER(C.c_int32)),
        ("n_seq_id", C.POINTER(C.c_int32)),
        ("seq_id", C.POINTER(C.POINTER(C.c_int32))),
        ("logits", C.POINTER(C.c_int8)),
    )


# Defaults of the known builds: all that are not null. The compiler's padding can swallow a field more or less so that the size
# stays the same; then these stand elsewhere.
KNOWN: Final[Mapping[str, Mapping[str, object]]] = {
    "llama_model_default_params": (
        {"n_gpu_layers": -1, "split_mode": 1, "load_mode": -1, "lazy_mode": 1, "main_gpu": 0}
        | {"vocab_only": False, "check_tensors": False, "use_extra_bufts": True}
        | {"no_host": False, "no_alloc": False, "load_mtp": False}
    ),
    "llama_context_default_params": (
        {"n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_rs_seq": 0}
        | {"n_outputs_max": 0, "n_outputs_max_per_seq": 1, "n_threads": 4, "n_threads_batch": 4}
        | {"ctx_type": 0, "rope_scaling_type": -1, "pooling_type": -1, "attention_type": -1, "flash_attn_type": -1}
        | {"rope_freq_base": 0.0, "rope_freq_scale": 0.0, "yarn_ext_factor": -1.0, "yarn_attn_factor": -1.0}
        | {"yarn_beta_fast": -1.0, "yarn_beta_slow": -1.0, "yarn_orig_ctx": 0, "defrag_thold": -1.0}
        | {"type_k": 1, "type_v": 1, "moe_cache_size": 0}
        | {"embeddings": False, "offload_kqv": True, "no_perf": True, "op_offload": True}
        | {"swa_full": True, "kv_unified": False}
    ),
}

_LogCallback = C.CFUNCTYPE(None, C.c_int, C.c_char_p, _Pointer)
_Text, _Int, _Bool, _Size = C.c_char_p, C.c_int32, C.c_bool, C.c_size_t

# name: (result, *arguments)
_SIGNATURES: Final[Mapping[str, tuple[Any, ...]]] = {
    "llama_backend_init": (None,),
    "llama_print_system_info": (_Text,),
    "llama_log_set": (None, _LogCallback, _Pointer),
    "llama_model_default_params": (ModelParams,),
    "llama_context_default_params": (ContextParams,),
    "llama_model_load_from_file": (_Pointer, _Text, ModelParams),
    "llama_model_free": (None, _Pointer),
    "llama_model_get_vocab": (_Pointer, _Pointer),
    "llama_model_n_ctx_train": (_Int, _Pointer),
    "llama_model_n_params": (C.c_uint64, _Pointer),
    "llama_model_chat_template": (_Text, _Pointer, _Text),
    "llama_model_desc": (_Int, _Pointer, _Text, _Size),
    "llama_model_meta_val_str": (_Int, _Pointer, _Text, _Text, _Size),
    "llama_vocab_n_tokens": (_Int, _Pointer),
    "llama_vocab_get_attr": (C.c_int, _Pointer, _Int),
    "llama_vocab_get_text": (_Text, _Pointer, _Int),
    "llama_vocab_is_eog": (_Bool, _Pointer, _Int),
    "llama_vocab_bos": (_Int, _Pointer),
    "llama_vocab_eos": (_Int, _Pointer),
    "llama_vocab_get_add_bos": (_Bool, _Pointer),
    "llama_tokenize": (_Int, _Pointer, _Text, _Int, C.POINTER(_Int), _Int, _Bool, _Bool),
    "llama_token_to_piece": (_Int, _Pointer, _Int, _Text, _Int, _Int, _Bool),
    "llama_init_from_model": (_Pointer, _Pointer, ContextParams),
    "llama_free": (None, _Pointer),
    "llama_n_ctx": (C.c_uint32, _Pointer),
    "llama_set_causal_attn": (None, _Pointer, _Bool),
    "llama_set_abort_callback": (None, _Pointer, _Pointer, _Pointer),
    "llama_set_n_threads": (None, _Pointer, _Int, _Int),
    "llama_batch_init": (LlamaBatch, _Int, _Int, _Int),
    "llama_batch_free": (None, LlamaBatch),
    "llama_decode": (_Int, _Pointer, LlamaBatch),
    "llama_get_logits_ith": (C.POINTER(C.c_float), _Pointer, _Int),
    "llama_get_memory": (_Pointer, _Pointer),
    "llama_memory_seq_rm": (_Bool, _Pointer, _Int, _Int, _Int),
    "llama_memory_seq_cp": (None, _Pointer, _Int, _Int, _Int, _Int),
    "llama_state_seq_get_size": (_Size, _Pointer, _Int),
    "llama_state_seq_get_data": (_Size, _Pointer, _Pointer, _Size, _Int),
    "llama_state_seq_set_data": (_Size, _Pointer, _Pointer, _Size, _Int),
    "llama_model_is_recurrent": (_Bool, _Pointer),
    "llama_model_is_hybrid": (_Bool, _Pointer),
}


class LibraryLog:
    """What the library has to say: nothing is printed, the latest warnings and errors are kept to explain a failure."""

    _WARN, _ERROR, _CONTINUED = 3, 4, 5

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=20)
        self._keeping = False
        self.echo: TextIO | None = None  # where they are printed all the same
        self.callback = _LogCallback(self._take)  # held here: the library keeps only the address

    def _take(self, level: int, text: bytes | None, _data: object) -> None:
        if level != self._CONTINUED:
            self._keeping = level in (self._WARN, self._ERROR)
        if self._keeping and text and (line := text.decode("utf-8", "replace").strip()):
            self._lines.append(line)
            if self.echo:
                print(line, file=self.echo, flush=True)

    def clear(self) -> None:
        self._lines.clear()

    def reason(self) -> str:
        """The latest lines as one; empty if there were none."""
        return "; ".join(list(self._lines)[-3:])


class Library:
    """The loaded library. `c` is its C functions, typed: `library.c.llama_decode(context, batch)`."""

    def __init__(self, path: Path) -> None:
        try:
            with openmp_policy():
                self.c = C.CDLL(str(path))
        except OSError as error:
            raise Unavailable(
                f"the llama.cpp library cannot be loaded: {error}", hint=suggest_install(path, str(error))
            ) from error
        declare(self.c)
        context = check_layout(self.c)
        self.c.llama_context_default_params.restype = context
        self.c.llama_init_from_model.argtypes = (_Pointer, context)
        self.log = LibraryLog()
        self.c.llama_log_set(self.log.callback, None)
        if hasattr(self.c, "ggml_backend_load_all_from_path"):
            # Some builds keep the code for each kind of processor in a file of its own; in the others this finds nothing.
            preload(path)
            for folder in (path.parent, path.parent.parent / "bin"):
                self.c.ggml_backend_load_all_from_path(os.fsencode(folder))
        self.c.llama_backend_init()
        self.uses: str = self.c.llama_print_system_info().decode("utf-8", "replace")

    def neglects(self, processor: str) -> str:
        """What this processor has for faster arithmetic, and the library has no code for; empty: nothing is known of."""
        return "dot products" if "asimddp" in processor.split() and "DOTPROD = 1" not in self.uses else ""


def load() -> Library:
    """The one library of this process, also where several threads open their models at the same time: whatever it logs goes to
    the object that was made last, and that must never go."""
    with _loading:
        return _load()


@cache
def _load() -> Library:
    return Library(locate().path)


def declare(dll: C.CDLL, signatures: Mapping[str, tuple[Any, ...]] = _SIGNATURES) -> None:
    """Give each function its types. One that is missing means another build."""
    for name, (result, *arguments) in signatures.items():
        if not hasattr(dll, name):
            raise _misfit(f"it has no {name}")
        function = getattr(dll, name)
        function.restype, function.argtypes = result, arguments


def check_layout(
    dll: C.CDLL, *, model: type[C.Structure] = ModelParams, contexts: Sequence[type[C.Structure]] = CONTEXTS
) -> type[C.Structure]:
    """Prove that the library's parameter structs are laid out as ours, without ever letting it write past a buffer.

    Which of the `contexts` it has is the result.
    """
    _fitting(dll, "llama_model_default_params", (model,))
    return _fitting(dll, "llama_context_default_params", contexts)


def check_struct(dll: C.CDLL, name: str, struct: type[C.Structure], known: Mapping[str, object]) -> None:
    """Prove in the same way that what this function returns is laid out like this struct."""
    _fitting(dll, name, (struct,), known)


def _fitting(
    dll: C.CDLL, name: str, structs: Sequence[type[C.Structure]], defaults: Mapping[str, object] | None = None
) -> type[C.Structure]:
    content, size = _measure(dll, name)
    sizes = [C.sizeof(struct) for struct in structs]
    if size is not None and size not in sizes:
        raise _misfit(f"{name} fills {size} bytes, not {' or '.join(map(str, sizes))}")
    why = ""
    for struct in structs:
        if size in (None, C.sizeof(struct)):
            values = struct.from_buffer_copy(content)
            expected = (defaults or KNOWN[name]).items()
            known = ((field, getattr(values, field), value) for field, value in expected if hasattr(values, field))
            moved = [f"{field} = {actual}, not {value}" for field, actual, value in known if actual != value]
            if not moved:
                return struct
            why = why or moved[0]
    raise _misfit(f"{name} gives {why}")


def _misfit(why: str) -> Unavailable:
    try:
        installed = f" ({PACKAGE} {version(PACKAGE)})" if locate().path == pinned_library() else ""
    except (CallsmithError, ModuleNotFoundError):
        installed = ""
    return Unavailable(f"this build of the llama.cpp library{installed} is not one that callsmith knows: {why}", hint=INSTALL)


_ROOM: Final = 1024  # far more than either struct


class _Room(C.Structure):
    _fields_ = (("content", C.c_uint8 * _ROOM),)


def _measure(dll: C.CDLL, name: str) -> tuple[bytes, int | None]:
    """What the function returns, with room to spare, and how many bytes of it are the struct (None: unknown)."""
    address = C.cast(getattr(dll, name), _Pointer)
    machine = platform.machine().lower()
    ends: list[int] = []
    content = b""
    for fill in (0xAA, 0x55):  # two, for a last byte that happens to be one of them
        buffer = (C.c_uint8 * _ROOM)(*[fill] * _ROOM)
        if machine in ("x86_64", "amd64"):
            # A large struct is returned into memory whose address comes as a hidden first argument.
            C.CFUNCTYPE(_Pointer, _Pointer)(address.value or 0)(C.addressof(buffer))
        elif machine not in ("aarch64", "arm64") or not _call_into(address, buffer):
            return bytes(C.CFUNCTYPE(_Room)(address.value or 0)().content), None
        content = bytes(buffer)
        ends.append(len(content.rstrip(bytes([fill]))))
    return content, -(-max(ends) // 8) * 8


class _FfiType(C.Structure):
    _fields_ = (("size", C.c_size_t), ("alignment", C.c_ushort), ("type", C.c_ushort), ("elements", _Pointer))


def _call_into(function: C.c_void_p, buffer: "C.Array[C.c_uint8]") -> bool:
    """Call a function that returns a struct so that it writes into `buffer`; False where libffi cannot be reached.

    On ARM the address for the result travels in a register of its own, which ctypes gives no access to; the libffi under it does.
    """
    file = getattr(_ctypes, "__file__", None)
    ffi = C.CDLL(file) if file else C.CDLL(None)
    if not all(hasattr(ffi, name) for name in ("ffi_prep_cif", "ffi_call", "ffi_type_pointer")):
        return False
    word = C.addressof(_FfiType.in_dll(ffi, "ffi_type_pointer"))
    count = C.sizeof(buffer) // C.sizeof(_Pointer)
    elements = (_Pointer * (count + 1))(*[word] * count, None)
    struct_type, default_abi = 13, 1
    result = _FfiType(0, 0, struct_type, C.cast(elements, _Pointer))
    call = (C.c_uint64 * 16)()  # an ffi_cif, with room to spare
    if ffi.ffi_prep_cif(call, C.c_int(default_abi), C.c_uint(0), C.byref(result), None) != 0:
        return False
    ffi.ffi_call(call, function, buffer, None)
    return True


@contextmanager
def openmp_policy() -> Generator[None]:
    """Let threads wait awake for some 20 µs and then sleep. Those that never sleep, as is the default, are as fast on cores of
    their own and slow generation many times where these are shared; those that sleep at once are 15 % slower on their own.

    OpenMP reads this once, when it is loaded, so it is set for just that moment. What the user has set is kept.
    """
    if not sys.platform.startswith("linux") or not {"OMP_WAIT_POLICY", _SPINS}.isdisjoint(os.environ):
        yield
        return
    os.environ[_SPINS] = "20000"
    try:
        yield
    finally:
        os.environ.pop(_SPINS, None)
