"""Compiles grammars for one vocabulary, by llguidance, and starts constraints from them."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeAlias

import llguidance

from callsmith.core.errors import UnsupportedSchema, UsageError
from callsmith.engines.decoding.matcher import Constraint, MatcherCopies
from callsmith.engines.decoding.relay import RelayConstraint, RelayPlan, naming, plan_relay
from callsmith.engines.decoding.trials import Cancellation, Trials
from callsmith.engines.decoding.vocabulary import Logits, Vocabulary
from callsmith.engines.lru import LRU, IdentityLRU
from callsmith.grammar.limits import MAX_LARK, is_simple, refusing_depth
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay
from callsmith.grammar.targets.lark import to_lark

_CACHED: Final = 64  # compiled grammars, 30 to 300 KB each

_LIMITS: Final[Mapping[str, Any]] = {
    "step_lexer_fuel": 2_000_000,
    "step_max_items": 100_000,
    "max_items_in_row": 10_000,
}  # ten times, twice and five times what llguidance has
_SLOW: Final = 0.25  # seconds for one tool: it is not compiled in the middle of an answer
_MAX_AHEAD: Final = 32  # tools of a set whose calls are compiled before one is chosen; more would push others out of the cache

# Tokens that are all allowed inside a string are not tested one by one. These are the kinds llguidance has for JSON,
# and within them nearly all tokens that also fit between single quotes and between tags. Kinds that overlap would cost more.
_TEXT: Final = r'[^"\\\x00-\x1F\x7F]'
_PLAIN: Final = _TEXT.replace('"', "\"'<>")


def _slices(*lengths: int) -> list[str]:
    plain = (f"{_PLAIN}{{1,{length}}}" for length in lengths)
    return [r"[\x20\x0A\x0D\x09]+", *plain, f"{_TEXT}{{1,30}}", f"{_TEXT}+"]


_SLICES: Final = _slices(10, 30)
# They take longer to prepare, and a third off the longest masks: those of strings whose length is limited.
_FINER_SLICES: Final = _slices(2, 4, 6, 8, 10, 16, 30)

_TOKEN: Final = re.compile(r"<\[(\d+)[^\]]*\]>")
_STAND_INS: Final = range(256, 261)  # the special tokens of the vocabulary of bytes in which grammars are tried

_SCHEMA_FAULT: Final = re.compile(r"failed to compile JSON schema: (.*?)(?:\n +\d+ \||\Z)", re.DOTALL)
# How llguidance names the keyword at fault. Words that are also English ("not", "items") count only where they are quoted.
_KEYWORDS: Final = (
    (re.compile(r'Unimplemented keys: \["([^"]+)"'), None),
    (re.compile(r"regex parse error|if regex is empty"), "pattern"),
    (re.compile(r"Invalid type"), "type"),
    (re.compile(r"Unknown format"), "format"),
    (re.compile(r"Pointer|\$?\bref\b"), "$ref"),
    (re.compile(r"\b((?:one|any|all)Of|(?:min|max)[A-Z]\w+|exclusiveM\w+|multipleOf|(?:prefix|unevaluated)[A-Z]\w+)\b"), None),
    (re.compile(r"\b(additionalProperties|patternProperties|propertyNames|uniqueItems|dependent\w+)\b"), None),
)


ActiveConstraint: TypeAlias = Constraint | RelayConstraint


class TriggeredConstraint:
    """A `Constraint` that starts where the answer writes a trigger of its grammar. Until then it masks nothing."""

    def __init__(self, begin: Callable[[], ActiveConstraint], triggers: Iterable[bytes], vocabulary: Vocabulary) -> None:
        self._begin = begin
        self._triggers = tuple(triggers)
        self._longest = max(len(trigger) for trigger in self._triggers)
        self._vocabulary = vocabulary
        self._tokens: list[int] = []
        self._tail = b""
        self._ready: ActiveConstraint | None = None  # set once a trigger has been written
        self._taken = False  # it has already consumed the token that `consume` will be called with
        self._lost = False  # the text before the trigger does not fit the grammar: nothing can be constrained

    @property
    def ended(self) -> bool:
        return self._ready is not None and self._ready.ended

    @property
    def may_end(self) -> bool:
        return self._ready is None or self._ready.may_end

    def admits(self, token: int) -> bool:
        """Whether the answer may continue with this token, which may complete a trigger and write too much."""
        if self._ready or self._lost or not self._completes_trigger(token):
            return True
        constraint = self._begin()
        if not all(constraint.admits(before) for before in self._tokens):
            self._lost = True
            return True
        if not constraint.admits(token):
            return False
        self._ready, self._taken = constraint, True
        return True

    @property
    def active(self) -> ActiveConstraint | None:
        return self._ready

    def restrict(self, logits: Logits) -> None:
        if self._ready:
            self._ready.restrict(logits)

    def consume(self, token: int) -> None:
        if self._ready is None:
            self._tokens.append(token)
            self._tail = (self._tail + self._vocabulary.mark_special(token))[-self._longest :]
        elif self._taken:
            self._taken = False
        else:
            self._ready.consume(token)

    def find_forced(self) -> list[int]:
        return self._ready.find_forced() if self._ready else []

    def _completes_trigger(self, token: int) -> bool:
        tail = self._tail + self._vocabulary.mark_special(token)
        return any(trigger in tail for trigger in self._triggers)


@dataclass(slots=True)
class _PreparedRelay:
    """What is known of a relay. `plan` is set once `is_ready`; `checked` are the tools whose calls compile.

    `costly` are those that may take long to compile, once that was looked at; `is_slow`: one of them does.
    """

    plan: RelayPlan | None = None
    is_ready: bool = False
    checked: set[str] = field(default_factory=set[str])
    costly: list[str] | None = None
    is_slow: bool = False


class Compiler:
    """Compiles grammars for one vocabulary and caches the latest ones. Safe for threads.

    What is not certainly cheap is tried in a worker process first (`trials`): nothing in a grammar ends this one.
    `lexers` is how many answers of one grammar can have their masks found at the same time.
    """

    def __init__(self, vocabulary: Vocabulary, lexers: int = 1) -> None:
        self._vocabulary = vocabulary
        self._lexers = lexers
        self._tokenizer: llguidance.LLTokenizer | None = None
        self._lock = Lock()  # a matcher is not thread-safe, not even for copying
        self._compiled: LRU[llguidance.LLMatcher] = LRU(_CACHED)  # by text: tools that several sets share are compiled once
        self._prepared: IdentityLRU[MatcherCopies] = IdentityLRU(_CACHED)  # by grammar: the text is not written again
        self._relays: IdentityLRU[_PreparedRelay] = IdentityLRU(_CACHED)
        self._trials = Trials(_LIMITS, _SLICES)

    @refusing_depth
    def start(self, grammar: Grammar | Relay, cancellation: Cancellation | None = None) -> ActiveConstraint | TriggeredConstraint:
        """A constraint for this grammar; where it has triggers, one that waits for them."""
        cancellation = cancellation or Cancellation()
        cancellation.check()
        if isinstance(grammar, Relay):  # what may be costly is tried before the answer begins, and the rest while it does
            for name in self._costly(grammar):
                self.check(grammar, name, cancellation)
        begun = self.begin(grammar, cancellation)  # also where it waits for a trigger: errors are raised before the answer begins
        if not grammar.triggers:
            return begun
        triggers = (self._vocabulary.marked_text(trigger) for trigger in grammar.triggers)
        ready = [begun]
        return TriggeredConstraint(lambda: ready.pop() if ready else self.begin(grammar), triggers, self._vocabulary)

    @refusing_depth
    def begin(self, grammar: Grammar | Relay, cancellation: Cancellation | None = None) -> ActiveConstraint:
        """A constraint at the start of the grammar, or behind the prefix that the prompt has already written."""
        cancellation = cancellation or Cancellation()
        if isinstance(grammar, Grammar):
            return self._at(grammar, cancellation)
        if (plan := self._plan(grammar)) is None:
            return self._at(grammar.whole(), cancellation)
        return RelayConstraint(plan, self._at, self._vocabulary)

    def close(self) -> None:
        self._trials.close()

    @refusing_depth
    def _at(self, grammar: Grammar, cancellation: Cancellation | None = None) -> Constraint:
        """A constraint for one grammar. A stage of a relay comes without a `cancellation`: its tools have all been checked or are
        simple, so it is compiled without being tried."""
        return self._prepared.get_or_make((grammar,), lambda: self._prepare(grammar, cancellation)).new_constraint()

    def _relay(self, relay: Relay) -> _PreparedRelay:
        return self._relays.get_or_make((relay,), _PreparedRelay)

    def _plan(self, relay: Relay) -> RelayPlan | None:
        """The plan of the relay; None if one grammar of all its tools is used instead."""
        prepared = self._relay(relay)
        if not prepared.is_ready:
            prepared.plan, prepared.is_ready = plan_relay(relay, self._vocabulary), True
        return None if prepared.is_slow else prepared.plan

    def _costly(self, relay: Relay) -> list[str]:
        prepared = self._relay(relay)
        prepared.costly = relay.costly() if prepared.costly is None else prepared.costly
        return prepared.costly

    def _prepare(self, grammar: Grammar, cancellation: Cancellation | None) -> MatcherCopies:
        lark = to_lark(grammar, self._vocabulary.specials)
        first = self._behind_prefix(grammar, self.compile(lark, cancellation))
        return MatcherCopies(
            first,
            lambda: self._behind_prefix(grammar, self._compile(lark)),
            most=self._lexers,
            width=self._vocabulary.size,
            lock=self._lock,
        )

    def _behind_prefix(self, grammar: Grammar, matcher: llguidance.LLMatcher) -> llguidance.LLMatcher:
        if not grammar.prefix:
            return matcher
        with self._lock:
            matcher = matcher.deep_copy()
        if not matcher.consume_tokens(self._vocabulary.tokenize(grammar.prefix)):
            raise UsageError(f"the grammar does not begin with {grammar.prefix!r}: {matcher.get_error()}")
        return matcher

    def compile(self, lark: str, cancellation: Cancellation | None = None) -> llguidance.LLMatcher:
        """The matcher for this Lark text; copy it, never use it itself. With a `cancellation`, it is tried first if need be."""
        if known := self._compiled.get(lark):
            return known
        if cancellation is None or is_simple(lark):
            return self._compiled.put(lark, self._compile(lark))
        self._try(lark, cancellation)
        matcher = self._compile(lark)
        with self._lock:
            first = matcher.deep_copy()
        first.compute_bitmask()  # what the first tokens need is known then, and a grammar in which that takes too much is refused
        if first.is_error():
            raise _too_ambiguous(first.get_error())
        return self._compiled.put(lark, matcher)

    def list_unchecked(self, relay: Relay) -> list[str]:
        """The tools of the relay whose calls have not been compiled yet."""
        checked = self._relay(relay).checked
        return [name for name in relay.first if name not in checked]

    @refusing_depth
    def check(self, relay: Relay, name: str, cancellation: Cancellation | None = None) -> None:
        """Compile the call of one tool, to find out whether its schema can be; if it is simple, as an answer will need it."""
        cancellation = cancellation or Cancellation()
        cancellation.check()
        prepared = self._relay(relay)
        if name in prepared.checked:
            return
        if not self._compile_ahead(relay, name):
            with naming(name):
                lark = to_lark(relay.arguments_of(name), self._vocabulary.specials)
                if not is_simple(lark):
                    prepared.is_slow |= self._try(lark, cancellation) > _SLOW
                else:
                    self._compile(lark)
        prepared.checked.add(name)

    def _compile_ahead(self, relay: Relay, name: str) -> bool:
        """Compile the grammars that a call of this tool most likely goes on with: an answer that chooses it does not wait then.

        False if it was not compiled. Its grammar may be that of a few tools, and an error that of another one.
        """
        plan = self._plan(relay)
        if plan is None or len(self._relay(relay).checked) >= _MAX_AHEAD:
            return False
        costly, names = set(self._costly(relay)), tuple[str, ...]()
        try:
            for names, grammar in plan.foresee(name, self._vocabulary):
                if not costly.isdisjoint(names):
                    return False
                self._at(grammar)
        except UsageError:
            return False
        return bool(names)

    def _try(self, lark: str, cancellation: Cancellation) -> float:
        """Compile the text in a worker process; the seconds that it takes."""
        if len(lark) > MAX_LARK:
            raise UsageError(f"the grammar of the answer has {len(lark)} characters, at most {MAX_LARK} are allowed")
        stand_in = _TOKEN.sub(lambda token: f"<[{_STAND_INS[int(token[1]) % len(_STAND_INS)]}]>", lark)
        tried = self._trials.run(stand_in, cancellation)
        if tried.error:
            raise _refusal(tried.error)
        if tried.step:
            raise _too_ambiguous(tried.step)
        return tried.seconds

    def _compile(self, lark: str) -> llguidance.LLMatcher:
        with self._lock:
            slices = _FINER_SLICES if self._lexers > 1 else _SLICES  # where many answers wait for the longest mask
            self._tokenizer = self._tokenizer or self._vocabulary.guidance_tokenizer([*slices])
        try:
            grammar = llguidance.LLMatcher.grammar_from_lark(lark)
        except UnicodeEncodeError:
            raise UsageError("the grammar has half of a surrogate pair in it") from None
        limits = llguidance.LLParserLimits(**_LIMITS, verbose_errors=False)
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, limits=limits, log_level=0)
        if matcher.is_error():
            raise _refusal(matcher.get_error())
        return matcher


def _refusal(message: str) -> UsageError:
    """An error of llguidance as one of ours: `UnsupportedSchema` if it is about a schema."""
    fault = _SCHEMA_FAULT.search(message)
    if fault is None:
        return UsageError(f"the grammar does not compile: {message.strip()}")
    why = fault[1].strip()
    for pattern, keyword in _KEYWORDS:
        if match := pattern.search(why):
            return UnsupportedSchema("#", keyword or match[1], why)
    return UsageError(f"the schema does not compile: {why}")


def _too_ambiguous(message: str) -> UsageError:
    return UsageError(f"the grammar is too ambiguous: {message.split(chr(10))[0]}", field="grammar")
