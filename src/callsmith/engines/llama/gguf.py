"""A GGUF file, opened: its vocabulary and metadata, and a context to decode in."""

import ctypes as C
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import llguidance
import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import ModelError, Unavailable
from callsmith.core.ports import WeightsInfo
from callsmith.engines.decoding.batch import Flag
from callsmith.engines.decoding.sequence import with_standards
from callsmith.engines.decoding.vocabulary import Logits, SafeCuts, Vocabulary
from callsmith.engines.llama.libllama import Library, LlamaBatch
from callsmith.engines.llama.picture_rows import Gaps, PictureRows, picture_batches
from callsmith.engines.llama.placement import gpus, place
from callsmith.engines.llama.threads import FreeThreads, most_threads
from callsmith.engines.llama_builds.builds import this_machine
from callsmith.engines.llama_builds.locate import unused_gpu
from callsmith.engines.lru import LRU
from callsmith.engines.port import EngineInfo
from callsmith.engines.split_gguf import split_parts

_CACHED_BYTES: Final = 1 << 20  # of text, and of its tokens
_LONGEST: Final = 4096  # bytes of a text that is cached

# vocabulary, text and its size, where the tokens go and how many fit, whether special ones are added, and whether they are read
_TOKENIZE = C.CFUNCTYPE(C.c_int32, C.c_void_p, C.c_void_p, C.c_int32, C.c_void_p, C.c_int32, C.c_bool, C.c_bool)
_UNKNOWN, _CONTROL, _USER_DEFINED, _LSTRIP = 1 << 0, 1 << 3, 1 << 4, 1 << 7
# The file types of llama.cpp, by their number in `general.file_type`.
_QUANTIZATIONS: Mapping[str, str] = {
    "0": "F32", "1": "F16", "2": "Q4_0", "3": "Q4_1", "7": "Q8_0", "8": "Q5_0", "9": "Q5_1", "10": "Q2_K", "11": "Q3_K_S",
    "12": "Q3_K_M", "13": "Q3_K_L", "14": "Q4_K_S", "15": "Q4_K_M", "16": "Q5_K_S", "17": "Q5_K_M", "18": "Q6_K",
    "19": "IQ2_XXS", "20": "IQ2_XS", "21": "Q2_K_S", "22": "IQ3_XS", "23": "IQ3_XXS", "24": "IQ1_S", "25": "IQ4_NL",
    "26": "IQ3_S", "27": "IQ3_M", "28": "IQ2_S", "29": "IQ2_M", "30": "IQ4_XS", "31": "IQ1_M", "32": "BF16", "36": "TQ1_0",
    "37": "TQ2_0", "38": "MXFP4",
}  # fmt: skip
SLICE: Final = 256  # tokens decoded at once: large enough to be fast, small enough for those who come meanwhile
MOST_SEQUENCES: Final = 64  # the most that the library supports


class CachedTokenize:
    """A C function of the same signature and meaning as `tokenize`, at `address`, that caches. It must live as long as somebody
    may call it: the grammar engine, which tokenizes what must come next. The text between two choices is the same in every
    answer, and llama.cpp takes up to 0.1 ms for a line of it.

    `apart` are texts of tokens that llama.cpp finds in every text, even where no special ones are to be read. A grammar that
    has these letters means the letters.
    """

    def __init__(self, tokenize: Any, apart: Iterable[bytes] = ()) -> None:
        self._tokenize = C.cast(tokenize, _TOKENIZE)
        edges = [rb"(?<=%b)(?=%b)" % (re.escape(text[:1]), re.escape(text[1:])) for text in apart]
        self._cuts = re.compile(b"|".join(edges)) if edges else None  # behind the first letter: no piece has all of such a text
        self._cache: LRU[bytes] = LRU(_CACHED_BYTES)
        self._callback = _TOKENIZE(self._find)
        self.address = C.cast(self._callback, C.c_void_p).value or 0

    def _find(self, vocabulary: int, text: int, size: int, tokens: int, room: int, adds: bool, reads: bool) -> int:
        content = C.string_at(text, size)
        key = vocabulary, content, adds, reads
        known = self._cache.get(key)
        if known is None:
            pieces = [content] if reads or self._cuts is None else self._cuts.split(content)
            known = b"".join(self._tokens(vocabulary, piece, adds, reads) for piece in pieces)
            if size <= _LONGEST:
                self._cache.put(key, known, size + len(known))
        count = len(known) // 4
        if count > room:
            return -count
        C.memmove(tokens, known, len(known))
        return count

    def _tokens(self, vocabulary: int, piece: bytes, adds: bool, reads: bool) -> bytes:
        room = len(piece) + 8  # no token has less than a byte, but for those that are added
        tokens = (C.c_int32 * room)()
        count = self._tokenize(vocabulary, piece, len(piece), C.addressof(tokens), room, adds, reads)
        return C.string_at(tokens, 4 * max(0, count))


