"""Text that arrives in pieces, and the few questions a reader asks of it.

Each question is a generator: a bare `yield` in it means "more text, please", its return value is the answer. A question is
answered only when no further text could change the answer; that is why reading does not depend on how the text is cut.
"""

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Incremental: TypeAlias = Generator[None, None, T]
Emit: TypeAlias = Callable[[str], object]

MAX_WORD = 256
NO_MATCH = "(?!)"  # a pattern that nothing fits
WORD = re.compile(r"\w*")
SPACE = re.compile(r"[ \t\r\n]*")


class Mismatch(Exception):
    """The text is not what the format says. Never leaves the reader."""


class Truncated(Exception):
    """The text ended in the middle. Never leaves the reader."""


class Stops:
    """A set of texts to look for: the leftmost wins, then the longest. Of none at all, nothing is found."""

    __slots__ = ("first_chars", "longest", "pattern", "texts")

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts
        self.pattern = re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)) or NO_MATCH)
        self.first_chars = re.compile("[" + "".join(sorted({re.escape(text[0]) for text in texts})) + "]" if texts else NO_MATCH)
        self.longest = max((len(text) for text in texts), default=0)

    def may_grow(self, text: str, start: int) -> bool:
        """Whether what stands from `start` to the end may still become a (longer) stop."""
        rest = text[start:]
        return any(len(stop) > len(rest) and stop.startswith(rest) for stop in self.texts)

    def partial_from(self, text: str, pos: int) -> int:
        """Where the tail begins that may be the beginning of a stop."""
        start = max(pos, len(text) - self.longest + 1)
        while found := self.first_chars.search(text, start):
            start = found.start()
            if self.may_grow(text, start):
                return start
            start += 1
        return len(text)


@lru_cache(4096)
def stops(texts: tuple[str, ...]) -> Stops:
    """The compiled set, made once."""
    return Stops(texts)


