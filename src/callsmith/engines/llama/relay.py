"""A relay at work: from the names to the call, and from the end of a call to the names again.

What is written is followed in bytes, special tokens behind a byte no text has, so that it is known at every token which tools are
left. A grammar takes over from another only between tokens, and only where all that has been written is literal.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from callsmith.core.errors import UnsupportedSchema
from callsmith.engines.llama.gguf import Logits, Vocabulary
from callsmith.engines.llama.matcher import Constraint
from callsmith.grammar.calls import common
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay

_LEFT: Final = 3  # when so few tools are left, the grammar of their calls takes over: then a token may span name and arguments
_SAMPLE: Final = 8  # beginnings that are tokenized, to see where tokens end


class Leads:
    """What the calls of each tool begin with, as their tokens say it, in order."""

    def __init__(self, texts: Mapping[str, str], vocabulary: Vocabulary) -> None:
        pairs = sorted((vocabulary.marked_text(text), name) for name, text in texts.items())
        self.said = [said for said, _ in pairs]
        self._names = [name for _, name in pairs]

    def left(self, written: bytes) -> range:
        """The places of the tools whose calls begin like this."""
        start = bisect_left(self.said, written)
        return range(start, bisect_left(self.said, written + b"\xff\xff", start))

    def names(self, places: range) -> tuple[str, ...]:
        """The tools in these places."""
        return tuple(self._names[places.start : places.stop])

    def complete(self, written: bytes) -> bool:
        """Whether this is the whole beginning of a tool's call."""
        start = bisect_left(self.said, written)
        return start < len(self.said) and self.said[start] == written


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """A relay made ready for a vocabulary. `end` and `more` are how far the grammars before the first and a later call reach."""

    relay: Relay
    first: Leads
    again: Leads
    end: str
    more: str
    trigger: re.Pattern[bytes]
    reach: int  # the longest of what is looked for in what was written last
    _announced: bytes
    _closed: bytes

    def goes_on(self, written: bytes) -> bool:
        """Whether calls that ended like this announce another one."""
        if not self._announced or not written.endswith(self._announced):
            return False
        return not self._closed or not written.endswith(self._closed)


def course_of(relay: Relay, vocabulary: Vocabulary) -> Course | None:
    """The relay for this vocabulary; None where its stretches cannot be told apart."""
    end = more = ""
    if relay.before and not relay.triggers and not (end := _cut(relay.first, "", vocabulary)):
        return None
    if relay.again and not (more := _cut(relay.again, relay.close, vocabulary)):
        return None
    said = vocabulary.marked_text
    trigger = b"|".join(re.escape(said(text)) for text in relay.triggers)
    first, again = Leads(relay.first, vocabulary), Leads(relay.again, vocabulary)
    reach = 2 * max(map(len, (more, relay.close, *relay.triggers))) + 64
    return Course(relay, first, again, end, more, re.compile(trigger), reach, said(more), said(relay.close))