class GgufVocabulary(Vocabulary):
    def __init__(self, library: Library, pointer: int) -> None:
        self._c = library.c
        self.pointer = pointer
        self.size = self._c.llama_vocab_n_tokens(pointer)
        self.bos = self._c.llama_vocab_bos(pointer)
        self.eos = self._c.llama_vocab_eos(pointer)
        self.adds_bos = self._c.llama_vocab_get_add_bos(pointer) and self.bos >= 0
        self.says = self._read_tokens()
        self._kinds: list[int] = [*self._ask_of_each_token("llama_vocab_get_attr", C.c_int)]
        self.ends = frozenset(token for token, ends in enumerate(self._ask_of_each_token("llama_vocab_is_eog", C.c_bool)) if ends)
        self.special = {
            token: token_bytes.decode("utf-8", "replace")
            for token, token_bytes in enumerate(self.says)
            if token_bytes and self._is_special(token)
        }
        self.specials = {text: token for token, text in self.special.items()}
        apart = [self.says[token] for token in self.special if self._kinds[token] & _USER_DEFINED]
        self.cached_tokenize = CachedTokenize(library.c.llama_tokenize, apart)

    def guidance_tokenizer(self, slices: list[str]) -> llguidance.LLTokenizer:
        """The same tokens for llguidance: special ones are marked by a leading byte that no text has."""
        kind: Any = llguidance.LLTokenizer  # whose type stubs leave this constructor out
        ends = sorted(self.ends & self.special.keys(), key=lambda token: (token != self.eos, token))
        return kind.from_llamacpp(
            tokens=[self.mark_special(token) for token in range(self.size)],
            vocab_ptr=self.pointer,
            tokenize_fptr=self.cached_tokenize.address,
            eos_token=ends or [self.eos],
            slices=slices,
        )

    def _tokens(self, data: bytes, *, specials: bool = True) -> "array[int]":
        room = len(data) + 8
        tokens = (C.c_int32 * room)()
        count = self._c.llama_tokenize(self.pointer, data, len(data), tokens, room, False, specials)
        if count < 0:
            raise ModelError(f"the tokenizer needs {-count} tokens for {len(data)} bytes")
        return array("i", tokens[:count])

    @cached_property
    def _safe_cuts(self) -> SafeCuts:
        sought = [token for token, kind in enumerate(self._kinds) if kind & (_CONTROL | _UNKNOWN | _USER_DEFINED)]
        # Not what they say: some tokenizers spell tokens in a way of their own, and look for that.
        texts: dict[int, bytes] = {token: self._c.llama_vocab_get_text(self.pointer, token) for token in sought}
        return SafeCuts(texts.values(), [text for token, text in texts.items() if self._kinds[token] & _LSTRIP])

    def _read_tokens(self) -> list[bytes]:
        buffer, room = C.create_string_buffer(4096), C.c_int32(4096)
        sizes = self._ask_of_each_token("llama_token_to_piece", C.c_int32, C.byref(buffer), room, C.c_int32(0), C.c_bool(True))
        return [bytes(buffer[:size]) if size > 0 else b"" for size in sizes]

    def _ask_of_each_token(self, name: str, result: Any, *rest: Any) -> Iterator[Any]:
        """What a function of the library says of each token. Its arguments are of C's types already: to convert those of some
        100,000 calls would take three times as long."""
        function: Any = self._c[name]  # not the one as an attribute, whose arguments are declared and would be converted
        function.restype = result
        vocabulary = C.c_void_p(self.pointer)
        return (function(vocabulary, token, *rest) for token in range(self.size))

    def _is_special(self, token: int) -> bool:
        """Whether the token differs from its letters. An added token that is just a word or spaces does not."""
        kind, token_bytes = self._kinds[token], self.says[token]
        return bool(kind & (_CONTROL | _UNKNOWN)) or bool(
            kind & _USER_DEFINED and token_bytes[:1] == b"<" and token_bytes[-1:] == b">"
        )


