"""Constrains an answer by a relay: first the tools' names, then the grammar of the chosen calls, then names again.

The text written so far is tracked in bytes, special tokens marked by a byte no text has, so that after every token it is known
which tools are still possible. One grammar follows another only between tokens, and only where the text so far is literal.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Literal

import llguidance
import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import UnsupportedSchema
from callsmith.engines.decoding.matcher import Constraint
from callsmith.engines.decoding.vocabulary import Logits, Vocabulary
from callsmith.grammar.calls import common_prefix
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay

_FEW_TOOLS: Final = 3  # from so few possible tools on, the grammar of their calls is used: a token may span name and arguments
_SAMPLE: Final = 8  # prefixes that are tokenized, to find where tokens end


class ToolPrefixes:
    """The text that the calls of each tool begin with, as bytes of their tokens, sorted."""

    def __init__(self, texts: Mapping[str, str], vocabulary: Vocabulary) -> None:
        pairs = sorted((vocabulary.marked_text(text), name) for name, text in texts.items())
        self.starts = [start for start, _ in pairs]
        self._names = [name for _, name in pairs]

    def left(self, prefix: bytes) -> range:
        """The places of the tools whose calls begin like this."""
        start = bisect_left(self.starts, prefix)
        return range(start, bisect_left(self.starts, prefix + b"\xff\xff", start))

    def names(self, places: range) -> tuple[str, ...]:
        """The tools in these places."""
        return tuple(self._names[places.start : places.stop])

    def complete(self, prefix: bytes) -> bool:
        """Whether this is the whole beginning of a tool's call."""
        start = bisect_left(self.starts, prefix)
        return start < len(self.starts) and self.starts[start] == prefix


@dataclass(frozen=True, slots=True, eq=False)
class RelayPlan:
    """A relay prepared for a vocabulary. The grammar before the first call ends with `end`, before a later one with `more`."""

    relay: Relay
    first: ToolPrefixes
    again: ToolPrefixes
    end: str
    more: str
    trigger: re.Pattern[bytes]
    reach: int  # the longest of what is looked for in what was written last
    _announced: bytes
    _closed: bytes

    def goes_on(self, text: bytes) -> bool:
        """Whether calls that ended like this announce another one."""
        if not self._announced or not text.endswith(self._announced):
            return False
        return not self._closed or not text.endswith(self._closed)

    def choose_calls(self, leads: ToolPrefixes, written: bytes) -> tuple[tuple[str, ...], str] | None:
        """The tools whose calls begin like this, and the text of it, once they are few enough for the grammar of their calls."""
        matching = leads.left(written)
        if len(matching) > _FEW_TOOLS and not leads.complete(written):
            return None
        try:
            return leads.names(matching), written.replace(b"\xff", b"").decode()
        except UnicodeDecodeError:
            return None

    def foresee(self, name: str, vocabulary: Vocabulary) -> Iterator[tuple[tuple[str, ...], Grammar]]:
        """The grammars that an answer changes to if it calls this tool first, in the tokens that a tokenizer makes of its name.

        Each with the tools whose schemas are in it: first that of the names, which has none, then that of the call. There are
        none where all that a call begins with is its trigger: a token reaches beyond it.
        """
        if len(self.relay.triggers) > 1:
            return
        begun = self.end if self.relay.before and not self.relay.triggers else self.relay.prefix
        written, offers_names = vocabulary.marked_text(begun), False
        for token_bytes in (b"", *map(vocabulary.mark_special, vocabulary.tokenize(self.relay.first[name][len(begun) :]))):
            written += token_bytes
            if not self.trigger.search(written):
                continue
            if chosen := self.choose_calls(self.first, written):
                yield chosen[0], self.relay.calls(*chosen, again=False, more=self.more)
                return
            if not offers_names:
                offers_names = True
                yield (), self.relay.names(written.replace(b"\xff", b"").decode("utf-8", "replace"), again=False)


def plan_relay(relay: Relay, vocabulary: Vocabulary) -> RelayPlan | None:
    """Prepare the relay for this vocabulary; None if its grammars cannot be separated at token boundaries."""
    end = more = ""
    if relay.before and not relay.triggers and not (end := _cut(relay.first, "", vocabulary)):
        return None
    if relay.again and not (more := _cut(relay.again, relay.close, vocabulary)):
        return None
    marked_text = vocabulary.marked_text
    trigger = b"|".join(re.escape(marked_text(text)) for text in relay.triggers)
    first, again = ToolPrefixes(relay.first, vocabulary), ToolPrefixes(relay.again, vocabulary)
    reach = 2 * max(map(len, (more, relay.close, *relay.triggers))) + 64
    return RelayPlan(relay, first, again, end, more, re.compile(trigger), reach, marked_text(more), marked_text(relay.close))


