"""Random answers out of a grammar, token by token through a real tokenizer, steered so that they end.

Where the grammar leaves much room the sampler is led into temptation: it writes markers of the format, halves of them, quotes and
brackets. When an answer has become long it hurries to close whatever is open.
"""

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import llguidance
import numpy as np

from callsmith.engines.decoding.compiler import ActiveConstraint, Compiler
from callsmith.engines.decoding.relay import RelayConstraint
from callsmith.engines.llama.gguf import GgufVocabulary
from callsmith.engines.llama.libllama import load
from callsmith.engines.port import Piece
from callsmith.engines.text import Writer
from callsmith.formats import format_named
from callsmith.formats.algebra import Calls, Each, Format, Ident, Nested, Node, Notation, Opt, literals_of, nodes_of
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay
from callsmith.models.weights.fetch import fetch

LONG = 60  # tokens after which an answer hurries
LONGEST = 700
ROOM = 200  # more tokens than this allowed: any text may stand here
CLOSERS = ('"', "}", "]", ")", "'", ",", ">", "<", "/", "\n")
TOKEN_LIKE = re.compile(r"<\|?[^<>\s\"=]+\|?>|<\|\"\|>|\[/?[A-Z_]{3,}\]|\]<\]\w+\[>\[|｜\w+｜")


@cache
def vocabulary(name: str = "smollm2-135m") -> GgufVocabulary:
    """The vocabulary of a model's file, without its weights."""
    c = load().c
    params = c.llama_model_default_params()
    params.vocab_only = True
    model = c.llama_model_load_from_file(str(fetch(name)).encode(), params)
    return GgufVocabulary(load(), c.llama_model_get_vocab(model))


@cache
def _plain() -> tuple["Dressed", Compiler]:
    tokens = Dressed(vocabulary(), ())
    return tokens, Compiler(tokens)


@lru_cache(maxsize=2)  # each takes 20 MB: tests run format by format, so that two are enough
def _dressed(format: str) -> tuple["Dressed", Compiler]:
    tokens = Dressed(vocabulary(), special_words(format_named(format)))
    return tokens, Compiler(tokens)


def compiler(dressed_for: str = "") -> tuple["Dressed", Compiler]:
    """A tokenizer, by itself or with the special tokens of a format; and its compiler."""
    return _dressed(dressed_for) if dressed_for else _plain()


def any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Finds these texts, longer ones first."""
    return re.compile(f"({'|'.join(re.escape(text) for text in sorted(texts, key=len, reverse=True))})")


def letters(vocabulary: GgufVocabulary, text: str) -> list[int]:
    """The tokens of the text, none of them special: where it holds the text of a special token, that is taken apart."""
    return [*_letters(vocabulary, text)]


@lru_cache(maxsize=4096)
def _letters(vocabulary: GgufVocabulary, text: str) -> tuple[int, ...]:
    parts = (
        half
        for part in _specials_of(vocabulary).split(text)
        for half in ((part[:1], part[1:]) if part in vocabulary.specials else (part,))
    )
    return tuple(token for part in parts for token in vocabulary.tokenize(part))


@cache
def _specials_of(vocabulary: GgufVocabulary) -> re.Pattern[str]:
    return any_of(vocabulary.specials)


@cache
def _spaces_of(vocabulary: GgufVocabulary) -> frozenset[int]:
    return frozenset(token for token, text in enumerate(vocabulary.says) if text.isspace())


def matcher(constraint: ActiveConstraint) -> llguidance.LLMatcher:
    """The matcher at work, of the present stretch if it is a relay."""
    return (constraint._stage if isinstance(constraint, RelayConstraint) else constraint).matcher


class Dressed(GgufVocabulary):
    """A vocabulary whose special tokens say something else: as if the tokenizer had been made for a certain format."""

    def __init__(self, base: GgufVocabulary, specials: Iterable[str]) -> None:
        spare = [token for token in sorted(base.special) if token not in base.ends]
        self.special: Mapping[int, str] = {
            **{token: base.special[token] for token in base.ends & base.special.keys()},
            **dict(zip(spare, dict.fromkeys(specials), strict=False)),
        }
        self.specials: Mapping[str, int] = {text: token for token, text in self.special.items()}
        unused = set(spare) - self.special.keys()
        self.says = [
            self.special[token].encode() if token in self.special else b"" if token in unused else token_bytes
            for token, token_bytes in enumerate(base.says)
        ]
        self.base, self.size, self.eos, self.ends = base, base.size, base.eos, base.ends
        self.pointer, self.cached_tokenize = base.pointer, base.cached_tokenize
        self._markers = any_of(self.specials)

    def tokenize(self, text: str) -> list[int]:
        """The tokens of the text. Only what this vocabulary calls special is."""
        return [
            token
            for part in self._markers.split(text)
            for token in ([self.specials[part]] if part in self.specials else letters(self.base, part))
        ]


def literals(format: Format) -> list[str]:
    """Every literal of a format."""
    collected: set[str] = set()

    def walk(nodes: Iterable[Node]) -> None:
        for node in nodes:
            collected.update(literals_of(node))
            if isinstance(node, Opt | Each | Ident):
                walk(node.nodes)

    for part in format.parts:
        walk((*nodes_of(part.open), *nodes_of(part.close)))
        if isinstance(part, Calls):
            walk(part.item)
            collected.add(part.between)
            match part.values:
                case Notation():
                    collected.update(part.values.quotes)
                case Nested():
                    collected.update((f"{part.values.prefix}<", f"{part.values.prefix}</"))
                case _:
                    pass
    return sorted(text for text in collected if text.strip())


def special_words(format: Format) -> list[str]:
    """What the family's own tokenizer is likely to hold as special tokens."""
    return sorted({word for text in literals(format) for word in TOKEN_LIKE.findall(text)})


