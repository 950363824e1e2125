"""Conversations: turns, pauses, and words given to go on."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from callsmith.core.approval import Approved, Denied
from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.events import (
    CallReady,
    ConfirmationNeeded,
    ModelEvent,
    Stopped,
    Text,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
)
from callsmith.core.ports import Context
from callsmith.core.values import Call, Choice, Message, Request, Result, Tool, Usage
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.runtime.conversation.journal import add_results, join_messages
from callsmith.runtime.execute import Limits
from callsmith.tools.wrap import Confirmed
from tests.fakes import StrictFakeModel, calls, says
from tests.runtime.desk import ADA, BOB, SEE, Desk, Free, Stuck, tool_texts
from tests.waiting import until


def test_results_stand_in_the_order_of_their_calls():
    history = (Message.user("Hi"), Message.assistant(calls=[ADA, BOB, SEE]))
    one, two, three = (Message.tool(Result(call.id, call.name, call.id)) for call in (ADA, BOB, SEE))
    other = Message.tool(Result("c2", "send", "other"))
    assert add_results((*history, three), one, two) == (*history, one, two, three)
    assert add_results((*history, one, two), other) == (*history, one, other)
    message = Message.assistant("Yes.")
    assert join_messages((*history, two), (three, one, message)) == (*history, one, two, three, message)
    assert add_results(history[:1]) == history[:1]
    assert add_results((), one) == (one,)
    twins = (Message.assistant(calls=[Call("look"), Call("look")]),)
    nameless = [Message.tool(Result("", "look", text)) for text in ("a", "b")]
    assert add_results(twins, *nameless) == (*twins, *nameless)


@pytest.mark.req("R83")
@pytest.mark.req("R84")
@pytest.mark.req("R85")
@pytest.mark.req("R86")
async def test_turns_follow_one_another_with_all_that_was_said_and_done():
    model, desk = StrictFakeModel(calls(SEE, Call("look", {}, "c4"), text="Wait."), says("Two."), says("Bye.")), Free()
    conversation = Conversation(model, desk, instructions="Be brief.")
    reply = await conversation.send("How many?")
    assert (reply.text, reply.reason, reply.pending, reply.calls, reply.usage) == ("Two.", "stop", (), (), Usage(30, 8, 2, 1))
    assert (await conversation.send("Thanks.")).text == "Bye."
    assert " ".join(message.role for message in conversation.messages) == "user assistant tool tool assistant user assistant"
    assert conversation.messages[1].calls == (SEE, Call("look", {}, "c4"))
    assert model.asked[2].messages == (Message.system("Be brief."), *conversation.messages[:-1])
    assert {request.origin.session for request in model.asked} == {conversation.id}
    assert desk.done == ["look", "look"]
    assert not conversation.unfinished


async def test_a_turn_can_be_watched():
    conversation = Conversation(StrictFakeModel(calls(SEE), says("Yes.")), Free())
    events = [event async for event in conversation.stream("Look!")]
    kinds = [type(event) for event in events]
    assert kinds == [CallReady, Stopped, ToolStarted, ToolFinished, Text, Stopped, TurnEnded]


def test_a_program_without_an_event_loop_sends_all_the_same():
    conversation = Conversation(StrictFakeModel(says("Hello."), says("Bye.")))
    assert [conversation.send_sync(text).text for text in ("Hi", "Bye")] == ["Hello.", "Bye."]


async def test_settings_reach_the_model_and_the_tools():
    model, desk = StrictFakeModel(calls(SEE), says("Yes.")), Free()
    conversation = Conversation(
        model,
        desk,
        id="talk",
        subject="ada",
        choice=Choice("required"),
        policy="required_first_hop",
        messages=[Message.user("Earlier")],
    )
    await conversation.send("Look!")
    assert [message.content for message in model.asked[0].messages] == ["Earlier", "Look!"]
    assert (model.asked[0].choice, model.asked[0].policy) == (Choice("required"), "required_first_hop")
    assert (desk.contexts[0].conversation, desk.contexts[0].subject) == ("talk", "ada")


@pytest.mark.req("R83")
async def test_calls_of_the_callers_own_tools_are_handed_out_and_their_results_taken():
    model, desk = StrictFakeModel(calls(Call("measure", {"what": "x"}, "m1"), SEE), says("5 cm.")), Free()
    conversation = Conversation(model, desk, external=[Tool("measure")])
    events = [event async for event in conversation.stream("How long is x?")]
    assert not [event for event in events if isinstance(event, ConfirmationNeeded)]
    assert [event.call.name for event in events if isinstance(event, ToolStarted)] == ["look"]
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].reason == "calls"
    assert (conversation.calls, conversation.pending) == ((Call("measure", {"what": "x"}, "m1"),), ())
    with pytest.raises(UnknownName):
        await conversation.submit_results([Result("other", "measure", "4 cm")])
    with pytest.raises(UsageError, match="submit_results"):
        await conversation.send("Well?")
    reply = await conversation.submit_results([Result("m1", "measure", "5 cm")])
    assert (reply.text, reply.calls) == ("5 cm.", ())
    assert tool_texts(conversation) == [("m1", "5 cm"), ("c3", "done")]
    assert [message.role for message in conversation.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert desk.done == ["look"]


async def test_a_call_that_was_demanded_is_not_demanded_again_when_its_result_has_come():
    model = StrictFakeModel(calls(Call("measure", {}, "m1")), says("5."), calls(Call("measure", {}, "m2")))
    conversation = Conversation(model, external=[Tool("measure")], choice=Choice("required"))
    await conversation.send("How long?")
    await conversation.submit_results([Result("m1", "measure", 5)])
    await conversation.send("And now?")
    assert [request.choice.mode for request in model.asked] == ["required", "auto", "required"]


@pytest.mark.parametrize("decision", [Approved(), Denied("not now")])
async def test_nor_when_it_has_waited_for_a_person(decision: Approved | Denied):
    model = StrictFakeModel(calls(ADA), says("Well."), calls(BOB))
    conversation = Conversation(model, Desk(), choice=Choice("required"))
    await conversation.send("Tell Ada.")
    await conversation.decide("c1", decision)
    await conversation.send("Tell Bob.")
    assert [request.choice.mode for request in model.asked] == ["required", "auto", "required"]


async def test_without_any_toolset_every_call_is_the_callers():
    conversation = Conversation(StrictFakeModel(calls(Call("measure", {}, "m1")), says("5.")), external=[Tool("measure")])
    assert [call.id for call in (await conversation.send("How long?")).calls] == ["m1"]
    assert (await conversation.submit_results([Result("m1", "", 5)])).text == "5."


@pytest.mark.req("R91")
@pytest.mark.req("R93")
@pytest.mark.req("R94")
async def test_a_call_that_needs_a_word_waits_for_it_and_then_runs():
    model, desk = StrictFakeModel(calls(ADA, SEE), says("Sent.")), Desk()
    conversation = Conversation(model, desk)
    reply = await conversation.send("Tell Ada.")
    assert (reply.reason, [question.call for question in reply.pending], reply.pending[0].reason) == (
        "confirmation", [ADA], "it has side effects",
    )  # fmt: skip
    assert desk.done == ["look"]
    assert conversation.unfinished
    with pytest.raises(UsageError, match="decide"):
        await conversation.send("Well?")
    reply = await conversation.decide("c1", Approved())
    assert (reply.text, reply.pending, desk.done) == ("Sent.", (), ["look", "send Ada"])
    assert tool_texts(conversation) == [("c1", "done"), ("c3", "done")]


@pytest.mark.req("R94")
async def test_a_no_is_told_to_the_model():
    model, desk = StrictFakeModel(calls(ADA), says("Not sent.")), Desk()
    conversation = Conversation(model, desk)
    await conversation.send("Tell Ada.")
    await conversation.decide("c1", Denied("not now"))
    assert (tool_texts(conversation), desk.done) == ([("c1", "denied: not now")], [])


async def test_arguments_may_be_changed_by_whoever_approves():
    desk = Desk()
    conversation = Conversation(StrictFakeModel(calls(ADA), says("Sent.")), desk)
    await conversation.send("Tell Ada.")
    await conversation.decide("c1", Approved({"to": "Eve"}))
    assert desk.done == ["send Eve"]


async def test_calls_are_decided_one_by_one_or_together():
    for together in (False, True):
        desk = Desk()
        conversation = Conversation(StrictFakeModel(calls(ADA, BOB), says("Sent.")), desk)
        assert [question.call.id for question in (await conversation.send("Tell both.")).pending] == ["c1", "c2"]
        if together:
            reply = await conversation.resume({"c1": Approved(), "c2": Denied("no")})
        else:
            reply = await conversation.decide("c2", Denied("no"))
            assert (reply.reason, [question.call.id for question in reply.pending]) == ("confirmation", ["c1"])
            assert [question.call.id for question in (await conversation.resume()).pending] == ["c1"]
            reply = await conversation.decide("c1", Approved())
        assert (reply.text, desk.done) == ("Sent.", ["send Ada"])
        assert tool_texts(conversation) == [("c1", "done"), ("c2", "denied: no")]


async def test_a_word_that_is_remembered_holds_for_this_conversation():
    model, desk = StrictFakeModel(calls(ADA), says("Sent."), calls(BOB), says("Sent.")), Desk()
    conversation = Conversation(model, desk)
    await conversation.send("Tell Ada.")
    await conversation.decide("c1", Approved(remember=True))
    assert (await conversation.send("And Bob.")).pending == ()
    assert desk.done == ["send Ada", "send Bob"]
    assert (await Conversation(StrictFakeModel(calls(ADA)), desk).send("Tell Ada.")).pending


async def test_a_yes_that_comes_too_late_runs_nothing():
    model, desk = StrictFakeModel(calls(ADA), says("Too late.")), Desk(expires=time.time() - 1)
    conversation = Conversation(model, desk)
    await conversation.send("Tell Ada.")
    events = [event async for event in conversation.stream_resume({"c1": Approved(remember=True)})]
    assert isinstance(events[0], ToolFinished)
    assert (events[0].result.ok, events[0].result.code) == (False, "expired")
    assert (desk.done, conversation.pending) == ([], ())
    assert model.asked[-1].messages[-1].content.startswith("expired: ")
    assert conversation._journal.saved.granted == frozenset()


async def test_a_no_that_comes_too_late_is_a_no_all_the_same():
    desk = Desk(expires=time.time() - 1)
    conversation = Conversation(StrictFakeModel(calls(ADA), says("Not sent.")), desk)
    await conversation.send("Tell Ada.")
    await conversation.decide("c1", Denied("not now"))
    assert (tool_texts(conversation), desk.done) == ([("c1", "denied: not now")], [])


async def test_being_asked_again_gives_no_more_time():
    desk = Desk(expires=1000.0)
    conversation = Conversation(StrictFakeModel(calls(ADA, BOB), says("Sent.")), desk)
    await conversation.send("Tell both.")
    desk._expires = time.time() + 1000
    reply = await conversation.decide("c2", Denied())
    assert [question.expires for question in reply.pending] == [1000.0]


async def test_a_word_on_a_call_that_does_not_wait_is_an_error():
    conversation = Conversation(StrictFakeModel(calls(ADA), says("Sent.")), Desk())
    with pytest.raises(UsageError, match="nothing to go on with"):
        await conversation.resume()
    await conversation.send("Tell Ada.")
    with pytest.raises(UnknownName):
        await conversation.decide("c9", Approved())
    await conversation.decide("c1", Approved())
    with pytest.raises(UsageError):
        await conversation.decide("c1", Approved())


async def test_a_second_turn_while_one_runs_is_an_error():
    conversation = Conversation(StrictFakeModel(says("One."), says("Two.")))
    events = conversation.stream("Hi")
    await anext(events)
    with pytest.raises(UsageError, match="still running"):
        await conversation.send("Ho")
    with pytest.raises(UsageError, match="still running"):
        conversation.fork()
    assert [type(event) async for event in events][-1] is TurnEnded
    assert (await conversation.send("Ho")).text == "Two."


async def test_many_conversations_share_a_model():
    class Echo:
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            await asyncio.sleep(0.001)
            yield Text(request.messages[-1].content)
            yield Stopped("stop")

    talks = [Conversation(Echo()) for _ in range(20)]
    replies = await asyncio.gather(*(talk.send(str(number)) for number, talk in enumerate(talks)))
    assert [reply.text for reply in replies] == [str(number) for number in range(20)]
    assert len({talk.id for talk in talks}) == 20


async def test_a_fork_goes_its_own_way_and_needs_a_word_of_its_own():
    model, desk = StrictFakeModel(calls(ADA), says("Here."), says("There.")), Desk()
    conversation = Conversation(model, desk)
    await conversation.send("Tell Ada.")
    fork = conversation.fork()
    assert (fork.id != conversation.id, fork.messages, fork.pending) == (True, conversation.messages, conversation.pending)
    await conversation.decide("c1", Approved())
    assert [question.call.id for question in fork.pending] == ["c1"]
    await fork.decide("c1", Denied("no"))
    assert (conversation.messages[-1].content, fork.messages[-1].content, desk.done) == ("Here.", "There.", ["send Ada"])


async def test_a_cancelled_turn_leaves_no_call_without_a_result():
    model, desk = StrictFakeModel(calls(ADA, BOB, SEE, text="Now."), says("I see.")), Stuck()
    conversation = Conversation(model, desk)
    task = asyncio.create_task(conversation.send("Tell both."))
    await until(lambda: len(desk.done) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    results_by_id = dict(tool_texts(conversation))
    assert list(results_by_id) == ["c1", "c2", "c3"]
    assert results_by_id["c1"].endswith("it may or may not have taken effect")
    assert results_by_id["c2"] == "cancelled: the turn was stopped before send had answered"  # they run one after another
    assert results_by_id["c3"] == "cancelled: the turn was stopped before look had answered"
    assert (await conversation.send("What was that?")).text == "I see."


async def test_what_had_been_said_when_a_turn_was_cut_off_stays():
    conversation = Conversation(StrictFakeModel([Text("Well"), Text(", you"), Stopped("stop")], says("Yes.")))
    events = conversation.stream("Hi")
    await anext(events)
    await events.aclose()
    assert conversation.messages == (Message.user("Hi"), Message.assistant("Well"))
    assert (await conversation.send("Go on")).text == "Yes."


async def test_a_turn_of_which_nothing_came_is_as_if_it_had_not_been():
    conversation = Conversation(StrictFakeModel(RuntimeError("no"), calls(SEE), RuntimeError("no"), says("Yes.")), Free())
    with pytest.raises(RuntimeError):
        await conversation.send("Hi")
    assert conversation.messages == ()
    with pytest.raises(RuntimeError):
        await conversation.send("Look!")
    assert [message.role for message in conversation.messages] == ["user", "assistant", "tool"]
    assert conversation.unfinished
    assert (await conversation.resume()).text == "Yes."


async def test_a_call_that_cannot_even_be_offered_leaves_what_waits_as_it_is():
    conversation = Conversation(StrictFakeModel(calls(ADA)), Desk())
    await conversation.send("Tell Ada.")
    conversation._settings["choice"] = Choice.only("nothing")
    with pytest.raises(UnknownName):
        await conversation.decide("c1", Approved())
    assert [call.id for call in conversation._journal.open_calls] == ["c1"]


async def test_a_long_result_is_cut_in_a_turn_that_was_cut_off_too():
    class Long(Free):
        async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
            yield Result(call.id, call.name, "x" * 1000)

    conversation = Conversation(StrictFakeModel(calls(SEE)), Long(), limits=Limits(result_characters=10))
    events = conversation.stream("Look!")
    while not isinstance(await anext(events), ToolFinished):
        pass
    await events.aclose()
    assert tool_texts(conversation)[0][1].startswith("x" * 10 + "\n[Cut here")


async def test_nobody_is_asked_about_a_call_again_that_was_approved_and_made_in_the_same_turn():
    again = replace(ADA, id="c9")
    model, desk = StrictFakeModel(calls(ADA), calls(again), says("Sent."), calls(replace(ADA, id="c10"))), Free()
    conversation = Conversation(model, Confirmed(desk))
    assert [question.call for question in (await conversation.send("Write to Ada.")).pending] == [ADA]
    reply = await conversation.decide(ADA.id, Approved())
    assert (reply.text, reply.pending) == ("Sent.", ())
    assert len(desk.done) == 1
    first, second = (message.content for message in conversation.messages if message.role == "tool")
    assert second.startswith(first) and "not made again" in second
    assert [question.call.id for question in (await conversation.send("Once more.")).pending] == [
        "c10"
    ]  # a new turn is a new wish


async def test_a_call_that_failed_or_was_denied_is_asked_about_again():
    again = replace(ADA, id="c9")
    conversation = Conversation(StrictFakeModel(calls(ADA), calls(again)), Confirmed(Free()))
    await conversation.send("Write to Ada.")
    assert [question.call for question in (await conversation.decide(ADA.id, Denied("not now"))).pending] == [again]


async def test_the_last_turn_is_taken_back_and_what_waits_in_it(tmp_path: Path):
    journal = tmp_path / "talk.json"
    model = StrictFakeModel(says("One."), calls(ADA), says("Two."))
    conversation = Conversation(model, Confirmed(Desk()), journal=journal, instructions="Be brief.")
    await conversation.send("first")
    assert (await conversation.send("second")).pending
    assert await conversation.rewind() == "second"
    assert (conversation.messages, conversation.pending) == ((Message.user("first"), Message.assistant("One.")), ())
    await conversation.instruct("Be loud.")
    assert (await conversation.send("third")).text == "Two."
    assert model.asked[2].messages[0] == Message.system("Be loud.")
    assert Conversation.load(journal, model).instructions == "Be loud."
    assert [await conversation.rewind(), await conversation.rewind()] == ["third", "first"]
    with pytest.raises(UsageError, match="nothing was said yet"):
        await conversation.rewind()
