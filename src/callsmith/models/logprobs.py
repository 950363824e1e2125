"""Which of an answer's tokens are the text that is shown, and not reasoning, calls or markers."""

from collections.abc import Iterable
from dataclasses import replace

from callsmith.core.events import ModelEvent, Text, Thought
from callsmith.engines.port import Piece, SampledToken
from callsmith.formats.reader.reader import Reader


class LogprobAligner:
    """Adds the log probabilities of tokens to the `Text` events that a reader makes of their text.

    A text event is found in the part of the answer that the reader has dealt with since the last events. A token that is only
    partly text is added all the same.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._tokens: list[SampledToken] = []  # of which no text was shown yet
        self._text = ""  # the text that the reader has not dealt with yet
        self._start = 0  # where that begins in the answer

    def feed(self, piece: Piece) -> list[ModelEvent]:
        """The events that the piece completes."""
        self._text += piece.text
        self._tokens += piece.tokens
        events = self._reader.feed(piece.text, piece.special)
        return self._align(events, len(self._text) - self._reader.withheld)

    def close(self) -> list[ModelEvent]:
        """The last events."""
        return self._align(self._reader.close(), len(self._text))

    def _align(self, events: list[ModelEvent], size: int) -> list[ModelEvent]:
        done, at = self._text[: max(size, 0)], 0
        aligned: list[ModelEvent] = []
        for number, event in enumerate(events, start=1):
            if isinstance(event, Text | Thought):
                # Nothing is emitted behind the last text; before it there may be markers.
                is_end = number == len(events) and done.endswith(event.text)
                place = len(done) - len(event.text) if is_end else done.find(event.text, at)
                start = at if place < 0 else place
                at = min(start + len(event.text), len(done))
                if isinstance(event, Text):
                    event = replace(event, logprobs=tuple(token.logprob for token in self._take(start, at)))
            aligned.append(event)
        self._text, self._start = self._text[len(done) :], self._start + len(done)
        self._tokens = [token for token in self._tokens if _end(token) > self._start]
        return aligned

    def _take(self, start: int, end: int) -> Iterable[SampledToken]:
        """The tokens that stand between these positions of the text."""
        start, end = self._start + start, self._start + end
        taken = [token for token in self._tokens if token.start < end and _end(token) > start]
        self._tokens = [token for token in self._tokens if token not in taken]
        return taken


def _end(token: SampledToken) -> int:
    """Where the token ends; one that holds a part of a character ends behind that character."""
    return max(token.end, token.start + 1)