class Weights:
    """The model in the file. `gpu_layers` None: as many of its layers are on GPUs as fit with a KV cache of `context` tokens."""

    def __init__(self, library: Library, path: Path, *, gpu_layers: int | None = None, context: int = 8192) -> None:
        _check_file(path)
        self.library = library
        self._c = library.c
        self.placement = place(path, gpus(library), wanted=gpu_layers, context=context, outputs=MOST_SEQUENCES)
        params, none = self._c.llama_model_default_params(), (C.c_void_p * 1)()
        if self.placement.layers:
            params.n_gpu_layers = self.placement.parameter
        else:
            params.devices, params.n_gpu_layers = C.cast(none, C.c_void_p), 0
        library.log.clear()
        self.pointer: int | None = self._c.llama_model_load_from_file(bytes(path), params)
        if not self.pointer:
            why = library.log.reason() or "the library gives no reason"
            hint = "the file may be damaged or incomplete: fetch it again"
            fewer = "; or try fewer --gpu-layers" if self.placement.layers else ""
            raise Unavailable(f"{path} cannot be loaded: {why}", hint=hint + fewer)
        self.vocabulary = GgufVocabulary(library, self._c.llama_model_get_vocab(self.pointer))
        self.recurrent: bool = self._c.llama_model_is_recurrent(self.pointer) or self._c.llama_model_is_hybrid(self.pointer)
        self.trained_context: int = self._c.llama_model_n_ctx_train(self.pointer)
        template: bytes = self._c.llama_model_chat_template(self.pointer, None) or b""
        buffer = C.create_string_buffer(256)
        self._c.llama_model_desc(self.pointer, buffer, len(buffer))
        self.info = replace(
            describe_file(self.metadata, path, self._c.llama_model_n_params(self.pointer), template.decode("utf-8", "replace")),
            description=buffer.value.decode("utf-8", "replace"),
            placement=str(self.placement) if self.placement.devices else unused_gpu(this_machine()),
        )

    def metadata(self, key: str) -> str | None:
        buffer = C.create_string_buffer(512)
        size = self._c.llama_model_meta_val_str(self.pointer, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if size >= 0 else None

    def close(self) -> None:
        if self.pointer:
            self._c.llama_model_free(self.pointer)
            self.pointer = None


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise Unavailable(f"there is no model file at {path}", hint="give the path of a .gguf file: llama:/models/qwen.gguf")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise Unavailable(f"{path} is not a GGUF file", hint="other kinds of weights must be converted to GGUF")


def describe_file(metadata: Callable[[str], str | None], path: Path, parameters: int, template: str) -> EngineInfo:
    """What the metadata of a file say of its weights."""
    sampling = (metadata(f"general.sampling.{key}") for key in ("temp", "top_p", "top_k", "min_p"))
    return EngineInfo(
        name=metadata("general.name") or path.stem,
        template=template or None,
        weights=WeightsInfo(
            format="gguf",
            architecture=metadata("general.architecture") or "",
            parameters=parameters,
            size_label=metadata("general.size_label") or "",
            quantization=_QUANTIZATIONS.get(metadata("general.file_type") or "", ""),
            size=sum(part.stat().st_size for part in split_parts(path)),
        ),
        sampling=with_standards(*(float(text) if text else None for text in sampling)),
    )


class LlamaContext:
    """The KV memory and the working space of decoding, for several sequences that share the memory."""

    def __init__(
        self,
        weights: Weights,
        *,
        size: int,
        threads: int | None = None,
        sequences: int = 1,
        slice: int = SLICE,
        pictures: PictureRows | None = None,
    ) -> None:
        """Without `threads` there are as many as fit the machine, while it runs. `pictures` are those that may be decoded."""
        self._c = weights.library.c
        self._width = weights.vocabulary.size
        params = self._c.llama_context_default_params()
        params.n_ctx = min(size, weights.trained_context)
        params.n_batch = params.n_ubatch = max(slice, pictures.largest) if pictures else slice
        params.n_seq_max, params.kv_unified = sequences, True
        params.n_outputs_max = sequences  # room for the logits of all tokens of a slice would be most of what it takes to decode
        self._free = None if threads else FreeThreads()
        self._threads = params.n_threads = params.n_threads_batch = threads or most_threads()
        weights.library.log.clear()
        self.pointer: int | None = self._c.llama_init_from_model(weights.pointer, params)
        if not self.pointer:
            why = weights.library.log.reason() or "not enough memory?"
            hint = "try a smaller context" + (", or fewer --gpu-layers" if weights.placement.layers else "")
            raise Unavailable(f"no context of {size} tokens for {weights.info.name}: {why}", hint=hint)
        self.size: int = self._c.llama_n_ctx(self.pointer)
        self.slice = slice
        self.sequences = sequences
        self._memory: int = self._c.llama_get_memory(self.pointer)
        self._batch = self._c.llama_batch_init(slice, 0, 1)
        self._flag: Flag | None = None
        self._pictures = pictures
        self._gaps = Gaps()

    def decode(self, rows: Iterable[tuple[int, int, int, bool]], *, exact: bool = False) -> bool:
        """Decode (token, place, sequence, logits wanted) rows, at most `slice`; False when it was aborted.

        How many threads attend to a long text shows in the last bits of what comes out: an `exact` decode has all, always.
        """
        batch, count = self._batch, 0
        for token, at, sequence, wanted in rows:
            if token < 0:
                return self._decode_picture(token, at, sequence)
            batch.token[count], batch.pos[count], batch.logits[count] = token, self._gaps.position(sequence, at), wanted
            batch.n_seq_id[count], batch.seq_id[count][0] = 1, sequence
            count += 1
        batch.n_tokens = count
        if self._free and (threads := most_threads() if exact else self._free.count()) != self._threads:
            self._c.llama_set_n_threads(self.pointer, threads, threads)
            self._threads = threads
        return self._decode(batch)

    def _decode(self, batch: LlamaBatch) -> bool:
        status: int = self._c.llama_decode(self.pointer, batch)
        if status not in (0, 2):
            raise ModelError(f"llama.cpp could not decode {batch.n_tokens} tokens (status {status})", retryable=status == 1)
        return status == 0

    def _decode_picture(self, token: int, at: int, sequence: int) -> bool:
        """Decode all rows of the picture that begins with this token."""
        assert self._pictures is not None
        picture = self._pictures.of(token)
        begin = self._gaps.position(sequence, at)
        for batch in picture_batches(picture, begin, sequence, self.slice):
            if picture.is_whole:
                self._c.llama_set_causal_attn(self.pointer, False)
            try:
                if not self._decode(batch):
                    return False
            finally:
                if picture.is_whole:
                    self._c.llama_set_causal_attn(self.pointer, True)
        self._gaps.add(sequence, at + len(picture.tokens), len(picture.tokens) - picture.span)
        return True

    def logits(self, row: int) -> Logits:
        """The logits of that row of the last batch: the library's own memory, good until the next decode, and free to change."""
        return np.ctypeslib.as_array(self._c.llama_get_logits_ith(self.pointer, row), (self._width,))

    def forget(self, sequence: int, start: int) -> bool:
        """Drop a sequence from a place on. False: this kind of model cannot forget a part."""
        return self._c.llama_memory_seq_rm(self._memory, sequence, self._gaps.cut(sequence, start), -1)

    def copy(self, source: int, target: int) -> None:
        self._gaps.copy(source, target)
        self._c.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def save(self, sequence: int) -> NDArray[np.uint8]:
        state = np.empty(self._c.llama_state_seq_get_size(self.pointer, sequence), np.uint8)
        self._c.llama_state_seq_get_data(self.pointer, state.ctypes.data, state.nbytes, sequence)
        return state

    def load(self, sequence: int, saved: NDArray[np.uint8]) -> bool:
        """Fill an empty sequence with such a copy. False: there are not enough cells."""
        return self._c.llama_state_seq_set_data(self.pointer, saved.ctypes.data, saved.nbytes, sequence) > 0

    def interrupt_by(self, flag: Flag) -> None:
        if flag is self._flag:
            return
        # The library asks this between any two operations of its graph; a C function can answer without the interpreter lock.
        answer = C.cast(C.CDLL("msvcrt" if sys.platform == "win32" else None).atoi, C.c_void_p)
        self._flag = flag  # kept alive as long as the library may look at it
        self._c.llama_set_abort_callback(self.pointer, answer, C.cast(flag, C.c_void_p))

    def close(self) -> None:
        if self.pointer:
            self._c.llama_batch_free(self._batch)
            self._c.llama_free(self.pointer)
            self.pointer = None
