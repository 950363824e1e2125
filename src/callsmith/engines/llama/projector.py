"""A projector: the part of a model that reads images, a GGUF file of its own (`mmproj-….gguf`). By mtmd of llama.cpp's library.

Not every build of the library has mtmd: the pinned one does, those of `callsmith engines install` do not.
"""

import ctypes as C
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Mapping
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import CallsmithError, ModelError, Unavailable, UsageError
from callsmith.core.types.quantities import write_size
from callsmith.core.values import Image
from callsmith.engines.decoding.pictures import Picture, ShownImage, number_tokens
from callsmith.engines.llama.gguf import SLICE, Weights
from callsmith.engines.llama.libllama import check_struct, declare
from callsmith.engines.llama.picture_rows import LARGEST_WHOLE, PictureRows
from callsmith.engines.llama.threads import most_threads
from callsmith.engines.llama_builds.locate import PINNED, VARIABLE
from callsmith.engines.lru import LRU
from callsmith.engines.split_gguf import choose_projector
from callsmith.formats.prompt.prompt import NO_IMAGES

_MOST_BYTES: Final = 16 << 20  # of an image's file
_MOST_PIXELS: Final = 40_000_000  # of an image: 120 MB while it is read
_KEPT_BYTES: Final = 256 << 20  # of images that were read, for the turns that follow
_KINDS: Final = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8")  # how the files begin that are read
_TEXT, _IMAGE = 0, 1  # kinds of chunks
_Pointer, _Int, _Size, _Bool, _Text = C.c_void_p, C.c_int32, C.c_size_t, C.c_bool, C.c_char_p


class ProjectorParams(C.Structure):
    """`mtmd_context_params` of the pinned build."""

    _fields_ = (
        ("use_gpu", C.c_bool),
        ("device", _Pointer),
        ("print_timings", C.c_bool),
        ("n_threads", C.c_int),
        ("image_marker", _Pointer),
        ("media_marker", _Pointer),
        ("flash_attn_type", C.c_int),
        ("warmup", C.c_bool),
        ("image_min_tokens", C.c_int),
        ("image_max_tokens", C.c_int),
        ("cb_eval", _Pointer),
        ("cb_eval_user_data", _Pointer),
        ("batch_max_tokens", C.c_int32),
        ("progress_callback", _Pointer),
        ("progress_callback_user_data", _Pointer),
    )


class _InputText(C.Structure):
    _fields_ = (("text", _Text), ("text_len", _Size), ("add_special", _Bool), ("parse_special", _Bool))


class _Position(C.Structure):
    _fields_ = (("t", C.c_uint32), ("x", C.c_uint32), ("y", C.c_uint32), ("z", C.c_uint32))


_DEFAULTS: Final[Mapping[str, object]] = {
    "use_gpu": True, "print_timings": True, "n_threads": 4, "flash_attn_type": -1, "warmup": True,
    "image_min_tokens": -1, "image_max_tokens": -1, "batch_max_tokens": 1024,
}  # fmt: skip
_SIGNATURES: Final[Mapping[str, tuple[Any, ...]]] = {
    "llama_model_n_embd_inp": (_Int, _Pointer),
    "mtmd_context_params_default": (ProjectorParams,),
    "mtmd_default_marker": (_Text,),
    "mtmd_init_from_file": (_Pointer, _Text, _Pointer, ProjectorParams),
    "mtmd_free": (None, _Pointer),
    "mtmd_log_set": (None, _Pointer, _Pointer),
    "mtmd_support_vision": (_Bool, _Pointer),
    "mtmd_decode_use_non_causal": (_Bool, _Pointer, _Pointer),
    "mtmd_decode_use_mrope": (_Bool, _Pointer),
    "mtmd_bitmap_init": (_Pointer, C.c_uint32, C.c_uint32, _Pointer),
    "mtmd_bitmap_free": (None, _Pointer),
    "mtmd_input_chunks_init": (_Pointer,),
    "mtmd_input_chunks_size": (_Size, _Pointer),
    "mtmd_input_chunks_get": (_Pointer, _Pointer, _Size),
    "mtmd_input_chunks_free": (None, _Pointer),
    "mtmd_input_chunk_get_type": (C.c_int, _Pointer),
    "mtmd_input_chunk_get_tokens_text": (C.POINTER(_Int), _Pointer, C.POINTER(_Size)),
    "mtmd_input_chunk_get_tokens_image": (_Pointer, _Pointer),
    "mtmd_input_chunk_get_n_tokens": (_Size, _Pointer),
    "mtmd_input_chunk_get_n_pos": (_Int, _Pointer),
    "mtmd_image_tokens_get_decoder_pos": (_Position, _Pointer, _Int, _Size),
    "mtmd_tokenize": (_Int, _Pointer, _Pointer, C.POINTER(_InputText), C.POINTER(_Pointer), _Size),
    "mtmd_tokenize_from_parts": (_Int,),  # not called: builds without it have another mtmd_input_text
    "mtmd_encode_chunk": (_Int, _Pointer, _Pointer),
    "mtmd_get_output_embd": (C.POINTER(C.c_float), _Pointer),
    "stbi_info_from_memory": (C.c_int, _Text, C.c_int, *[C.POINTER(C.c_int)] * 3),
    "stbi_load_from_memory": (_Pointer, _Text, C.c_int, *[C.POINTER(C.c_int)] * 3, C.c_int),
    "stbi_image_free": (None, _Pointer),
}


