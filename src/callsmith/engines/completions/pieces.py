"""From a server's text and ids to pieces: which text is a special token, and which only spells one."""

from collections.abc import Mapping, Sequence

from callsmith.engines.port import Piece


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
            before, found, after = text.partition(special)
            if found:
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
        return [Piece(one, special=True) for one in (rest[:-1] if is_stop else rest)]
