"""Grammars at work: which tokens may come next, by llguidance."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

import llguidance
import numpy as np

from callsmith.core.errors import ModelError, UnsupportedSchema, UsageError
from callsmith.engines.gguf import Logits, Vocabulary
from callsmith.grammar.lark import to_lark
from callsmith.grammar.nodes import Grammar

_KEPT: Final = 64  # compiled grammars, 30 to 300 KB each

# A mask that runs out of fuel is not an error to llguidance: it allows the end of the answer and nothing else. So: plenty of it.
_LIMITS: Final = llguidance.LLParserLimits(step_lexer_fuel=2_000_000, step_max_items=500_000, verbose_errors=False)

_SCHEMA_FAULT: Final = re.compile(r"failed to compile JSON schema: (.*?)(?:\n +\d+ \||\Z)", re.DOTALL)
# How llguidance speaks of the keyword at fault. Words that are also English ("not", "items") count only where they are quoted.
_KEYWORDS: Final = (
    (re.compile(r'Unimplemented keys: \["([^"]+)"'), None),
    (re.compile(r"regex parse error"), "pattern"),
    (re.compile(r"Invalid type"), "type"),
    (re.compile(r"Unknown format"), "format"),
    (re.compile(r"Pointer|\$?\bref\b"), "$ref"),
    (re.compile(r"\b((?:one|any|all)Of|(?:min|max)[A-Z]\w+|exclusiveM\w+|multipleOf|(?:prefix|unevaluated)[A-Z]\w+)\b"), None),
    (re.compile(r"\b(additionalProperties|patternProperties|propertyNames|uniqueItems|dependent\w+)\b"), None),
)


class Constraint:
    """One answer's place in its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher, width: int) -> None:
        self._matcher = matcher
        self._width = width
        self._mask = np.zeros(-(-width // 32), np.uint32)

    @property
    def holds(self) -> bool:
        """Whether the answer is held to the grammar here: always."""
        return True

    @property
    def ended(self) -> bool:
        """The grammar is complete: nothing can follow."""
        return self._matcher.is_stopped()

    @property
    def may_end(self) -> bool:
        """What has been said is a whole answer, though more may follow."""
        return self._matcher.is_accepting()

    def restrict(self, logits: Logits) -> None:
        """Rule out, in place, every token the grammar does not allow here."""
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._check()
        forbidden = np.unpackbits(np.invert(self._mask).view(np.uint8), count=self._width, bitorder="little")
        np.copyto(logits, np.float32(-np.inf), where=forbidden.view(np.bool_))

    def admits(self, token: int) -> bool:
        """Take in a token that nobody has masked, if the grammar has it here."""
        return self._matcher.try_consume_tokens([token]) == 1

    def consume(self, token: int) -> None:
        """The answer goes on with this token."""
        self._matcher.consume_token(token)
        self._check()

    def forced(self) -> list[int]:
        """The tokens that must come next, as far as there is no choice. They are not consumed yet."""
        tokens = self._matcher.compute_ff_tokens()
        self._check()
        return tokens

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ModelError(f"the grammar engine gave up: {self._matcher.get_error()}", hint="simplify the tools' schemas")


class Watch:
    """A constraint that begins where the answer writes a trigger of its grammar. Until then nothing is ruled out, or costs."""

    def __init__(self, begin: Callable[[], Constraint], triggers: Iterable[bytes], vocabulary: Vocabulary) -> None:
        self._begin = begin
        self._triggers = tuple(triggers)
        self._longest = max(len(trigger) for trigger in self._triggers)
        self._vocabulary = vocabulary
        self._tokens: list[int] = []
        self._tail = b""
        self._ready: Constraint | None = None  # begun, once a trigger has been written
        self._taken = False  # it has taken in the token that is still to be consumed
        self._lost = False  # what was written before the trigger is not of the grammar: it can hold nothing to it

    @property
    def holds(self) -> bool:
        """Whether the answer is held to the grammar already."""
        return self._ready is not None

    @property
    def ended(self) -> bool:
        """The grammar is complete: nothing can follow."""
        return self._ready is not None and self._ready.ended

    @property
    def may_end(self) -> bool:
        """What has been said is a whole answer."""
        return self._ready is None or self._ready.may_end

    def admits(self, token: int) -> bool:
        """Whether the answer may go on with this token, which may be the one that writes a trigger and then too much."""
        if self._ready or self._lost or not self._triggered(token):
            return True
        constraint = self._begin()
        if not all(constraint.admits(before) for before in self._tokens):
            self._lost = True
            return True
        if not constraint.admits(token):
            return False
        self._ready, self._taken = constraint, True
        return True

    def restrict(self, logits: Logits) -> None:
        """Rule out what the grammar does not allow here, if it holds already."""
        if self._ready:
            self._ready.restrict(logits)

    def consume(self, token: int) -> None:
        """The answer goes on with this token, which was admitted."""
        if self._ready is None:
            self._tokens.append(token)
            self._tail = (self._tail + self._vocabulary.marked(token))[-self._longest :]
        elif self._taken:
            self._taken = False
        else:
            self._ready.consume(token)

    def forced(self) -> list[int]:
        """The tokens that must come next."""
        return self._ready.forced() if self._ready else []

    def _triggered(self, token: int) -> bool:
        tail = self._tail + self._vocabulary.marked(token)
        return any(trigger in tail for trigger in self._triggers)


class Compiler:
    """Compiles grammars for one vocabulary, and keeps the latest ones."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokenizer: llguidance.LLTokenizer | None = None
        self._compiled: OrderedDict[str, llguidance.LLMatcher] = OrderedDict()

    def start(self, grammar: Grammar) -> Constraint | Watch:
        """A constraint for this grammar, or where it has triggers a watch for them."""
        begun = self.begin(grammar)  # also where it is only watched for: what is wrong with a grammar is told before the answer
        if not grammar.triggers:
            return begun
        triggers = (self._vocabulary.marked_text(trigger) for trigger in grammar.triggers)
        return Watch(lambda: self.begin(grammar), triggers, self._vocabulary)

    def begin(self, grammar: Grammar) -> Constraint:
        """A constraint at the beginning of the grammar, or after its prefix where the prompt has written one already."""
        matcher = self.compile(to_lark(grammar, self._vocabulary.specials)).deep_copy()
        if grammar.prefix and not matcher.consume_tokens(self._vocabulary.tokenize(grammar.prefix)):
            raise UsageError(f"the grammar does not begin with {grammar.prefix!r}: {matcher.get_error()}")
        return Constraint(matcher, self._vocabulary.size)

    def compile(self, lark: str) -> llguidance.LLMatcher:
        """The matcher for this text, to be copied and never used itself."""
        if lark in self._compiled:
            self._compiled.move_to_end(lark)
            return self._compiled[lark]
        self._tokenizer = self._tokenizer or _tokenizer(self._vocabulary)
        grammar = llguidance.LLMatcher.grammar_from_lark(lark)
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, limits=_LIMITS, log_level=0)
        if matcher.is_error():
            raise _refusal(matcher.get_error())
        self._compiled[lark] = matcher
        if len(self._compiled) > _KEPT:
            self._compiled.popitem(last=False)
        return matcher


def _tokenizer(vocabulary: Vocabulary) -> llguidance.LLTokenizer:
    """The vocabulary as llguidance wants it: a special token begins with a byte no text has."""
    kind: Any = llguidance.LLTokenizer  # whose type stubs leave this constructor out
    ends = sorted(vocabulary.ends & vocabulary.special.keys(), key=lambda token: (token != vocabulary.eos, token))
    return kind.from_llamacpp(
        tokens=[vocabulary.marked(token) for token in range(vocabulary.size)],
        vocab_ptr=vocabulary.pointer,
        tokenize_fptr=vocabulary.tokenize_address,
        eos_token=ends or [vocabulary.eos],
    )


def _refusal(message: str) -> UsageError:
    """llguidance's complaint as ours: about the schema if it is one."""
    fault = _SCHEMA_FAULT.search(message)
    if fault is None:
        return UsageError(f"the grammar does not compile: {message.strip()}")
    why = fault[1].strip()
    for pattern, keyword in _KEYWORDS:
        if found := pattern.search(why):
            return UnsupportedSchema("#", keyword or found[1], why)
    return UsageError(f"the schema does not compile: {why}")
