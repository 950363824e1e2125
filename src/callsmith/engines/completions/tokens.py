"""The tokens of a server's answer in its text: which text is a special token, and where tokens with log probabilities stand."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from callsmith.core.values import Json, TokenLogprob
from callsmith.engines.port import Piece, SampledToken

_LEAST: Final = -9999.0  # stands for no probability at all, as in OpenAI's API


class SpecialSplitter:
    """Cuts text at its special tokens. That one has come is known by its id; its text comes with it, later, or not at all.

    >>> splitter = SpecialSplitter({"<call>": 7})
    >>> splitter.feed("a<call>", (1, 7))
    [Piece(text='a', special=False), Piece(text='<call>', special=True)]
    >>> splitter.feed("<call>", (3, 4))
    [Piece(text='<call>', special=False)]

    Some servers leave out the text of special tokens: then it is put in, unless the answer ends there, for the token that ends
    an answer is no part of it.
    """

    def __init__(self, specials: Mapping[str, int]) -> None:
        self._texts = {token: text for text, token in specials.items()}
        self._waiting: list[str] = []  # special tokens whose text has not come

    def feed(self, text: str, tokens: Sequence[int]) -> list[Piece]:
        """The pieces of the next text."""
        if not text and not tokens:
            return []
        pieces: list[Piece] = []
        late, self._waiting = self._waiting, []
        new = [self._texts[token] for token in tokens if token in self._texts]
        for at, special in enumerate((*late, *new)):
            before, marker, after = text.partition(special)
            if marker:
                pieces += [Piece(before)] if before else []
                pieces.append(Piece(special, special=True))
                text = after
            elif at < len(late):
                pieces.append(Piece(special, special=True))
            else:
                self._waiting.append(special)
        return [*pieces, Piece(text)] if text else pieces

    def close(self, *, is_stop: bool) -> list[Piece]:
        """What is left at the end. Where the answer stopped by itself, the last token is the one that ended it."""
        rest, self._waiting = self._waiting, []
        return [Piece(item, special=True) for item in (rest[:-1] if is_stop else rest)]


def read_token(text: str | bytes, logprob: Json, top: Iterable[TokenLogprob] = ()) -> TokenLogprob:
    """A token as a server tells it; where it has only the text, that is encoded."""
    is_number = isinstance(logprob, int | float) and logprob == logprob  # which is not so of NaN
    value = float(min(max(logprob, _LEAST), 0.0)) if is_number else _LEAST
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return TokenLogprob(data, value, tuple(sorted(top, key=lambda candidate: -candidate.logprob)))


class TokenAligner:
    """Finds the tokens of an answer in its text, of which more or less may have come than of its tokens.

    >>> aligner = TokenAligner(top=0)
    >>> aligner.feed("Hi", [TokenLogprob(b"Hi", -1.0), TokenLogprob(b"<call>", -1.0)])
    >>> aligner.feed("<call>!", [TokenLogprob(b"!", -1.0)])
    >>> [(token.start, token.end) for token in aligner.take()]
    [(0, 2), (2, 8), (8, 9)]

    A token may be written otherwise in the text than alone: as a part of a character, or without the space before it. It is
    given the text up to the next token that is found. `top` is how many of the likeliest tokens are kept.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._at = 0
        self._text = ""  # in which no token was found yet
        self._waiting: list[TokenLogprob] = []
        self._found: list[SampledToken] = []

    def feed(self, text: str, tokens: Sequence[TokenLogprob], end: Literal["stop", "length"] | None = None) -> None:
        """The next text, and the next tokens; with the last of them, how the answer has ended."""
        self._text += text
        self._waiting += [TokenLogprob(token.data, token.logprob, token.top[: self._top]) for token in tokens]
        if end == "stop":
            self._drop_end()
        while self._waiting and self._text:
            first = self._waiting[0].text
            if first and self._text.startswith(first):
                self._place(1, len(first))
            elif (known := self._next_known()) is not None:
                self._place(*known)
            elif first.startswith(self._text) and end is None:
                return  # the rest of it has not come
            else:
                self._place(len(self._waiting), len(self._text))
        if self._waiting and end is not None:
            self._place(len(self._waiting), 0)
        if not self._waiting:  # no token was reported for this text, and none will be
            self._at, self._text = self._at + len(self._text), ""

    def take(self) -> tuple[SampledToken, ...]:
        tokens, self._found = tuple(self._found), []
        return tokens

    def _drop_end(self) -> None:
        """Where an answer has stopped by itself, a token without text has ended it. It is kept if there is nothing else."""
        is_alone = len(self._waiting) == 1 and not self._at and not self._text
        if self._waiting and not is_alone:
            last = self._waiting[-1].text
            if not last or not self._text.endswith(last):
                self._waiting.pop()

    def _next_known(self) -> tuple[int, int] | None:
        """The next token behind the first that is found in the text: how many are before it, and how many characters."""
        for number, token in enumerate(self._waiting[1:], start=1):
            if token.data and (at := self._text.find(token.text)) >= 0:
                return number, at
        return None

    def _place(self, count: int, size: int) -> None:
        """The next tokens have so many characters: the last of them, which completes them."""
        for token in self._waiting[: count - 1]:
            self._found.append(SampledToken(token, self._at, self._at))
        self._found.append(SampledToken(self._waiting[count - 1], self._at, self._at + size))
        del self._waiting[:count]
        self._at, self._text = self._at + size, self._text[size:]
