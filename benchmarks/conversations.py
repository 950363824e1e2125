"""Twenty conversations with the real model: is each turn right, small talk and knowledge beside tools included?

Each has three to five turns and one to five tools; what acts needs approval, which is given whenever it is asked for. A turn is
right if the answer says what it must, the calls that it takes have run, nothing else was done, and nothing was called where
nothing is to be called. Ten conversations may be looked at while something is tuned; the other ten are held out.

    CONVERSATIONS_VERBOSE=1 CONVERSATIONS_HALF=tuning python -m benchmarks conversations
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from benchmarks.conversation_turns import WITHOUT_CALLS, Kind, Talk, Turn, call_text, turn_faults
from benchmarks.conversations_held_out import HELD_OUT
from benchmarks.conversations_tuning import TUNING
from benchmarks.journeys import LONGEST
from benchmarks.table import show
from callsmith import Approved, Conversation, Denied, Functions, Limits, Sampling, open_model
from callsmith.core.errors import CallsmithError
from callsmith.core.events import ModelEvent, RunEvent, ToolStarted, TurnEnded
from callsmith.core.ports import Model, ModelInfo, model_info
from callsmith.core.types.model_step import ModelStep
from callsmith.core.values import Request
from callsmith.evals.cases.sample import Half, half_of
from callsmith.tools.wrap import Confirmed

TALKS = (*TUNING, *HELD_OUT)
VERBOSE = "CONVERSATIONS_VERBOSE"  # in the environment: print each turn
HALF = "CONVERSATIONS_HALF"  # in the environment: "tuning" or "held-out", if not both
MOST_APPROVALS = 6  # a turn; what asks for more is refused
MOST_PAUSES = 12  # a turn, after which the conversation is given up
HEADS = ("", "turns", "right", "%", "wholly right", "called, unasked", "asks a turn", "s a turn")


class Explained:
    """A model that counts how often it was asked, attempts that were taken back included; else the same one."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.asked = 0

    @property
    def info(self) -> ModelInfo:
        return model_info(self._model)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        return self._model.stream(replace(request, explain=self._count))

    def _count(self, step: ModelStep) -> None:
        self.asked += 1


@dataclass(slots=True)
class Outcome:
    """What became of a turn: the answer, the calls that the model made, and those of them that ran.

    `faults` says what is wrong with it; it is right where there are none.
    """

    talk: Talk
    turn: Turn
    answer: str = ""
    made: Sequence[str] = ()
    ran: Sequence[str] = ()
    faults: Sequence[str] = ()
    asked: int = 0
    seconds: float = 0.0

    @property
    def called_unasked(self) -> bool:
        return bool(self.made) and self.turn.kind in WITHOUT_CALLS


async def hold(model: Model, talk: Talk) -> list[Outcome]:
    """Hold a conversation and look at what came of each turn. The later turns follow whatever became of the earlier ones."""
    world, explained = talk.world(), Explained(model)
    functions = Functions(*(getattr(world, name) for name in talk.tools.split()))
    conversation = Conversation(
        explained, Confirmed(functions), limits=Limits(iterations=6), sampling=Sampling(seed=0, max_tokens=LONGEST)
    )
    outcomes: list[Outcome] = []
    for turn in talk.turns:
        begun, requests_before, done, messages_before = (
            time.perf_counter(),
            explained.asked,
            len(world.done),
            len(conversation.messages),
        )
        outcome = Outcome(talk, turn)
        try:
            outcome.answer, outcome.ran = await _answer(conversation, turn.text)
            outcome.made = [call_text(call) for message in conversation.messages[messages_before:] for call in message.calls]
            outcome.faults = list(turn_faults(turn, outcome.answer, outcome.made, outcome.ran, world.done[done:]))
        except CallsmithError as error:
            outcome.faults = [f"failed: {error}"]
        outcome.asked, outcome.seconds = explained.asked - requests_before, time.perf_counter() - begun
        outcomes.append(outcome)
    return outcomes