def find_projector(model: Path) -> Path | None:
    """The projector beside a model's file."""
    try:
        name = choose_projector(model.name, [entry.name for entry in model.parent.iterdir()])
    except OSError:
        return None
    return model.parent / name if name else None


class Projector:
    """A projector for these weights. Images are read one at a time."""

    def __init__(self, weights: Weights, path: Path, *, threads: int | None = None) -> None:
        self._c = weights.library.c
        if not hasattr(self._c, "mtmd_init_from_file"):
            raise Unavailable(
                "this build of llama.cpp reads no images",
                hint=f"The one that callsmith is installed with does: set {VARIABLE}={PINNED}",
            )
        declare(self._c, _SIGNATURES)
        check_struct(self._c, "mtmd_context_params_default", ProjectorParams, _DEFAULTS)
        self._log = weights.library.log
        self._log.clear()
        self._c.mtmd_log_set(self._log.callback, None)
        params = self._c.mtmd_context_params_default()
        params.use_gpu, params.print_timings = bool(weights.placement.layers), False
        params.n_threads = threads or most_threads()
        self.pointer: int | None = self._c.mtmd_init_from_file(bytes(path), weights.pointer, params)
        if not self.pointer:
            hint = "The projector must belong to the model: take the one beside it where you have the model from."
            raise Unavailable(f"{path} is no projector for {weights.info.name}: {self._log.reason()}", hint=hint)
        if not self._c.mtmd_support_vision(self.pointer):
            self.close()
            raise Unavailable(f"{path} reads sound, and no images")
        self._width: int = self._c.llama_model_n_embd_inp(weights.pointer)
        self._is_whole: bool = self._c.mtmd_decode_use_non_causal(self.pointer, None)
        self.shares_positions: bool = self._c.mtmd_decode_use_mrope(self.pointer)
        self.rows = PictureRows(LARGEST_WHOLE if self._is_whole else SLICE)
        self._lock = Lock()
        self._kept: LRU[ShownImage] = LRU(_KEPT_BYTES)

    def show(self, image: Image, salt: str) -> ShownImage:
        """What the image becomes in a prompt. Who sends it again in a later turn need not wait for it again."""
        fingerprint = blake2b(image.url.encode("utf-8", "replace"), digest_size=16).digest()
        shown = self._kept.get((salt, fingerprint))
        if shown is None:
            content = _read_data(image)
            with self._lock:
                if self.pointer is None:
                    raise Unavailable("the engine was closed", retryable=True)
                shown = self._show(content, int.from_bytes(fingerprint))
            self._kept.put((salt, fingerprint), shown, shown.size)
        return shown

    def close(self) -> None:
        if self.pointer:
            self._c.mtmd_free(self.pointer)
            self.pointer = None

    def _show(self, content: bytes, fingerprint: int) -> ShownImage:
        with ExitStack() as cleaning:
            bitmap = self._load(content)
            cleaning.callback(self._c.mtmd_bitmap_free, bitmap)
            chunks = self._c.mtmd_input_chunks_init()
            cleaning.callback(self._c.mtmd_input_chunks_free, chunks)
            marker: bytes = self._c.mtmd_default_marker()
            text = _InputText(marker, len(marker), False, True)
            if status := self._c.mtmd_tokenize(self.pointer, chunks, C.byref(text), (_Pointer * 1)(bitmap), 1):
                raise ModelError(f"llama.cpp could not prepare an image (status {status}): {self._log.reason()}")
            count: int = self._c.mtmd_input_chunks_size(chunks)
            chunk_list = [self._c.mtmd_input_chunks_get(chunks, index) for index in range(count)]
            return ShownImage(tuple(self._read_chunk(chunk, fingerprint + place) for place, chunk in enumerate(chunk_list)))

    def _read_chunk(self, chunk: int, fingerprint: int) -> tuple[int, ...] | Picture:
        kind = self._c.mtmd_input_chunk_get_type(chunk)
        if kind == _TEXT:
            size = _Size()
            tokens = self._c.mtmd_input_chunk_get_tokens_text(chunk, C.byref(size))
            around = tuple(tokens[: size.value])
            if min(around, default=0) < 0:
                raise ModelError("the projector belongs to another model: this one lacks tokens that go around images")
            return around
        count: int = self._c.mtmd_input_chunk_get_n_tokens(chunk)
        if kind != _IMAGE or not count:
            raise ModelError("llama.cpp made no image of an image")
        if self._is_whole and count > LARGEST_WHOLE:
            why = f"it takes {count} tokens, and this model reads at most {LARGEST_WHOLE} at once"
            raise UsageError(f"messages: an image is too large: {why}", field="messages")
        if status := self._c.mtmd_encode_chunk(self.pointer, chunk):
            raise ModelError(f"llama.cpp could not read an image (status {status}): {self._log.reason()}")
        rows = np.ctypeslib.as_array(self._c.mtmd_get_output_embd(self.pointer), (count, self._width)).copy()
        picture = Picture(
            number_tokens(fingerprint, count),
            rows,
            self._c.mtmd_input_chunk_get_n_pos(chunk),
            (self._positions(chunk, count, 0), self._positions(chunk, count, 1)),
            self._is_whole,
        )
        return self.rows.add(picture)

    def _positions(self, chunk: int, count: int, begin: int) -> NDArray[np.int32]:
        if not self.shares_positions:
            return np.arange(begin, begin + count, dtype=np.int32)[None]
        tokens = self._c.mtmd_input_chunk_get_tokens_image(chunk)
        places = [self._c.mtmd_image_tokens_get_decoder_pos(tokens, begin, place) for place in range(count)]
        return np.array([[place.t, place.y, place.x, place.z] for place in places], np.int32).T

    def _load(self, content: bytes) -> int:
        """The pixels of an image, unless they are too many."""
        width, height, channels = C.c_int(), C.c_int(), C.c_int()
        sizes = C.byref(width), C.byref(height), C.byref(channels)
        if not self._c.stbi_info_from_memory(content, len(content), *sizes):
            raise UsageError("messages: an image cannot be read: its file is damaged", field="messages")
        if width.value * height.value > _MOST_PIXELS:
            size = f"{width.value} x {height.value} pixels"
            raise UsageError(f"messages: an image has {size}; at most {_MOST_PIXELS // 10**6} million are read", field="messages")
        pixels = self._c.stbi_load_from_memory(content, len(content), *sizes, 3)
        if not pixels:
            raise UsageError("messages: an image cannot be read: its file is damaged", field="messages")
        try:
            return self._c.mtmd_bitmap_init(width.value, height.value, pixels)
        finally:
            self._c.stbi_image_free(pixels)


