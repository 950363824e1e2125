"""Other grammar engines on the same tools and the same vocabulary: xgrammar, and llama.cpp's own. Each where it can be had.

`make rivals` puts xgrammar and what it needs into a folder of its own, which comes last: what is pinned stays so.
"""

import ctypes as C
import os
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from callsmith.core.values import Choice, Tool
from callsmith.engines.llama.gguf import GgufVocabulary
from callsmith.formats import format_named
from callsmith.grammar.calls import grammar_for


class Rival(Protocol):
    """An engine to compare with. `most` is how many tools it can be asked for without losing an afternoon."""

    name: str
    most: int

    def compile(self, tools: Sequence[Tool]) -> Any:
        """From the tools to where a mask can be asked for."""
        ...

    def costs(self, grammar: Any, tokens: Sequence[int]) -> Iterator[tuple[float, float, float]]:
        """For each token of a call, µs of this thread to find what is allowed, to rule out the rest, and to take it."""
        ...


def xgrammar() -> Any:
    """The module; an ImportError where it is not installed."""
    sys.path.append(str(Path(__file__).parents[1] / ".venv-rivals"))
    os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")  # it would be compiled first, and is not needed here
    return import_module("xgrammar")


class XGrammar:
    """`{"name": …, "arguments": …}` as one JSON schema, spaced as the model spaces it, without a cache."""

    name, most = "xgrammar", 500

    def __init__(self, vocabulary: GgufVocabulary) -> None:
        self._module = xgrammar()
        self._torch: Any = import_module("torch")
        kinds, self._size = self._module.VocabType, vocabulary.size
        self._info = self._module.TokenizerInfo(vocabulary.says, kinds.RAW, stop_token_ids=[vocabulary.eos])
        self._compiler = self._module.GrammarCompiler(self._info, cache_enabled=False)

    def compile(self, tools: Sequence[Tool]) -> Any:
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": dict(tool.parameters)},
                "required": ["name", "arguments"],
            }
            for tool in tools
        ]
        grammar = self._compiler.compile_json_schema({"anyOf": calls}, any_whitespace=False, separators=(", ", ": "))
        self._module.GrammarMatcher(grammar)
        return grammar

    def costs(self, grammar: Any, tokens: Sequence[int]) -> Iterator[tuple[float, float, float]]:
        matcher = self._module.GrammarMatcher(grammar)
        mask = self._module.allocate_token_bitmask(1, self._size)
        logits = self._torch.zeros(1, self._size)
        for token in tokens:
            began = time.thread_time()
            matcher.fill_next_token_bitmask(mask)
            masked = time.thread_time()
            self._module.apply_token_bitmask_inplace(logits, mask)
            ruled = time.thread_time()
            logits.zero_()
            taking = time.thread_time()
            is_taken = matcher.accept_token(token)
            yield (masked - began) * 1e6, (ruled - masked) * 1e6, (time.thread_time() - taking) * 1e6
            if not is_taken:
                return


class _Candidate(C.Structure):
    _fields_ = (("id", C.c_int32), ("logit", C.c_float), ("p", C.c_float))


class _Candidates(C.Structure):
    _fields_ = (("data", C.POINTER(_Candidate)), ("size", C.c_size_t), ("selected", C.c_int64), ("sorted", C.c_bool))


class LlamaCpp:
    """Our GBNF in llama.cpp's grammar sampler, which finds and rules out in one go."""

    name, most = "llama.cpp", 100

    def __init__(self, vocabulary: GgufVocabulary) -> None:
        gbnf: Any = import_module("callsmith.grammar.targets.gbnf")
        library: Any = import_module("tests.grammar.targets.llama_grammar").library()
        self._emit, self._vocabulary, self._c = gbnf.to_gbnf, vocabulary, library
        for name, result, *argument_types in (
            ("init_grammar", C.c_void_p, C.c_void_p, C.c_char_p, C.c_char_p),
            ("apply", None, C.c_void_p, C.POINTER(_Candidates)),
            ("accept", None, C.c_void_p, C.c_int32),
        ):
            function = getattr(library, f"llama_sampler_{name}")
            function.restype, function.argtypes = result, argument_types
        self._array = (_Candidate * vocabulary.size)()
        self._fields = np.ctypeslib.as_array(self._array)
        self._fields["id"] = np.arange(vocabulary.size)

    def compile(self, tools: Sequence[Tool]) -> Any:
        text = self._emit(grammar_for(format_named("json"), tools, Choice("required"), parallel=False)).text
        sampler = self._c.llama_sampler_init_grammar(self._vocabulary.pointer, text.encode(), b"root")
        if not sampler:
            raise ValueError("llama.cpp does not take the grammar")
        return sampler

    def costs(self, grammar: Any, tokens: Sequence[int]) -> Iterator[tuple[float, float, float]]:
        for token in tokens:
            self._fields["logit"] = 0
            candidates = _Candidates(self._array, self._vocabulary.size, -1, False)
            began = time.thread_time()
            self._c.llama_sampler_apply(grammar, C.byref(candidates))
            masked = time.thread_time()
            is_allowed = not np.isneginf(self._fields["logit"][token])
            if is_allowed:
                self._c.llama_sampler_accept(grammar, token)
            yield (masked - began) * 1e6, 0.0, (time.thread_time() - masked) * 1e6
            if not is_allowed:
                return


def rivals(vocabulary: GgufVocabulary) -> Iterator[Rival]:
    """Those that are installed; what is missing is said."""
    for kind in (XGrammar, LlamaCpp):
        try:
            yield kind(vocabulary)
        except (ImportError, AttributeError) as missing:
            print(f"\n{kind.name}: not installed ({missing})")
