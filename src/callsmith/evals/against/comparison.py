"""Asks a server and its reference the same questions, and measures what came back."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.evals.against.answers import KeptAnswer, ReferenceAnswers, keep
from callsmith.evals.against.measures import MEASURES, ComparedAnswer, Measure, difference
from callsmith.evals.against.questions import Question
from callsmith.evals.check.advice import ServerKind, identify
from callsmith.evals.check.dialects.dialect import CheckedDialect
from callsmith.evals.check.exchange import CheckedServer, Exchange, KeyWanted
from callsmith.evals.check.probe import Gone, Late, ProbeContext, describe
from callsmith.evals.check.run import MOST_LATE, first_model
from callsmith.evals.scores.statistics import Share

_BUSY: Final = frozenset({429, 503, 529})
_MOST_RETRIES, _LONGEST_PAUSE = 3, 30.0  # of a server that is busy; seconds


@dataclass(frozen=True, slots=True)
class AskedServer:
    """A server that is asked the questions: where it is, by which key, and for which model (the first that it lists)."""

    url: str
    key: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredShare:
    """A measure of a server: of so many answers that count so many are right. `wrong` has the reasons by question."""

    measure: Measure
    share: Share
    least: float | None
    categories: Mapping[str, Share]
    wrong: Mapping[str, str]
    reference: Share | None = None

    @property
    def value(self) -> float:
        return self.measure.scale(self.share.value)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval: Wilson's."""
        low, high = self.share.interval
        return self.measure.scale(low), self.measure.scale(high)

    @property
    def wanted(self) -> float | None:
        """The least that is good enough: no server has to be better than the reference."""
        if self.least is None or self.reference is None or not self.reference.n:
            return self.least
        return min(self.least, self.reference.value)

    @property
    def is_enough(self) -> bool:
        """Whether the server is as good as it has to be, as far as is known."""
        return self.wanted is None or not self.share.n or self.value >= self.wanted - 1e-9


@dataclass(slots=True)
class AgainstReport:
    """What came of it. Without a reference, the server was only asked."""

    url: str
    model: str
    server: ServerKind
    dialect: str
    reference: str = ""
    reference_model: str = ""
    questions: Sequence[Question] = ()
    answers: list[ComparedAnswer] = field(default_factory=list[ComparedAnswer])
    least: Mapping[str, float] = field(default_factory=dict[str, float])
    seconds: float = 0.0
    stopped: str = ""  # why not all questions were asked

    def measured(self) -> list[MeasuredShare]:
        """Every measure of what was answered so far."""
        return [self._measure(item) for item in MEASURES if self.reference or item.alone]

    def _measure(self, measure: Measure) -> MeasuredShare:
        judged = [(item, verdict) for item in self.answers if (verdict := measure.judge(item)) is not None]
        categories: dict[str, Share] = {}
        for item, verdict in judged:
            category = item.question.category
            categories[category] = categories.get(category, Share(0, 0)) + Share(not verdict, 1)
        own = [verdict for item in self.answers if (verdict := measure.judge_reference(item)) is not None]
        return MeasuredShare(
            measure,
            sum(categories.values(), Share(0, 0)),
            self.least.get(measure.name, measure.least),
            categories,
            {item.question.id: verdict for item, verdict in judged if verdict},
            Share(sum(not verdict for verdict in own), len(own)) if measure.alone and self.reference else None,
        )

    @property
    def remarks(self) -> dict[str, str]:
        """What the measures leave out, and what could not be finished."""
        found = {"stopped": self.stopped} if self.stopped else {}
        asked = len(self.questions)
        if len(self.answers) < asked:
            found["not asked"] = f"{asked - len(self.answers)} of {asked} questions"
        if unknown := self.unanswered_by_reference:
            first = next(item.reference.error for item in self.answers if item.reference and item.reference.error)
            found["no reference"] = f"the reference did not answer {unknown} of {asked} questions: {first}"
        if missing := sum(self.reference != "" and item.reference is None for item in self.answers):
            found["not recorded"] = f"{missing} of {asked} questions; they are not compared"
        if unsteady := sum(not item.is_steady for item in self.answers):
            found["unsteady"] = f"{unsteady} of {asked} answers were another one when asked again; their streams are not compared"
        if cut := sum(item.whole.is_cut or bool(item.reference and item.reference.is_cut) for item in self.answers):
            found["cut"] = (
                f"{cut} of {asked} answers had no more tokens, and their calls are not compared; --tokens gives them more"
            )
        return found

    @property
    def unanswered_by_reference(self) -> int:
        return sum(bool(item.reference and item.reference.error) for item in self.answers)

    @property
    def is_finished(self) -> bool:
        """Whether every question was put to both, and something could be compared: not all of the reference is cut."""
        compared = not self.reference or any(
            item.reference and not item.reference.error and not item.reference.is_cut for item in self.answers
        )
        return not self.stopped and len(self.answers) == len(self.questions) and compared and not self.unanswered_by_reference

    @property
    def failed(self) -> list[MeasuredShare]:
        """The measures in which the server is not good enough. One that is only asked must have answered, no more."""
        names = None if self.reference else ("answered",)
        return [item for item in self.measured() if not item.is_enough and (names is None or item.measure.name in names)]


