"""Reasoning within a budget: when that is used up, the thought is closed as the model would close it, and the answer goes on.

The engine is stopped there and asked to continue what was written, with the closing marker behind it. So it is the same with
every engine that continues text, in this process or at the other end of a connection; what was read before is in the KV cache.
A thought that the model closes itself is left alone, and nothing is closed where a call may have begun.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Final

from callsmith.core.closing import closing
from callsmith.core.errors import GrammarRefused, QueueFull
from callsmith.core.values import Sampling, Usage
from callsmith.engines.port import Engine, Finished, Piece
from callsmith.formats.prompt.escaping import remove_breaks
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.reader.reader import Reader
from callsmith.models.answers.deciding import AnswerPlan
from callsmith.models.grammars import AnswerGrammar

_MOST_CLOSED: Final = 8  # thoughts of one answer; a model that opens more of them is left alone
_GRACE: Final = 48  # tokens over the budget in which what looks like the beginning of a marker may become one, letter by letter
_ATTEMPTS: Final = 200
_PAUSE: Final = 0.05  # seconds


@dataclass(slots=True)
class BudgetedGeneration:
    """What an engine writes for a plan, with no more than `budget` tokens of reasoning.

    `reader` reads what comes: it is fed with each piece before the next one is asked for. `escape` marks what only looks like a
    special token, `grammar_behind` gives the grammar of what follows on a thought.
    """

    engine: Engine
    plan: AnswerPlan
    reader: Reader
    budget: int
    escape: Callable[[str], str]
    grammar_behind: Callable[[], AnswerGrammar]
    _written: list[Piece] = field(default_factory=list[Piece])
    _spent: Usage | None = None  # up to where the engine was asked to go on
    _done: Usage = Usage()  # since then
    _left: int = _MOST_CLOSED

    async def generate(self) -> AsyncGenerator[Piece | Finished, None]:
        """Pieces, then exactly one Finished, as of an engine."""
        pieces = self.engine.generate(self.plan.prompt, self.plan.request.sampling, self.plan.grammar)
        while True:
            start, close, self._done = sum([len(piece.text) for piece in self._written]), "", Usage()
            async with closing(pieces) as stream:
                async for piece in stream:
                    if isinstance(piece, Finished):
                        yield replace(piece, usage=self._total(piece.usage))
                        return
                    is_thinking, before = self.reader.is_thinking, self._done.completion
                    self._done = piece.usage or Usage(completion=before + 1)
                    self._written.append(self._move(piece, start))
                    yield self._written[-1]
                    if is_thinking:
                        self.budget -= self._done.completion - before
                    if self.budget <= 0 and (close := await self._find_close()):
                        break
            if not close:
                return
            usage = self._spent if self._written[-1].usage else None
            for piece in _split_specials(close, self.engine.info.specials):
                self._written.append(replace(piece, usage=usage))
                yield self._written[-1]
            pieces = self._go_on()

    async def _find_close(self) -> str:
        """What closes the thought here; empty where none is open, where something in it may have begun that is no thought, and
        where there would be no room for an answer."""
        close = self.reader.closing_text
        if close is None or not self._left or (self.reader.is_in_marker and self.budget > -_GRACE):
            return ""
        done, before = self._done, self._spent or Usage(self._done.prompt, 0, self._done.cached)
        prompt = before.prompt or await self.engine.count(self.plan.prompt.text)
        spent = before.completion + done.completion + await self.engine.count(close)
        most, context = self.plan.request.sampling.max_tokens, self.engine.info.context
        if (most is not None and spent >= most) or (context is not None and prompt + spent >= context):
            self._left = 0  # it is about to end anyway
            return ""
        self._spent, self._left = Usage(prompt, spent, before.cached), self._left - 1
        return close

    async def _go_on(self) -> AsyncGenerator[Piece | Finished, None]:
        """What the engine writes behind a closed thought. Another request may have taken its place in the queue."""
        prompt, sampling = self._prompt_behind(), self._sampling_behind()
        for attempt in range(1, _ATTEMPTS + 1):
            has_begun = False
            try:
                async with closing(self.engine.generate(prompt, sampling, self.grammar_behind())) as pieces:
                    async for piece in pieces:
                        has_begun = True
                        yield piece
                return
            except (GrammarRefused, QueueFull):  # a refused grammar is not given again: the next one is looser
                if has_begun or attempt == _ATTEMPTS:
                    raise
            await asyncio.sleep(_PAUSE)

    def _prompt_behind(self) -> Prompt:
        """The prompt, with all that was written."""
        prompt = self.plan.prompt
        text, cuts = remove_breaks(raw_text(self._written, self.escape))
        places = (*prompt.cuts, *(len(prompt.text) + place for place in cuts))
        return replace(prompt, text=prompt.text + text, cuts=places, opened="", prefilled=())

    def _sampling_behind(self) -> Sampling:
        sampling, spent = self.plan.request.sampling, self._spent or Usage()
        return sampling if sampling.max_tokens is None else replace(sampling, max_tokens=sampling.max_tokens - spent.completion)

    def _move(self, piece: Piece, start: int) -> Piece:
        """A piece as a part of the whole answer, of which so many characters came before the engine was asked to go on."""
        if self._spent is None:
            return piece
        tokens = tuple(replace(token, start=token.start + start, end=token.end + start) for token in piece.tokens)
        return replace(piece, usage=piece.usage and self._total(piece.usage), tokens=tokens)

    def _total(self, usage: Usage) -> Usage:
        spent = self._spent
        return usage if spent is None else Usage(spent.prompt, spent.completion + usage.completion, spent.cached)


def raw_text(pieces: Iterable[Piece], escape: Callable[[str], str]) -> str:
    """What was written, with breaks where letters only look like a special token."""
    runs = [(special, "".join([piece.text for piece in run])) for special, run in groupby(pieces, attrgetter("special"))]
    return "".join([text if special else escape(text) for special, text in runs])


def _split_specials(text: str, specials: Iterable[str]) -> Iterator[Piece]:
    """A text as an engine gives it: special tokens are pieces of their own."""
    known = sorted((special for special in specials if special in text), key=len, reverse=True)
    for part in re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]:
        if part:
            yield Piece(part, special=part in known)