async def _answer(conversation: Conversation, text: str) -> tuple[str, list[str]]:
    """The answer to what is said, and the calls that ran. Whoever is asked for approval gives it."""
    calls: list[str] = []
    ended = await _followed(conversation.stream(text), calls)
    for pause in range(MOST_PAUSES):
        if not conversation.pending:
            break
        decision = Approved() if pause < MOST_APPROVALS else Denied("that is enough")
        ended = await _followed(
            conversation.stream_resume({question.call.id: decision for question in conversation.pending}), calls
        )
    is_answered = bool(ended.messages) and ended.messages[-1].role == "assistant"
    return ended.text.strip() if is_answered else "", calls


async def _followed(events: AsyncIterator[RunEvent], calls: list[str]) -> TurnEnded:
    ended = TurnEnded((), "stop")
    async for event in events:
        match event:
            case ToolStarted(call):
                calls.append(call_text(call))
            case TurnEnded():
                ended = event
            case _:
                pass
    return ended


def row_of(title: str, outcomes: Sequence[Outcome], *, are_whole: bool = False) -> tuple[object, ...]:
    """A line of the table. `are_whole`: these are all turns of their conversations."""
    talks = {outcome.talk.id for outcome in outcomes}
    faulty = {outcome.talk.id for outcome in outcomes if outcome.faults}
    right, turns = sum(not outcome.faults for outcome in outcomes), len(outcomes)
    return (
        title,
        turns,
        right,
        100 * right / turns,
        f"{len(talks - faulty)} of {len(talks)}" if are_whole else "",
        sum(outcome.called_unasked for outcome in outcomes),
        sum(outcome.asked for outcome in outcomes) / turns,
        sum(outcome.seconds for outcome in outcomes) / turns,
    )


def rows_of(outcomes: Sequence[Outcome]) -> list[tuple[object, ...]]:
    """The lines of the table: each half, and its turns by kind."""
    rows: list[tuple[object, ...]] = []
    for half in get_args(Half):
        of_half = [outcome for outcome in outcomes if half_of(outcome.talk.id) == half]
        rows += [row_of(half, of_half, are_whole=True)] if of_half else []
        for kind in get_args(Kind):
            of_kind = [outcome for outcome in of_half if outcome.turn.kind == kind]
            rows += [row_of(f"  {kind}", of_kind)] if of_kind else []
    return rows


def chosen(half: str) -> tuple[Talk, ...]:
    """The conversations of one half; without a name, all."""
    if half and half not in get_args(Half):
        sys.exit(f"{HALF} must be {' or '.join(get_args(Half))}, not {half!r}")
    return tuple(talk for talk in TALKS if half in ("", half_of(talk.id)))


async def measure(model: Model, talks: Sequence[Talk], report: Callable[[Outcome], None] | None = None) -> list[Outcome]:
    """Hold the conversations, one after another."""
    outcomes: list[Outcome] = []
    for talk in talks:
        for outcome in await hold(model, talk):
            outcomes.append(outcome)
            if report is not None:
                report(outcome)
    return outcomes


def tell(outcome: Outcome) -> None:
    """Print a turn."""
    print(
        f"{outcome.talk.id}, {outcome.turn.kind}: {outcome.turn.text}\n   {outcome.made}\n   {outcome.answer[:200]!r}\n"
        f"   {outcome.faults or 'right'}",
        flush=True,
    )


async def _main(name: str, talks: Sequence[Talk], report: Callable[[Outcome], None] | None) -> None:
    model = open_model(name)
    try:
        outcomes = await measure(model, talks, report)
    finally:
        await model.close()
    show(f"{name}: turns of conversations that are right", HEADS, rows_of(outcomes))


def main(model: str) -> None:
    asyncio.run(_main(model, chosen(os.environ.get(HALF, "")), tell if VERBOSE in os.environ else None))