def _cut(leads: Mapping[str, str], close: str, vocabulary: Vocabulary) -> str:
    """As much of what all leads begin with as ends where a token does, and is not the closing text; empty if there is none."""
    shared = common_prefix(list(leads.values()))
    least = len(common_prefix((close, shared))) + 1 if close else 1
    ordered = sorted(leads.values())
    first, *others = (set(_token_ends(text, vocabulary)) for text in ordered[:: -(-len(ordered) // _SAMPLE)])
    for size in sorted(first.intersection(*others), reverse=True):
        cut = shared[:size]
        clear = not close or not (close.endswith(cut) or cut.endswith(close))
        if least <= size <= len(shared) and clear:
            return cut
    return ""


def _token_ends(text: str, vocabulary: Vocabulary) -> Iterator[int]:
    token_bytes, whole = b"", text.encode()
    for token in vocabulary.tokenize(text):
        token_bytes += vocabulary.says[token]
        if whole.startswith(token_bytes) and _is_text(whole[len(token_bytes) :]):
            yield len(token_bytes.decode())


def _is_text(rest: bytes) -> bool:
    """Whether this does not begin in the middle of a character."""
    return not 0x80 <= (rest[:1] or b"\0")[0] < 0xC0


class RelayConstraint:
    """The state of one answer in a relay: a `Constraint` that uses one grammar after another."""

    def __init__(self, plan: RelayPlan, begin: Callable[[Grammar], Constraint], vocabulary: Vocabulary) -> None:
        self._plan = plan
        self._relay = plan.relay
        self._begin = begin
        self._vocabulary = vocabulary
        self._ends = vocabulary.ends & vocabulary.special.keys()
        self._step: Literal["text", "opening", "names", "calls"]
        self._stage: Constraint
        self._leads = plan.first
        self._written = b""  # in the names: since the calls began; else the end of it
        if self._relay.triggers:
            self._step, self._stage = "text", begin(self._relay.opening(""))
        elif self._relay.before:
            self._step, self._stage = "opening", begin(self._relay.opening(plan.end))
        else:
            self._offer_names(plan.first, vocabulary.marked_text(self._relay.prefix))

    @property
    def active(self) -> "RelayConstraint":
        return self

    @property
    def matcher(self) -> llguidance.LLMatcher:
        return self._stage.matcher

    def check(self) -> None:
        self._stage.check()

    @property
    def ended(self) -> bool:
        return self._step == "calls" and self._stage.ended

    @property
    def may_end(self) -> bool:
        return self._step == "calls" and self._stage.may_end

    def restrict(self, logits: Logits) -> None:
        self._stage.restrict(logits)

    def tokens(self) -> NDArray[np.intp]:
        return self._stage.tokens()

    def allows(self, token: int) -> bool:
        return self._stage.allows(token)

    def among(self, tokens: NDArray[np.intp]) -> NDArray[np.bool_]:
        return self._stage.among(tokens)

    def find_forced(self) -> list[int]:
        """The tokens that must come next. The end of one grammar is not the end of the answer."""
        tokens = self._stage.find_forced()
        return list(takewhile(lambda token: token not in self._ends, tokens)) if tokens else tokens

    def consume(self, token: int) -> None:
        self._stage.consume(token)
        self._advance(self._vocabulary.mark_special(token))

    def admits(self, token: int) -> bool:
        token_bytes = self._vocabulary.mark_special(token)
        if self._step == "text" and (match := self._plan.trigger.search(self._written + token_bytes)):
            return self._stage.admits(token) and self._start_calls(token, token_bytes, match.start())
        if not self._stage.admits(token):
            return False
        self._advance(token_bytes)
        return True

    def _start_calls(self, token: int, token_bytes: bytes, start: int) -> bool:
        """Start the calls at the trigger; false if the token writes more than any call begins with."""
        before, first = self._written, self._plan.first
        if first.left(prefix := (before + token_bytes)[start:]):
            return self._offer_names(first, prefix)
        if start >= len(before) or not self._offer_names(first, before[start:]):
            return False
        return self.admits(token)

    def _advance(self, token_bytes: bytes) -> None:
        self._written += token_bytes
        if self._step == "names":
            self._choose_calls()
            return
        self._written = self._written[-self._plan.reach :]
        if self._step == "opening" and self._stage.ended:
            self._offer_names(self._plan.first, self._vocabulary.marked_text(self._plan.end))
        elif self._step == "calls" and self._stage.ended and self._plan.goes_on(self._written):
            self._offer_names(self._plan.again, self._vocabulary.marked_text(self._plan.more))

    def _offer_names(self, leads: ToolPrefixes, prefix: bytes) -> bool:
        """Constrain to the names of tools, behind what is already written; false if that ends within a character."""
        text = prefix.replace(b"\xff", b"").decode("utf-8", "replace")
        if text.endswith("\ufffd"):
            return False
        self._step, self._leads, self._written = "names", leads, prefix
        if not self._choose_calls():
            self._stage = self._begin(self._relay.names(text, again=leads is self._plan.again))
        return True

    def _choose_calls(self) -> bool:
        """Change to the grammar of the calls, once few tools are possible."""
        if (chosen := self._plan.choose_calls(self._leads, self._written)) is None:
            return False
        self._stage = self._calls(*chosen)
        self._step, self._written = "calls", b""
        return True

    def _calls(self, names: tuple[str, ...], text: str) -> Constraint:
        again = self._leads is self._plan.again
        try:
            return self._begin(self._relay.calls(names, text, again=again, more=self._plan.more))
        except UnsupportedSchema:
            for name in names:
                with naming(name):
                    self._begin(self._relay.arguments_of(name))
            raise


@contextmanager
def naming(tool: str) -> Generator[None, None, None]:
    """Errors about a schema name its tool."""
    try:
        yield
    except UnsupportedSchema as refused:
        why = f"{refused.why} (tool {tool!r})"
        raise UnsupportedSchema(refused.path, refused.keyword, why, field=refused.field) from None