def _read_data(image: Image) -> bytes:
    """The content of an image's file. Nothing is fetched: it is only read where the request has it."""
    head, comma, data = image.url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        why = "models that run here fetch nothing: send it as data (data:image/png;base64,…)"
        raise UsageError(f"messages: an image is given by its address, and {why}", field="messages")
    if len(data) * 3 // 4 > _MOST_BYTES:
        raise UsageError(f"messages: an image has more than {write_size(_MOST_BYTES)}", field="messages")
    try:
        content = b64decode(data, validate=True)
    except (NoBase64, ValueError):
        raise UsageError("messages: an image is no valid Base64", field="messages") from None
    if not content.startswith(_KINDS):
        raise UsageError("messages: an image is of a kind that is not read here: send PNG, JPEG or GIF", field="messages")
    return content


def open_projector(
    weights: Weights, path: str | None, found: Path | None, *, threads: int | None = None
) -> tuple[Projector | None, str]:
    """The projector at that path, else the one that was found; where there is none that works, why images are not read."""
    if path:
        if not Path(path).expanduser().is_file():
            raise Unavailable(f"there is no projector at {path}", hint="Name a GGUF file, as in --projector mmproj-F16.gguf")
        return Projector(weights, Path(path).expanduser(), threads=threads), ""
    if found is None:
        return None, f"{NO_IMAGES}: it has no projector (mmproj-….gguf) beside it, nor by --projector"
    try:
        return Projector(weights, found, threads=threads), ""
    except CallsmithError as error:
        hint = f" ({error.hint})" if isinstance(error, Unavailable) and error.hint else ""
        return None, f"{NO_IMAGES}: {error}{hint}"