async def compare_servers(
    server: AskedServer,
    questions: Sequence[Question],
    *,
    dialect: CheckedDialect,
    reference: AskedServer | ReferenceAnswers | None = None,
    tokens: int = 256,
    seconds: float = 120.0,
    concurrency: int = 4,
    least: Mapping[str, float] | None = None,
    on_start: Callable[[AgainstReport], None] | None = None,
    on_answer: Callable[[ComparedAnswer], None] | None = None,
) -> AgainstReport:
    """Ask a server, whole and as streams, and the reference. Without one the server is only asked, and nothing is streamed.

    `on_start` gets the report that is then filled, so that whoever cancels this has what was found so far.
    """
    began = time.perf_counter()
    if isinstance(reference, ReferenceAnswers) and not _find_answers(reference, questions):
        raise UsageError(f"{reference.path} has no answer to any of these questions: record it with these cases", field="against")
    async with AsyncExitStack() as stack:
        candidate = _Asking(dialect, tokens, seconds, "the server")
        report = AgainstReport(*await candidate.connect(server, stack), dialect.name, questions=questions, least=least or {})
        other: _Asking | ReferenceAnswers | None = None
        if isinstance(reference, ReferenceAnswers):
            other, report.reference, report.reference_model = reference, str(reference.path), reference.model
        elif reference is not None:
            other = _Asking(dialect, tokens, seconds, "the reference")
            report.reference, report.reference_model, _ = await other.connect(reference, stack)
        if on_start is not None:
            on_start(report)

        async def work(left: Iterator[Question]) -> None:
            for question in left:
                if report.stopped:
                    return
                answered = await _ask_both(question, candidate, other)
                report.stopped = candidate.stopped or (other.stopped if isinstance(other, _Asking) else "")
                report.answers.append(answered)
                report.seconds = time.perf_counter() - began
                if on_answer is not None:
                    on_answer(answered)

        left = iter(questions)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(questions))):
                    group.create_task(work(left))
        except* KeyWanted as refused:
            raise _first(refused) from None
    places = {question.id: place for place, question in enumerate(questions)}
    report.answers.sort(key=lambda item: places[item.question.id])
    return report


class _Asking:
    """A server that is being asked. It is given up when so many answers in a row are late, or nobody is there any more."""

    def __init__(self, dialect: CheckedDialect, tokens: int, seconds: float, name: str) -> None:
        self._dialect, self._tokens, self._seconds, self._name = dialect, tokens, seconds, name
        self._context: ProbeContext | None = None
        self._lost = 0  # answers in a row
        self._has_let_in = False  # with the key that it was given
        self.stopped = ""

    async def connect(self, server: AskedServer, stack: AsyncExitStack) -> tuple[str, str, ServerKind]:
        """Its address, its model, and what kind of server it is."""
        target = await stack.enter_async_context(CheckedServer(server.url, server.key, seconds=self._seconds))
        listed = await target.models()
        model = server.model or first_model(target, listed)
        self._context = ProbeContext(target, self._dialect, model, self._tokens)
        return target.url, model, identify(listed)

    async def ask(self, question: Question, *, stream: bool) -> KeptAnswer:
        """The answer. A server that is busy is asked again, a few times."""
        context = self._context
        assert context is not None
        body = self._dialect.write(context.model, question.asked(self._tokens), stream=stream)
        body.pop("stream_options", None)
        try:
            exchange = await self._send(context, body)
        except (Late, Gone) as lost:
            self._lost += 1
            if self._lost >= MOST_LATE:
                self.stopped = f"{self._lost} answers of {self._name} in a row did not come: {lost}"
            return KeptAnswer(question.id, question.digest, error=str(lost))
        finally:
            context.target.exchanges.clear()
        self._lost = 0
        if exchange.status in (401, 403) and not self._has_let_in:
            raise KeyWanted(context.target.url, exchange.status)
        self._has_let_in = True
        if exchange.status == 200 and not (kept := keep(question, self._dialect.read(exchange, stream=stream))).is_none:
            return kept
        return KeptAnswer(question.id, question.digest, error=describe(exchange))

    async def _send(self, context: ProbeContext, body: Json) -> Exchange:
        for attempt in range(_MOST_RETRIES):
            exchange = await context.send(body)
            if exchange.status not in _BUSY:
                return exchange
            await asyncio.sleep(_pause(exchange.headers.get("retry-after", ""), attempt))
        return await context.send(body)


def _find_answers(reference: ReferenceAnswers, questions: Sequence[Question]) -> list[KeptAnswer]:
    """The answers to these questions; each is looked at, for one to another question is an error."""
    return [answer for question in questions if (answer := reference.to(question))]


def _first(group: BaseExceptionGroup[KeyWanted]) -> KeyWanted:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _pause(told: str, attempt: int) -> float:
    """How long to wait for a server that is busy: as long as it says, within bounds."""
    return min(float(told), _LONGEST_PAUSE) if told.isascii() and told.isdigit() else 2.0**attempt


async def _ask_both(question: Question, server: _Asking, reference: _Asking | ReferenceAnswers | None) -> ComparedAnswer:
    if reference is None:
        return ComparedAnswer(question, await server.ask(question, stream=False))
    if isinstance(reference, ReferenceAnswers):
        return await _ask_twice(question, server, reference.to(question))
    async with asyncio.TaskGroup() as group:
        theirs = group.create_task(reference.ask(question, stream=False))
        ours = group.create_task(_ask_twice(question, server, None))
    return replace(ours.result(), reference=theirs.result())


async def _ask_twice(question: Question, server: _Asking, reference: KeptAnswer | None) -> ComparedAnswer:
    """Ask for a whole answer and for a stream. Where they differ, each is asked for again: it may be another one every time."""
    whole, streamed = await server.ask(question, stream=False), await server.ask(question, stream=True)
    if whole.error or streamed.error or not difference(whole, streamed):
        return ComparedAnswer(question, whole, streamed, reference)
    again = await server.ask(question, stream=False), await server.ask(question, stream=True)
    steady = not difference(whole, again[0]) and not difference(streamed, again[1])
    return ComparedAnswer(question, whole, streamed, reference, is_steady=steady)
