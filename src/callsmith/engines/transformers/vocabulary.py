"""The tokens of a Hugging Face tokenizer."""

import json
from array import array
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import llguidance

from callsmith.core.errors import Unavailable
from callsmith.engines.decoding.token_cache import SafeCuts
from callsmith.engines.decoding.vocabulary import Vocabulary
from callsmith.engines.transformers.libraries import tokenizers


class TokenizerVocabulary(Vocabulary):
    """The tokens of a fast tokenizer. `size` is how many the model has logits for, `ends` those that its configuration names."""

    def __init__(self, tokenizer: Any, size: int, ends: Iterable[int]) -> None:
        self._backend: Any = tokenizer.backend_tokenizer
        self._backend.no_padding()
        self._backend.no_truncation()
        self._json: dict[str, Any] = json.loads(self._backend.to_str())
        self.size = size
        added: list[dict[str, Any]] = [one for one in self._json["added_tokens"] if one["id"] < size and one["content"]]
        self._added: Mapping[int, dict[str, Any]] = {one["id"]: one for one in added}
        self.special = {token: one["content"] for token, one in self._added.items() if _is_special(one)}
        self.specials = {text: token for token, text in self.special.items()}
        self.bos = _number(tokenizer.bos_token_id)
        self.ends = frozenset(token for token in (*ends, _number(tokenizer.eos_token_id)) if 0 <= token < size)
        if not self.ends:
            raise Unavailable("neither the tokenizer nor the configuration names a token that ends an answer")
        self.eos = min(self.ends) if tokenizer.eos_token_id not in self.ends else tokenizer.eos_token_id
        self.adds_bos = self.bos >= 0 and self._backend.encode("a").ids[:1] == [self.bos]
        self._guidance = self._make_guidance()
        self.says = [self._guidance.decode_bytes([token]) for token in range(size)]

    def guidance_tokenizer(self, slices: list[str]) -> llguidance.LLTokenizer:
        """The same tokens for llguidance, which tokenizes by itself."""
        return self._guidance.with_slices(slices)

    def _make_guidance(self) -> llguidance.LLTokenizer:
        """To llguidance exactly those tokens are special that are so to us."""
        marked = [one | {"special": one["id"] in self.special} for one in self._json["added_tokens"]]
        ends = sorted(self.ends & self.special.keys() or self.ends, key=lambda token: (token != self.eos, token))
        text = json.dumps(self._json | {"added_tokens": marked})
        try:
            return llguidance.LLTokenizer(text, n_vocab=self.size, eos_token=ends, slices=[])
        except ValueError as error:
            raise Unavailable(f"the tokenizer is of a kind that cannot be used with grammars: {error}") from error

    def _tokens(self, data: bytes, *, specials: bool = True) -> "array[int]":
        tokenizer = self._backend if specials else self._letters
        return array("i", tokenizer.encode(data.decode(), add_special_tokens=False).ids)

    @cached_property
    def _letters(self) -> Any:
        """The tokenizer without special tokens: their text is made of ordinary ones."""
        ordinary = [one for one in self._json["added_tokens"] if one["id"] not in self.special]
        return tokenizers.Tokenizer.from_str(json.dumps(self._json | {"added_tokens": ordinary}))

    def _find_safe_cuts(self) -> SafeCuts:
        # A normalizer may change the text before these are looked for.
        eaters = [one for one in self._added.values() if one["lstrip"] or one["single_word"] or one["normalized"]]
        return SafeCuts((one["content"].encode() for one in self._added.values()), [one["content"].encode() for one in eaters])


def _is_special(added: Mapping[str, Any]) -> bool:
    """Whether the token stands apart from its letters. An added token that is just a word or spaces does not."""
    text: str = added["content"]
    return bool(added["special"]) or (text[:1] == "<" and text[-1:] == ">")


def _number(token: int | None) -> int:
    return -1 if token is None else token
