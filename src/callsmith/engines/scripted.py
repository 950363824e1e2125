"""An engine that replies from a script: for tests, documentation and demonstrations.

`scripted:Hello!` says Hello! to every prompt; `scripted:replies.jsonl` reads its replies from a file, one JSON string a line,
and starts over after the last. It records its latest requests and ignores the grammar.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from callsmith.core.errors import CallsmithError, Unavailable, UsageError
from callsmith.core.values import Sampling, Usage
from callsmith.engines.port import EngineInfo, Finished, Piece
from callsmith.engines.text import StopScanner
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay

Reply: TypeAlias = str | CallsmithError | tuple[Piece, ...]  # a text, an error to raise, or the exact pieces


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    prompt: Prompt
    sampling: Sampling
    grammar: Grammar | Relay | None


class Scripted:
    """Gives one reply a request, in pieces of `chunk` characters; the text of a special token is always a piece of its own.

    >>> engine = Scripted(["Hello there"], chunk=6)
    >>> async def pieces():
    ...     return [piece async for piece in engine.generate(Prompt("Hi"), Sampling())]
    >>> asyncio.run(pieces())[:2]
    [Piece(text='Hello ', special=False), Piece(text='there', special=False)]
    """

    def __init__(
        self,
        replies: Iterable[Reply],
        *,
        chunk: int = 4,
        template: str | None = None,
        specials: Mapping[str, int] | None = None,
        repeat: bool = False,
        pause: float = 0.0,
        recorded: int | None = None,
    ) -> None:
        self._replies = tuple(replies)
        self._chunk = chunk
        self._repeat = repeat
        self._pause = pause
        self._next = 0
        self._closed = False
        self.info = EngineInfo("scripted", template=template, specials=dict(specials or {}))
        self.asked: deque[RecordedRequest] = deque(maxlen=recorded)  # the latest ones, if not all

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | Relay | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        """The next reply, in pieces; a piece counts as a token."""
        if self._closed:
            raise UsageError("the engine is closed")
        self.asked.append(RecordedRequest(prompt, sampling, grammar))
        scanner, tokens = StopScanner(sampling.stop), 0
        reason: Literal["stop", "length"] = "stop"
        for piece in self._pieces(self._take()):
            if tokens == sampling.max_tokens:
                reason = "length"
                break
            tokens += 1
            for released in scanner.feed(piece):
                yield released
            if scanner.found:
                break
            await asyncio.sleep(self._pause)
        for released in scanner.close():
            yield released
        yield Finished(reason, Usage(await self.count(prompt.text), tokens), scanner.matched)

    async def count(self, text: str) -> int:
        return sum(1 if part in self.info.specials else -(-len(part) // self._chunk) for part in self._parts(text))

    async def close(self) -> None:
        self._closed = True

    def _take(self) -> str | tuple[Piece, ...]:
        if self._repeat and self._replies:
            self._next %= len(self._replies)
        if self._next >= len(self._replies):
            raise Unavailable(f"the script is over after {len(self._replies)} replies")
        reply = self._replies[self._next]
        self._next += 1
        if isinstance(reply, CallsmithError):
            raise reply
        return reply

    def _pieces(self, reply: str | tuple[Piece, ...]) -> Iterator[Piece]:
        if not isinstance(reply, str):
            yield from reply
            return
        for part in self._parts(reply):
            if part in self.info.specials:
                yield Piece(part, special=True)
            else:
                yield from (Piece(part[start : start + self._chunk]) for start in range(0, len(part), self._chunk))

    def _parts(self, text: str) -> list[str]:
        """The text, cut at its special tokens."""
        longest_first = sorted(self.info.specials, key=len, reverse=True)
        return re.split(f"({'|'.join(map(re.escape, longest_first))})", text) if longest_first else [text]


def open(rest: str, *, chunk: int = 4, pause: float = 0.0) -> Scripted:
    """The engine for a file of replies, or for one literal reply; it repeats itself."""
    return Scripted(_read(rest), chunk=chunk, repeat=True, pause=pause, recorded=64)


def _read(rest: str) -> list[str]:
    try:
        lines = Path(rest).read_text("utf-8").split("\n")  # not at U+2028 and the like, which may stand in a JSON string
    except (OSError, ValueError):  # no such file, or nothing a file could be called: the text itself
        return [rest]
    try:
        replies = [json.loads(line) for line in lines if line.strip()]
    except json.JSONDecodeError as error:
        raise UsageError(f"{rest} must hold one JSON string a line: {error}") from error
    if not replies or not all(isinstance(reply, str) for reply in replies):
        raise UsageError(f"{rest} must hold one JSON string a line")
    return replies
