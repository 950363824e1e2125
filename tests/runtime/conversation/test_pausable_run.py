"""The one loop that pauses, is answered and goes on."""

from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.approval import Approved, Denied
from callsmith.core.events import CallDeferred, ConfirmationNeeded, RunEvent, ToolFinished, TurnEnded
from callsmith.core.ports import Context
from callsmith.core.serialize import Saved
from callsmith.core.values import Call, Choice, Message, Request, Result, Tool
from callsmith.runtime.conversation.journal import Journal
from callsmith.runtime.conversation.pausable_run import PausableRun, PauseAnswer, Questions
from tests.fakes import StrictFakeModel, calls, says
from tests.runtime.desk import ADA, BOB, SEE, Desk

HELLO = (Message.user("Hi"),)
BOOK = Tool("book")
BOOKING = Call("book", {}, "c9")


async def collect(run: PausableRun, choice: Choice = Choice()) -> list[RunEvent]:
    return [event async for event in run.events(Request((), choice=choice), Context())]


def run_of(model: StrictFakeModel, desk: Desk | None = None, **options: Any) -> PausableRun:
    return PausableRun(model, desk, Journal(Saved("talk", HELLO)), **options)


def kinds(events: list[RunEvent], *wanted: type) -> list[type]:
    return [type(event) for event in events if isinstance(event, wanted)]


async def test_without_an_answer_the_run_ends_where_it_pauses():
    model, desk = StrictFakeModel(calls(ADA, SEE)), Desk()
    run = run_of(model, desk)
    events = await collect(run)
    assert isinstance(events[-1], TurnEnded) and events[-1].reason == "confirmation"
    assert [question.call for question in run.journal.pending] == [ADA]
    assert desk.done == ["look"]


@pytest.mark.parametrize(("decision", "done"), [(Approved(), ["send Ada"]), (Denied("no"), [])])
async def test_a_pause_that_is_answered_goes_on_to_one_end(decision: Any, done: list[str]):
    rounds: list[Questions] = []

    async def answer(questions: Questions, open_calls: tuple[Call, ...]) -> PauseAnswer:
        rounds.append(questions)
        return PauseAnswer(decisions={question.call.id: decision for question in questions})

    model, desk = StrictFakeModel(calls(ADA), says("Ready.")), Desk()
    events = await collect(run_of(model, desk, answer_pause=answer))
    assert desk.done == done
    assert kinds(events, ConfirmationNeeded, TurnEnded) == [ConfirmationNeeded, TurnEnded]
    ended = events[-1]
    assert isinstance(ended, TurnEnded)
    assert [message.role for message in ended.messages] == ["assistant", "tool", "assistant"]
    assert (ended.reason, ended.text, ended.usage.prompt, len(rounds)) == ("stop", "Ready.", 30, 1)


async def test_results_of_the_caller_are_in_the_history_and_no_events_unless_that_is_wanted():
    for reports in (False, True):

        async def answer(questions: Questions, open_calls: tuple[Call, ...], reports: bool = reports) -> PauseAnswer:
            results = [Result(call.id, call.name, "seat 4") for call in open_calls]
            return PauseAnswer(results, reports_results=reports)

        model = StrictFakeModel(calls(BOOKING), says("Seat 4."))
        events = await collect(run_of(model, deferred=(BOOK,), answer_pause=answer))
        expected = [CallDeferred, ToolFinished] if reports else [CallDeferred]
        assert kinds(events, CallDeferred, ToolFinished) == expected
        assert [message.content for message in model.asked[1].messages] == ["Hi", "", "seat 4"]


async def test_the_model_may_be_made_to_answer_without_further_calls():
    async def answer(questions: Questions, open_calls: tuple[Call, ...]) -> PauseAnswer:
        return PauseAnswer([Result(call.id, call.name, "full") for call in open_calls], may_call=False)

    model = StrictFakeModel(calls(BOOKING), says("It is full."))
    await collect(run_of(model, deferred=(BOOK,), answer_pause=answer))
    assert [request.choice.mode for request in model.asked] == ["auto", "none"]


async def test_a_call_that_is_required_is_required_once():
    async def answer(questions: Questions, open_calls: tuple[Call, ...]) -> PauseAnswer:
        return PauseAnswer([Result(call.id, call.name, "done") for call in open_calls])

    model = StrictFakeModel(calls(BOOKING), says("Done."))
    await collect(run_of(model, deferred=(BOOK,), answer_pause=answer), Choice("required"))
    assert [request.choice.mode for request in model.asked] == ["required", "auto"]


async def test_questions_are_reported_as_they_were_stored_and_behind_everything_else():
    async def store(questions: Questions) -> Questions:
        return tuple(replace(question, expires=7.0) for question in questions)

    events = await collect(run_of(StrictFakeModel(calls(ADA, SEE, BOB)), Desk(), store_questions=store))
    assert kinds(events, ConfirmationNeeded, ToolFinished) == [ToolFinished, ConfirmationNeeded, ConfirmationNeeded]
    assert {event.expires for event in events if isinstance(event, ConfirmationNeeded)} == {7.0}


async def test_decisions_that_come_with_the_history_count_for_its_open_calls_alone():
    history = (*HELLO, Message.assistant(calls=[ADA]))
    desk = Desk()
    journal = Journal(Saved("talk", history, decisions={"c1": Approved(), "c2": Approved()}))
    run = PausableRun(StrictFakeModel(calls(BOB)), desk, journal)
    events = await collect(run)
    assert desk.done == ["send Ada"]
    assert [event.call for event in events if isinstance(event, ConfirmationNeeded)] == [BOB]