class TextSource:
    """The unread text. Between `mark` and `unmark` it remembers what was read, so that it can be read again."""

    __slots__ = ("ended", "fast_path", "mark_pos", "pos", "saved", "text")

    def __init__(self) -> None:
        self.text = ""
        self.pos = 0
        self.ended = False
        self.saved: list[str] | None = None  # what was read since the mark and is no longer in `text`
        self.mark_pos = 0  # where the mark stands in `text`
        # While `until` waits with nothing held back: text without any of these characters can go straight to this callable.
        self.fast_path: tuple[re.Pattern[str], Emit] | None = None

    def feed(self, text: str) -> None:
        """More text has come."""
        self.text = self.compact() + text

    def compact(self) -> str:
        """Forget what was read (or put it in the past, under a mark); the rest is what remains."""
        if self.saved is not None:
            self.saved.append(self.text[self.mark_pos : self.pos])
        self.text = self.text[self.pos :]
        self.pos = self.mark_pos = 0
        return self.text

    def mark(self) -> None:
        """Remember from here on."""
        self.saved = []
        self.mark_pos = self.pos

    def unmark(self) -> None:
        """What was read stays read."""
        self.saved = None

    def rewind(self) -> None:
        """Back to the mark, which stays."""
        if self.saved:
            self.text = "".join(self.saved) + self.text[self.mark_pos :]
            self.saved = []
            self.mark_pos = 0
        self.pos = self.mark_pos

    def since_mark(self) -> str:
        """What was read since the mark."""
        return "".join((*(self.saved or ()), self.text[self.mark_pos : self.pos]))

    def pending(self) -> int:
        """How many characters are not yet read for good."""
        return len(self.text) - self.pos + (len(self.since_mark()) if self.saved is not None else 0)

    def read_until(self, wanted: Stops, emit: Emit) -> Incremental[str | None]:
        """Emit the text up to the leftmost stop, which is left unread and returned; None: the text ended first."""
        while True:
            text, pos = self.text, self.pos
            found = wanted.pattern.search(text, pos)
            if found and (self.ended or not wanted.may_grow(text, found.start())):
                self.pos = found.start()
                if self.pos > pos:
                    emit(text[pos : self.pos])
                return found[0]
            end = found.start() if found else len(text) if self.ended else wanted.partial_from(text, pos)
            if end > pos:
                self.pos = end
                emit(text[pos:end])
            if self.ended:
                return None
            if not self.compact():
                self.fast_path = wanted.first_chars, emit
            yield
            self.fast_path = None

    def read_word(self, wanted: Stops, like: re.Pattern[str]) -> Incremental[str]:
        """The short text up to a stop, without white space at its end. Nothing is read unless all of it is such a word."""
        while True:
            text, pos = self.text, self.pos
            found = wanted.pattern.search(text, pos, pos + MAX_WORD + wanted.longest)
            sure = found is not None and (self.ended or not wanted.may_grow(text, found.start()))
            end = found.start() if found else min(wanted.partial_from(text, pos), pos + MAX_WORD + 1)
            word = text[pos:end].rstrip()
            if len(word) > MAX_WORD or (word and not like.fullmatch(word)):
                raise Mismatch("not a name")
            if sure:
                self.pos = end
                return word
            if self.ended:
                raise Truncated("the text ended in a name")
            yield

    def skip_space(self) -> Incremental[bool]:
        """Skip white space; False: the text has ended."""
        while True:
            found = SPACE.match(self.text, self.pos)
            self.pos = found.end() if found else self.pos
            if self.pos < len(self.text):
                return True
            if self.ended:
                return False
            yield

    def peek(self) -> Incremental[str]:
        """The next character that is not white space, left unread."""
        if not (yield from self.skip_space()):
            raise Truncated("the text ended")
        return self.text[self.pos]

    def at(self, wanted: tuple[str, ...], offset: int = 0) -> Incremental[str | None]:
        """The longest of these that stands here (or `offset` further on), left unread."""
        while True:
            text, pos = self.text, self.pos + offset
            here = max((want for want in wanted if text.startswith(want, pos)), key=len, default=None)
            rest = text[pos : pos + 200]
            longer = 0 if here is None else len(here)
            if self.ended or not any(len(want) > len(rest) and len(want) > longer and want.startswith(rest) for want in wanted):
                return here
            yield

    def followed(self, text: str, chars: str) -> Incremental[bool]:
        """Whether behind this text, which stands here, and white space comes one of these characters, or nothing."""
        while True:
            found = SPACE.match(self.text, self.pos + len(text))
            end = found.end() if found else 0
            if end < len(self.text):
                return self.text[end] in chars
            if self.ended:
                return True
            yield

    def peek_after(self, offset: int) -> Incremental[tuple[str, int]]:
        """The next character from `offset` on that is not white space, and where it stands; "" if there is none near by."""
        while True:
            start = self.pos + offset
            found = SPACE.match(self.text, start, start + MAX_WORD)
            end = found.end() if found else start
            if self.ended or end < len(self.text) or end - start >= MAX_WORD:
                near = end < len(self.text) and end - start < MAX_WORD
                return self.text[end] if near else "", end - self.pos
            yield

    def at_after_space(self, wanted: tuple[str, ...]) -> Incremental[str | None]:
        """The longest of these that stands behind the white space here; both are left unread."""
        _, offset = yield from self.peek_after(0)
        return (yield from self.at(wanted, offset))

    def peek_word(self, offset: int) -> Incremental[tuple[str, str]]:
        """The name that stands at `offset`, and the character behind it and white space."""
        while True:
            found = WORD.match(self.text, self.pos + offset, self.pos + offset + MAX_WORD)
            end = found.end() if found else self.pos + offset
            if end < len(self.text):
                return self.text[self.pos + offset : end], (yield from self.peek_after(end - self.pos))[0]
            if self.ended:
                return self.text[self.pos + offset : end], ""
            yield

    def peek_chars(self, count: int) -> Incremental[str]:
        """The next `count` characters, left unread."""
        while len(self.text) - self.pos < count:
            if self.ended:
                raise Truncated("the text ended")
            yield
        return self.text[self.pos : self.pos + count]