def _cut(leads: Mapping[str, str], close: str, vocabulary: Vocabulary) -> str:
    """As much of what all leads begin with as ends where a token does, and is not the closing text; empty if there is none."""
    shared = common(list(leads.values()))
    least = len(common((close, shared))) + 1 if close else 1
    ordered = sorted(leads.values())
    first, *others = (set(_token_ends(text, vocabulary)) for text in ordered[:: -(-len(ordered) // _SAMPLE)])
    for size in sorted(first.intersection(*others), reverse=True):
        cut = shared[:size]
        clear = not close or not (close.endswith(cut) or cut.endswith(close))
        if least <= size <= len(shared) and clear:
            return cut
    return ""


def _token_ends(text: str, vocabulary: Vocabulary) -> Iterator[int]:
    said, whole = b"", text.encode()
    for token in vocabulary.tokenize(text):
        said += vocabulary.says[token]
        if whole.startswith(said) and _is_text(whole[len(said) :]):
            yield len(said.decode())


def _is_text(said: bytes) -> bool:
    """Whether this does not begin in the middle of a character."""
    return not 0x80 <= (said[:1] or b"\0")[0] < 0xC0


class Relayed:
    """One answer's place in a relay: like a constraint, with another one for each stretch."""

    def __init__(self, course: Course, begin: Callable[[Grammar], Constraint], vocabulary: Vocabulary) -> None:
        self._course = course
        self._relay = course.relay
        self._begin = begin
        self._vocabulary = vocabulary
        self._step: Literal["text", "opening", "names", "calls"]
        self._stage: Constraint
        self._leads = course.first
        self._written = b""  # in the names: since the calls began; else the end of it
        if self._relay.triggers:
            self._step, self._stage = "text", begin(self._relay.opening(""))
        elif self._relay.before:
            self._step, self._stage = "opening", begin(self._relay.opening(course.end))
        else:
            self._ask(course.first, vocabulary.marked_text(self._relay.prefix))

    @property
    def held(self) -> "Relayed":
        """What holds the answer here: this, always."""
        return self

    @property
    def ended(self) -> bool:
        """The last stretch is complete: nothing can follow."""
        return self._step == "calls" and self._stage.ended

    @property
    def may_end(self) -> bool:
        """What has been said is a whole answer, though more may follow."""
        return self._step == "calls" and self._stage.may_end

    def restrict(self, logits: Logits) -> None:
        """Rule out, in place, every token that is not allowed here."""
        self._stage.restrict(logits)

    def tokens(self) -> NDArray[np.intp]:
        """All tokens that are allowed here."""
        return self._stage.tokens()

    def among(self, tokens: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of these tokens are allowed here."""
        return self._stage.among(tokens)

    def forced(self) -> list[int]:
        """The tokens that must come next. The end of a stretch is not the end of the answer."""
        ends = self._vocabulary.ends & self._vocabulary.special.keys()
        return list(takewhile(lambda token: token not in ends, self._stage.forced()))

    def consume(self, token: int) -> None:
        """The answer goes on with this token."""
        self._stage.consume(token)
        self._went_on(self._vocabulary.marked(token))

    def admits(self, token: int) -> bool:
        """Take in a token that nobody has masked, if it may stand here."""
        said = self._vocabulary.marked(token)
        if self._step == "text" and (found := self._course.trigger.search(self._written + said)):
            return self._stage.admits(token) and self._triggered(token, said, found.start())
        if not self._stage.admits(token):
            return False
        self._went_on(said)
        return True

    def _triggered(self, token: int, said: bytes, start: int) -> bool:
        """Begin the calls where the trigger begins; false if the token has written too much."""
        before, first = self._written, self._course.first
        if first.left(written := (before + said)[start:]):
            return self._ask(first, written)
        if start >= len(before) or not self._ask(first, before[start:]):
            return False
        return self.admits(token)

    def _went_on(self, said: bytes) -> None:
        self._written += said
        if self._step == "names":
            self._narrow()
            return
        self._written = self._written[-self._course.reach :]
        if self._step == "opening" and self._stage.ended:
            self._ask(self._course.first, self._vocabulary.marked_text(self._course.end))
        elif self._step == "calls" and self._stage.ended and self._course.goes_on(self._written):
            self._ask(self._course.again, self._vocabulary.marked_text(self._course.more))

    def _ask(self, leads: Leads, written: bytes) -> bool:
        """Which call is it? Some of its beginning is already written; false if that ends within a character."""
        text = written.replace(b"\xff", b"").decode("utf-8", "replace")
        if text.endswith("\ufffd"):
            return False
        self._step, self._leads, self._written = "names", leads, written
        if not self._narrow():
            self._stage = self._begin(self._relay.names(text, again=leads is self._course.again))
        return True

    def _narrow(self) -> bool:
        """Go over to the calls themselves, when few are left."""
        left = self._leads.left(self._written)
        if len(left) > _LEFT and not self._leads.complete(self._written):
            return False
        try:
            text = self._written.replace(b"\xff", b"").decode()
        except UnicodeDecodeError:
            return False
        self._stage = self._calls(self._leads.names(left), text)
        self._step, self._written = "calls", b""
        return True

    def _calls(self, names: tuple[str, ...], text: str) -> Constraint:
        again = self._leads is self._course.again
        try:
            return self._begin(self._relay.calls(names, text, again=again, more=self._course.more))
        except UnsupportedSchema:
            for name in names:
                with naming(name):
                    self._begin(self._relay.alone(name))
            raise


@contextmanager
def naming(tool: str) -> Generator[None, None, None]:
    """Complaints about a schema name its tool."""
    try:
        yield
    except UnsupportedSchema as refused:
        why = f"{refused.why} (tool {tool!r})"
        raise UnsupportedSchema(refused.path, refused.keyword, why, field=refused.field) from None
