"""`EngineAnswer`: what an engine writes for one answer, read as events."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Started, Stopped, Text, Thought, Unreadable
from callsmith.core.types.model_step import ModelStep
from callsmith.core.values import Usage
from callsmith.engines.port import Engine, Finished, Piece, SampledToken
from callsmith.formats.reader.reader import Reader
from callsmith.models.answers.deciding import AnswerPlan
from callsmith.models.answers.normalizer import AnswerNormalizer

# A step between the engine and the caller: it takes the events that have come, and returns those that are passed on.
Stage: TypeAlias = Callable[[Iterable[ModelEvent]], Iterable[ModelEvent]]


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
        overlapping = [token for token in self._tokens if token.start < end and _end(token) > start]
        self._tokens = [token for token in self._tokens if token not in overlapping]
        return overlapping


def _end(token: SampledToken) -> int:
    """Where the token ends; one that holds a part of a character ends behind that character."""
    return max(token.end, token.start + 1)


class StepRecorder:
    """Calls `explain` with a step of the model once: at the end of the answer, or when `close` ends it early.

    `answer_text` is the text so far and what it has cost. Without it, the text is that of the events: what is said and thought,
    and the calls with their names before them.
    """

    def __init__(
        self, step: ModelStep, explain: Callable[[ModelStep], None], answer_text: Callable[[], tuple[str, Usage]] | None = None
    ) -> None:
        self._step = step
        self._explain = explain
        self._written = answer_text or self._read
        self._began = time.perf_counter()
        self._repairs: list[str] = []
        self._has_ended = False
        self._pieces: list[str] = []
        self._usage = Usage()

    def filter(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """The events, as they are."""
        for event in events:
            match event:
                case Text(text) | Thought(text) | CallArguments(_, text):
                    self._pieces.append(text)
                case CallStarted(name=name):
                    self._pieces.append(f"\n{name} ")
                case CallReady():
                    self._repairs += event.repairs
                case Unreadable(text, reason):
                    self._pieces.append(text)
                    self._repairs.append(f"unreadable: {reason}")
                case Started(usage):
                    self._usage = usage
                case Stopped(usage=usage):
                    self._end(usage)
            yield event

    def close(self) -> None:
        """End the step, if the answer has not ended."""
        if not self._has_ended:
            self._end()

    def _read(self) -> tuple[str, Usage]:
        return "".join(self._pieces), self._usage

    def _end(self, usage: Usage | None = None) -> None:
        self._has_ended = True
        text, so_far = self._written()
        spent, seconds = usage or so_far, round(time.perf_counter() - self._began, 6)
        took = {"seconds": seconds, "prompt_tokens": spent.prompt, "tokens": spent.completion}
        self._explain(replace(self._step, text=text, repairs=tuple(self._repairs), **took))


def pass_through(stages: Iterable[Stage], events: Iterable[ModelEvent]) -> Iterable[ModelEvent]:
    """What the stages leave of the events, one after the other."""
    for stage in stages:
        events = stage(events)
    return events


class EngineAnswer:
    """Reads the pieces of one answer. `reads_specials`: special tokens are distinguished from the same letters.

    `frames` are the special tokens that frame messages: with one of those that are in the prompt, the model goes on with somebody
    else's turn, and its own is over.
    """

    def __init__(
        self,
        engine: Engine,
        plan: AnswerPlan,
        reader: Reader,
        normalizer: AnswerNormalizer,
        *,
        frames: frozenset[str],
        reads_specials: bool,
    ) -> None:
        self._engine = engine
        self._prompt = plan.prompt.text
        self.reader = reader
        self._aligner = None if plan.request.sampling.logprobs is None else LogprobAligner(reader)
        self._frames = frames
        self._reads_specials = reads_specials
        self._pieces: list[Piece] = []
        self._called = 0  # characters up to the end of the latest call
        self.normalizer = normalizer
        self.is_over = False

    @property
    def text(self) -> str:
        return "".join([piece.text for piece in self._pieces])

    @property
    def usage(self) -> Usage:
        """What the answer has cost so far, as far as the engine says."""
        return next((piece.usage for piece in reversed(self._pieces) if piece.usage), Usage())

    @property
    def turn(self) -> Iterable[Piece]:
        """What was written, without what follows the calls of a complete answer."""
        return _first_pieces(self._pieces, self._called) if self.normalizer.is_complete else self._pieces

    def feed(self, piece: Piece | Finished) -> Iterator[ModelEvent]:
        """The events that the piece completes; with the last one, or with the beginning of somebody else's turn, the answer
        `is_over`, and so it is when all that may be called has been called."""
        if isinstance(piece, Finished) or self._is_frame(piece):
            self.is_over = True
            yield from self.normalizer.filter((self._aligner or self.reader).close())
            return
        self._pieces.append(piece)
        if piece.special and not self._reads_specials:
            piece = replace(piece, special=False)
        events = self._aligner.feed(piece) if self._aligner else self.reader.feed(piece.text, piece.special)
        yield from self.normalizer.filter(events)
        if any(isinstance(event, CallReady) for event in events):
            self._called = _calls_size(self._pieces, events, self.reader.withheld)
        self.is_over = self.normalizer.is_complete

    def _is_frame(self, piece: Piece) -> bool:
        is_special = piece.special and not self.normalizer.is_calling
        return is_special and piece.text in self._frames and piece.text in self._prompt

    async def start(self, piece: Piece | Finished) -> list[Started]:
        """The first event, which the first piece brings; none where there is no piece at all."""
        return [] if isinstance(piece, Finished) else [Started(replace(await self._count(piece), completion=0))]

    async def end(self, piece: Piece | Finished) -> Finished:
        """The end of the answer with this piece."""
        return piece if isinstance(piece, Finished) else Finished("stop", await self._count(piece))

    async def _count(self, piece: Piece) -> Usage:
        """What the answer has cost up to this piece; counted, where the engine does not say."""
        return piece.usage or Usage(await self._engine.count(self._prompt), await self._engine.count(self.text))


def _calls_size(pieces: Iterable[Piece], read: Sequence[ModelEvent], withheld: int) -> int:
    """How much of what was written is calls and what comes before them. `read` has come of the last piece, with a call in it;
    of the last characters, `withheld`, nothing has come yet."""
    behind: list[ModelEvent] = []
    for event in read:
        behind = [] if isinstance(event, CallReady) else [*behind, event]
    words = sum(len(event.text) for event in behind if isinstance(event, Text | Thought))
    return sum(len(piece.text) for piece in pieces) - withheld - words


def _first_pieces(pieces: Iterable[Piece], size: int) -> Iterator[Piece]:
    """The pieces of so many characters."""
    for piece in pieces:
        if size <= 0:
            return
        yield replace(piece, text=piece.text[:size])
        size -= len(piece.text)
