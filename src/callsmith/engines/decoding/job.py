"""A request to an engine that decodes in this process, and how its answer gets to the event loop that waits for it."""

import asyncio
from collections.abc import Sequence as Tokens
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from callsmith.core.capability.origin import Origin
from callsmith.core.errors import Unavailable, UsageError
from callsmith.core.values import Sampling, Usage
from callsmith.engines.decoding.batch import Flag, new_flag
from callsmith.engines.decoding.compiler import ActiveConstraint, TriggeredConstraint
from callsmith.engines.decoding.pictures import Picture
from callsmith.engines.decoding.sequence import Sequence
from callsmith.engines.decoding.trials import Cancellation
from callsmith.engines.decoding.vocabulary import Vocabulary
from callsmith.engines.port import Finished, Piece
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay

AnswerPart: TypeAlias = Piece | Finished | BaseException
_Parts: TypeAlias = "tuple[GenerationJob, Tokens[AnswerPart]]"
Constraint: TypeAlias = ActiveConstraint | TriggeredConstraint


@dataclass(slots=True)
class Delivery:
    """Takes parts of answers to the event loops that wait for them. It is for the thread of the engine alone.

    `unsent` are the parts that go with the next delivery, `ended` the requests for which nothing more is to be decoded.
    """

    unsent: "list[_Parts]" = field(default_factory=list["_Parts"])
    ended: "list[GenerationJob]" = field(default_factory=list["GenerationJob"])

    def deliver(self) -> None:
        """Hand everything that was sent to the event loops: once for each, since waking one up costs more than the rest."""
        unsent, self.unsent = self.unsent, []
        by_loop: dict[asyncio.AbstractEventLoop, list[_Parts]] = {}
        for job, parts in unsent:
            by_loop.setdefault(job.loop, []).append((job, parts))
        for loop, answers in by_loop.items():
            try:
                loop.call_soon_threadsafe(_receive, answers)
            except RuntimeError:  # the event loop is closed: no one can receive the answers
                for job, _ in answers:
                    job.cancel()


def _receive(answers: "list[_Parts]") -> None:
    """Take what was delivered, in the thread of the event loop."""
    for job, parts in answers:
        for part in parts:
            job.outbox.put_nowait(part)


@dataclass(slots=True, eq=False)
class GenerationJob:
    """A request: what is asked for, and the queue its answer goes to. It fits `batch.BatchJob`."""

    prompt: Prompt
    sampling: Sampling
    grammar: Grammar | Relay | None
    vocabulary: Vocabulary
    fast_forward: bool
    delivery: Delivery
    loop: asyncio.AbstractEventLoop
    outbox: asyncio.Queue[AnswerPart] = field(default_factory=asyncio.Queue[AnswerPart])
    flag: Flag = field(default_factory=new_flag)
    tokens: list[int] = field(default_factory=list[int])
    pictures: list[Picture] = field(default_factory=list[Picture])  # held until nothing of them is to be decoded
    room: int = 0
    constraint: Future[Constraint] | None = None
    checks: list[Future[None]] = field(default_factory=list[Future[None]])
    cancellation: Cancellation = field(default_factory=Cancellation)
    sequence: Sequence | None = None
    usage: Usage = Usage()  # of an answer that has come to its end

    def cancel(self) -> None:
        self.flag[0] = b"1"
        for compiling in (self.constraint, *self.checks):
            if compiling:
                compiling.cancel()
        self.cancellation.set()

    @property
    def is_cancelled(self) -> bool:
        return self.flag[0] == b"1"

    @property
    def origin(self) -> Origin:
        return self.prompt.origin

    @property
    def exact(self) -> bool:
        return self.sampling.seed is not None

    @property
    def ready(self) -> bool:
        return self.constraint is None or self.constraint.done()

    def begin(self) -> Sequence:
        constraint = self.constraint.result() if self.constraint else None
        if constraint is not None:
            self._prefill(constraint)
        self.sequence = Sequence(
            self.vocabulary,
            self.sampling,
            room=self.room,
            prompt=self.tokens,
            constraint=constraint,
            fast_forward=self.fast_forward,
        )
        return self.sequence

    def _prefill(self, constraint: Constraint) -> None:
        """Advance a constraint by the beginning of the answer that the prompt holds."""
        for token in chain.from_iterable(map(self.vocabulary.tokenize, self.prompt.prefilled)):
            if not constraint.admits(token):
                raise UsageError("the beginning of the answer is none that its schema or its tools allow", field="messages")
            if isinstance(constraint, TriggeredConstraint):
                constraint.consume(token)

    def choosing(self) -> None:
        while self.checks:  # what was not checked by now is compiled when it is chosen; those that may be costly have been
            if not (check := self.checks.pop()).cancel() and check.done():
                check.result()

    def post(self, pieces: list[Piece]) -> None:
        self.delivery.unsent.append((self, [*pieces]))

    def end(self, end: Finished | BaseException | None) -> None:
        for check in self.checks:
            check.cancel()
        self.usage = end.usage if isinstance(end, Finished) else Usage()
        self.delivery.ended.append(self)
        # Whoever has cancelled it waits no longer; who waits all the same was interrupted because the engine is being closed.
        self.delivery.unsent.append((self, [closed_error() if end is None else end]))


def closed_error() -> Unavailable:
    return Unavailable("the engine was closed", retryable=True)