@dataclass(frozen=True, slots=True)
class Sample:
    """An answer. `whole`: the grammar was satisfied before the answer grew too long."""

    pieces: tuple[Piece, ...]
    whole: bool

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class Sampler:
    """Draws answers; the same seed draws the same ones."""

    def __init__(self, vocabulary: GgufVocabulary | Dressed, compiler: Compiler, format: Format, seed: int | str) -> None:
        self.vocabulary = vocabulary
        self.compiler = compiler
        self.chance = random.Random(seed)
        self.noise = np.random.default_rng(self.chance.getrandbits(32)).random(vocabulary.size, np.float32)
        self.closing = np.zeros(vocabulary.size, np.float32)
        for text in CLOSERS:
            tokens = vocabulary.tokenize(text)
            self.closing[tokens[-1]] = 2.0
        self.spaces = _spaces_of(vocabulary.base if isinstance(vocabulary, Dressed) else vocabulary)
        self.goes_on = False  # where it might have ended, it has chosen not to, and has written only white space since
        words = literals(format)
        closers = [*words, *(text.strip() for text in words), *CLOSERS[:5]]
        tempting = [*(text[: len(text) // 2 + 1] for text in words), *"\"\\'{}[]<>&\n\t", "null", "5", "é", "🐈"]
        self.closers = [vocabulary.tokenize(text) for text in closers]
        self.tempting = [*self.closers, *(vocabulary.tokenize(text) for text in tempting)]

    def draw(self, grammar: Grammar | Relay) -> Sample:
        """One answer, without what the prompt has written of it."""
        constraint = self.compiler.begin(grammar)
        self.goes_on = False
        tokens: list[int] = []
        while len(tokens) < LONGEST and not constraint.ended:
            step = constraint.find_forced() or self._tempted(constraint, len(tokens)) or [self._chosen(constraint, len(tokens))]
            if step[0] in self.vocabulary.ends and step[0] in self.vocabulary.special:
                return self._said(tokens, whole=True)
            for token in step:
                if not constraint.ended:
                    constraint.consume(token)
                    tokens.append(token)
        return self._said(tokens, whole=constraint.ended)

    def _chosen(self, constraint: ActiveConstraint, length: int) -> int:
        logits = np.roll(self.noise, self.chance.randrange(len(self.noise)))
        if length > LONG:
            logits += self.closing
        constraint.restrict(logits)
        if constraint.may_end and not self.goes_on:
            if self.chance.random() < (0.8 if length > LONG else 0.4):
                return self.vocabulary.eos
            self.goes_on = True
        if self.goes_on:
            logits[[*self.vocabulary.ends]] -= 10
        best = int(logits.argmax())
        self.goes_on = self.goes_on and best in self.spaces
        return best

    def _tempted(self, constraint: ActiveConstraint, length: int) -> list[int]:
        """A marker, or as much of it as may stand here; nothing where there is little room anyway."""
        if self.chance.random() > (0.95 if length > LONG else 0.4):
            return []
        tokens = self.chance.choice(self.closers if length > LONG else self.tempting)
        return tokens[: matcher(constraint).validate_tokens(tokens)]

    def _said(self, tokens: list[int], *, whole: bool) -> Sample:
        writer, pieces = Writer(), list[Piece]()
        for token in tokens:
            special = self.vocabulary.special.get(token)
            text = writer.write(self.vocabulary.says[token]) if special is None else writer.write_special(special)
            pieces += text
        return Sample((*pieces, *writer.close()), whole)
