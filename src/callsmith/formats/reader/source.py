"""A buffer for text that arrives in pieces, with the operations a reader needs: search, match, peek, mark and rewind.

Each operation is a generator: a bare `yield` in it waits for more text, its return value is the result. It returns only when no
further text could change the result; that is why reading does not depend on how the text is divided into pieces.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Incremental: TypeAlias = Generator[None, None, T]
Emit: TypeAlias = Callable[[str], object]

MAX_WORD = 256
MAX_PIECES = 64
NO_MATCH = "(?!)"  # a pattern that never matches
WORD = re.compile(r"\w*")
SPACE = re.compile(r"[ \t\r\n]*")


class Mismatch(Exception):
    """The text is not what the format expects here. Never raised out of the reader."""


class Truncated(Exception):
    """The text ended too early. Never raised out of the reader."""


class Stops:
    """A compiled set of texts to search for: the leftmost wins, then the longest. An empty set never matches."""

    __slots__ = ("first_chars", "longest", "pattern", "sorted_texts", "texts")

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts
        self.pattern = re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)) or NO_MATCH)
        self.first_chars = re.compile("[" + "".join(sorted({re.escape(text[0]) for text in texts})) + "]" if texts else NO_MATCH)
        self.longest = max((len(text) for text in texts), default=0)
        self.sorted_texts = sorted(texts)

    def may_grow(self, text: str, start: int) -> bool:
        """Whether the text from `start` to its end may become a (longer) stop when more text comes."""
        if len(text) - start >= self.longest:
            return False
        rest = text[start:]
        following = bisect_right(self.sorted_texts, rest)  # what begins with the rest, and is longer, comes right behind it
        return following < len(self.sorted_texts) and self.sorted_texts[following].startswith(rest)

    def partial_from(self, text: str, pos: int) -> int:
        """Where the end of the text begins that may be the start of a stop; the length of the text if there is none."""
        start = max(pos, len(text) - self.longest + 1)
        while match := self.first_chars.search(text, start):
            start = match.start()
            if self.may_grow(text, start):
                return start
            start += 1
        return len(text)


@lru_cache(1024)
def stops(texts: tuple[str, ...]) -> Stops:
    """The compiled set of these texts, cached."""
    return Stops(texts)


def ignore(text: str) -> None:
    """An `Emit` that drops the text."""


def join_small(pieces: list[str]) -> None:
    """Join the many small pieces of a text that is kept in pieces: each takes more room than what is written in it.

    Of those that were joined before, the long ones are left as they are: a text is copied only as often as it has doubled.
    """
    at, size = 0, sum(map(len, pieces))
    while at < len(pieces) - 1 and len(pieces[at]) * 2 > size:
        size -= len(pieces[at])
        at += 1
    pieces[at:] = ["".join(pieces[at:])]


class TextSource:
    """The unread text. Between `mark` and `unmark` the text that is read is saved, so that `rewind` can go back."""

    __slots__ = ("ended", "fast_path", "mark_pos", "pos", "saved", "text")

    def __init__(self) -> None:
        self.text = ""
        self.pos = 0
        self.ended = False
        self.saved: list[str] | None = None  # what was read since the mark and is no longer in `text`; None: no mark is set
        self.mark_pos = 0  # position of the mark in `text`
        # While `read_until` waits on an empty buffer: text without any of these characters may go straight to this callable.
        self.fast_path: tuple[re.Pattern[str], Emit] | None = None

    def feed(self, text: str) -> None:
        """Append text."""
        self.text = self.compact() + text

    def compact(self) -> str:
        """Remove the text that was read from the buffer (saving it under a mark) and return the rest."""
        if self.saved is not None and self.pos > self.mark_pos:
            self.saved.append(self.text[self.mark_pos : self.pos])
            if len(self.saved) > MAX_PIECES:
                join_small(self.saved)
        self.text = self.text[self.pos :]
        self.pos = self.mark_pos = 0
        return self.text

    def mark(self) -> None:
        """Set the mark here: save what is read from now on."""
        self.saved = []
        self.mark_pos = self.pos

    def unmark(self) -> None:
        """Remove the mark and what was saved."""
        self.saved = None

    def rewind(self) -> None:
        """Go back to the mark, which stays set."""
        if self.saved:
            self.text = "".join(self.saved) + self.text[self.mark_pos :]
            self.saved = []
            self.mark_pos = 0
        self.pos = self.mark_pos

    def since_mark(self) -> str:
        """What was read since the mark."""
        return "".join((*(self.saved or ()), self.text[self.mark_pos : self.pos]))

    def pending(self) -> int:
        """The number of characters that are unread or may be read again."""
        return len(self.text) - self.pos + (len(self.since_mark()) if self.saved is not None else 0)

    def read_until(self, wanted: Stops, emit: Emit) -> Incremental[str | None]:
        """Emit the text up to the leftmost stop, which is returned and left unread; None: the text ended first."""
        while True:
            text, pos = self.text, self.pos
            match = wanted.pattern.search(text, pos)
            if match and (self.ended or not wanted.may_grow(text, match.start())):
                self.pos = match.start()
                if self.pos > pos:
                    emit(text[pos : self.pos])
                return match[0]
            end = match.start() if match else len(text) if self.ended else wanted.partial_from(text, pos)
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
        """Read the short text up to a stop, without white space at its end; a `Mismatch` if it does not match `like`."""
        while True:
            text, pos = self.text, self.pos
            match = wanted.pattern.search(text, pos, pos + MAX_WORD + wanted.longest)
            sure = match is not None and (self.ended or not wanted.may_grow(text, match.start()))
            end = match.start() if match else min(wanted.partial_from(text, pos), pos + MAX_WORD + 1)
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
            if self.pos < len(self.text) and self.text[self.pos] not in " \t\r\n":
                return True
            match = SPACE.match(self.text, self.pos)
            self.pos = match.end() if match else self.pos
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
        """The longest of these texts that begins here (or `offset` characters on), left unread."""
        while True:
            text, pos = self.text, self.pos + offset
            here, rest, may_grow = None, len(text) - pos, False
            for want in wanted:
                if len(want) > rest:
                    may_grow = may_grow or want.startswith(text[pos:])
                elif (here is None or len(want) > len(here)) and text.startswith(want, pos):
                    here = want
            if self.ended or not may_grow:
                return here
            yield

    def peek_after(self, offset: int) -> Incremental[tuple[str, int]]:
        """The next character from `offset` on that is not white space, and its offset; "" if there is none near by."""
        while True:
            start = self.pos + offset
            match = SPACE.match(self.text, start, start + MAX_WORD)
            end = match.end() if match else start
            if self.ended or end < len(self.text) or end - start >= MAX_WORD:
                near = end < len(self.text) and end - start < MAX_WORD
                return self.text[end] if near else "", end - self.pos
            yield

    def at_after_space(self, wanted: tuple[str, ...]) -> Incremental[str | None]:
        """The longest of these texts that begins here or after white space; nothing is read."""
        _, offset = yield from self.peek_after(0)
        return (yield from self.at(wanted, offset))

    def peek_word(self, offset: int) -> Incremental[tuple[str, str]]:
        """The name at `offset`, and the next character after it that is not white space; both left unread."""
        while True:
            match = WORD.match(self.text, self.pos + offset, self.pos + offset + MAX_WORD)
            end = match.end() if match else self.pos + offset
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
