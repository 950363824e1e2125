"""llama.cpp's grammar sampler over a real vocabulary: whether it lets tokens through, one after another."""

import ctypes as C
from collections.abc import Sequence

from callsmith.engines.llama.gguf import GgufVocabulary
from tests.grammar.targets.llama_grammar import library


class _Token(C.Structure):
    _fields_ = (("id", C.c_int32), ("logit", C.c_float), ("p", C.c_float))


class _Tokens(C.Structure):
    _fields_ = (("data", C.POINTER(_Token)), ("size", C.c_size_t), ("selected", C.c_int64), ("sorted", C.c_bool))


class LlamaSampler:
    """A grammar in the sampler; with `triggers` it waits for one of them."""

    def __init__(self, vocabulary: GgufVocabulary, text: str, triggers: Sequence[str] = ()) -> None:
        self.vocabulary, self.text, self.triggers = vocabulary, text.encode(), [trigger.encode() for trigger in triggers]
        dll, pointer = library(), C.c_void_p
        make = C.CFUNCTYPE(pointer, pointer, C.c_char_p, C.c_char_p)
        wait = C.CFUNCTYPE(pointer, pointer, C.c_char_p, C.c_char_p, pointer, C.c_size_t, pointer, C.c_size_t)
        self._make = make(self._address(dll, "llama_sampler_init_grammar"))
        self._wait = wait(self._address(dll, "llama_sampler_init_grammar_lazy_patterns"))
        self._apply = C.CFUNCTYPE(None, pointer, C.POINTER(_Tokens))(self._address(dll, "llama_sampler_apply"))
        self._accept = C.CFUNCTYPE(None, pointer, C.c_int32)(self._address(dll, "llama_sampler_accept"))
        self._free = C.CFUNCTYPE(None, pointer)(self._address(dll, "llama_sampler_free"))

    @staticmethod
    def _address(dll: C.CDLL, name: str) -> int:
        return C.cast(getattr(dll, name), C.c_void_p).value or 0

    def goes_through(self, tokens: Sequence[int]) -> bool:
        """Whether each token is allowed where it stands."""
        if self.triggers:
            listed = (C.c_char_p * len(self.triggers))(*self.triggers)
            sampler = self._wait(self.vocabulary.pointer, self.text, b"root", listed, len(self.triggers), None, 0)
        else:
            sampler = self._make(self.vocabulary.pointer, self.text, b"root")
        assert sampler
        try:
            for token in tokens:
                candidates = (_Token * 1)(_Token(token, 1.0, 0.0))
                self._apply(sampler, C.byref(_Tokens(candidates, 1, -1, False)))
                if candidates[0].logit < 0:
                    return False
                self._accept(sampler, token)
            return True
        finally:
            self._free(sampler)
