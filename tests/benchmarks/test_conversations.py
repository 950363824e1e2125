"""Conversations of the benchmark: a right one is right in every turn, and what is wrong with others is seen."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest

from benchmarks.conversation_turns import Kind, Talk
from benchmarks.conversations import TALKS, Outcome, chosen, hold, measure, rows_of
from benchmarks.conversations_held_out import HELD_OUT
from benchmarks.conversations_tuning import TUNING
from callsmith.core.events import ModelEvent
from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.evals.cases.sample import half_of
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from tests.benchmarks.right_answers import RIGHT, Answered, call
from tests.fakes import FakeModel, StrictFakeModel, calls, says

BY_ID = {talk.id: talk for talk in TALKS}


def steps(answers: Sequence[Answered]) -> list[list[ModelEvent]]:
    """What a model says that gives these answers: first all calls of one, then its words."""
    output: list[list[ModelEvent]] = []
    for turn, (words, *made) in enumerate(answers):
        numbered = [replace(one, id=f"c{turn}_{place}") for place, one in enumerate(made)]
        output += [calls(*numbered)] if numbered else []
        output.append(says(words))
    return output


async def held(talk: Talk, *answers: Answered) -> list[Outcome]:
    return await hold(StrictFakeModel(*steps(answers)), talk)


async def faults_of_turn(id: str, number: int, *instead: Answered) -> Sequence[str]:
    """What is wrong with this turn if it is answered so, after right ones."""
    talk = BY_ID[id]
    begun = replace(talk, turns=talk.turns[: number + 1])
    return (await held(begun, *RIGHT[id][:number], *instead))[-1].faults


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.id)
async def test_a_conversation_that_is_right_in_every_turn_has_no_faults(talk: Talk):
    outcomes = await held(talk, *RIGHT[talk.id])
    assert [(outcome.turn.text, outcome.faults) for outcome in outcomes if outcome.faults] == []
    assert [len(outcome.ran) for outcome in outcomes] == [len(answered) - 1 for answered in RIGHT[talk.id]]


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.id)
async def test_a_model_that_only_talks_is_wrong_wherever_something_is_to_be_found_out_or_done(talk: Talk):
    for outcome in await hold(FakeModel(says("Of course, it is done, as always.")), talk):
        if outcome.turn.kind not in ("small talk", "nothing fits"):
            assert outcome.faults, outcome.turn.text


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.id)
async def test_calls_that_nobody_asked_for_are_wrong(talk: Talk):
    name = talk.tools.split()[0]
    for turn in talk.turns:
        only = replace(talk, turns=(turn,))
        (outcome,) = await hold(StrictFakeModel(calls(Call(name, {}, "c1")), says("Of course.")), only)
        if turn.kind in ("small talk", "knowledge", "abilities", "nothing fits"):
            assert outcome.called_unasked and any("called, unasked" in fault for fault in outcome.faults)


@pytest.mark.parametrize(
    ("id", "number", "instead", "fault"),
    [
        ("bakery", 0, ("Hello!", call("order", shop="bakery", what="a cake")), "called, unasked"),
        ("bakery", 0, ('{"name": "opening_hours", "arguments": {"shop": "bakery"}}',), "a call as words"),
        ("bakery", 0, ('Sure: {"name": "opening_hours", "arguments": {}}',), "a call as words"),
        ("bakery", 0, ('opening_hours(shop="bakery")',), "a call as words"),
        ("bakery", 0, ("I'm sorry, I can't assist with that.",), "says "),
        ("bakery", 0, ("",), "empty"),
        ("bakery", 1, ("The bakery opens at 6.", call("opening_hours", shop="bakery")), "does not say"),
        ("bakery", 1, ("The bakery opens at 5:40.",), "did not call"),
        ("bakery", 2, ("I have ordered two loaves.",), "did not order"),
        ("bakery", 2, ("Done.", call("order", shop="bakery", what="20 loaves")), "did, unasked: order bakery: 20"),
        ("bakery", 3, ("Done.", call("order", shop="bakery", what="two loaves")), "did not order"),
        (
            "bakery",
            2,
            ("Done.", call("order", shop="bakery", what="2 loaves"), call("order", shop="bakery", what="two loaves of rye")),
            "did more than was asked",
        ),
        ("library", 1, ("On R-208.", call("renew_loan", loan_id="L-1")), "did, unasked: renew L-1"),
        ("parcels", 3, ("I have baked a cake for her.",), "says "),
        ("music", 3, ("Both done.", call("play_song", title="Copper Rain")), "did not volume"),
        ("school", 2, ("25 words, and task 7.", call("homework", subject="Latin")), "did not call homework"),
    ],
)
async def test_what_is_wrong_with_a_turn_is_said(id: str, number: int, instead: Answered, fault: str):
    faults = await faults_of_turn(id, number, instead)
    assert any(fault in item for item in faults), faults


async def test_an_earlier_result_may_be_looked_up_again():
    assert not await faults_of_turn("library", 1, ("R-208.", call("search_books", query="Kern")))


async def test_a_turn_that_fails_is_wrong_and_the_next_one_is_held():
    talk = replace(BY_ID["bakery"], turns=BY_ID["bakery"].turns[:2])
    model = LocalModel(Scripted(["Hello!"]), format_named("hermes"), Template(CHATML))
    first, second = await hold(model, talk)
    assert (first.faults, first.asked) == ([], 1)
    assert "failed: " in second.faults[0]


async def test_a_model_that_orders_for_ever_comes_to_an_end():
    endless = [calls(call("order", shop="bakery", what=f"{number} loaves")) for number in range(40)]
    talk = replace(BY_ID["bakery"], turns=BY_ID["bakery"].turns[2:4])
    first, second = await hold(FakeModel(*endless), talk)
    assert len(first.ran) == 6 and first.faults
    assert "waiting" in second.faults[0]


async def test_asks_of_the_model_are_counted_with_those_that_make_calls():
    written = '<tool_call>\n{"name": "opening_hours", "arguments": {"shop": "bakery"}}\n</tool_call>'
    model = LocalModel(Scripted(["Hello!", written, "It opens at 5:40."]), format_named("hermes"), Template(CHATML))
    outcomes = await hold(model, replace(BY_ID["bakery"], turns=BY_ID["bakery"].turns[:2]))
    assert [(outcome.asked, outcome.faults) for outcome in outcomes] == [(1, []), (2, [])]


async def test_halves_are_reported_each_for_itself():
    output: list[Outcome] = []
    outcomes = await measure(FakeModel(says("Hello.")), [BY_ID["bakery"], BY_ID["butcher"], BY_ID["car"]], output.append)
    assert len(output) == len(outcomes) == 14
    rows = {row[0]: row for row in rows_of(outcomes) if not str(row[0]).startswith(" ")}
    assert rows["tuning"][:5] == ("tuning", 5, 2, 40.0, "0 of 1")
    assert rows["held-out"][1:3] == (9, 3)  # greeted and thanked, and what cannot be done was not done
    assert len(rows_of([outcome for outcome in outcomes if outcome.talk.id == "bakery"])) == 5


def test_each_half_has_ten_conversations_of_every_kind():
    assert chosen("tuning") == TUNING and chosen("held-out") == HELD_OUT and chosen("") == TALKS
    assert len(BY_ID) == 20 and RIGHT.keys() == BY_ID.keys()
    for talks, half in ((TUNING, "tuning"), (HELD_OUT, "held-out")):
        assert len(talks) == 10
        assert {half_of(talk.id) for talk in talks} == {half}
        kinds = Counter(turn.kind for talk in talks for turn in talk.turns)
        assert all(kinds[kind] >= 2 for kind in get_args(Kind)), kinds
        assert all(3 <= len(talk.turns) <= 5 and 1 <= len(talk.tools.split()) <= 5 for talk in talks)
    with pytest.raises(SystemExit, match="tuning or held-out"):
        chosen("other")
