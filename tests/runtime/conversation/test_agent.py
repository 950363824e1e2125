"""Agents: conversations by description, and one agent as the tool of another."""

import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from callsmith.core.approval import Approved, Denied
from callsmith.core.errors import UnknownName
from callsmith.core.events import ConfirmationNeeded, ModelEvent, Stopped, Text, ToolProgress, ToolStarted
from callsmith.core.ports import Context
from callsmith.core.values import Call, Message, Request, Result, Tool
from callsmith.runtime.conversation.agent import NOBODY_TO_ASK, Agent
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.runtime.execute import Limits
from tests.fakes import StrictFakeModel, calls, says
from tests.runtime.desk import ADA, SEE, Desk, Free

ASK = Call("clerk", {"task": "Tell Ada."}, "a1")


@pytest.mark.req("R100")
async def test_an_agent_brings_its_instructions_tools_and_manners():
    model, desk = StrictFakeModel(calls(SEE), says("I see.")), Free()
    agent = Agent("clerk", "Does things.", "Be brief.", desk, policy="required_first_hop", guards=(), limits=Limits(iterations=1))
    assert (await agent.conversation(model, subject="ada").send("Look!")).text == "I see."
    assert model.asked[0].messages == (Message.system("Be brief."), Message.user("Look!"))
    assert model.asked[0].policy == "required_first_hop"
    assert (desk.done, desk.contexts[0].subject) == (["look"], "ada")
    with pytest.raises(dataclasses.FrozenInstanceError):
        agent.name = "other"  # type: ignore[misc]


@pytest.mark.req("R100")
async def test_an_agents_guards_are_put_around_the_model():
    again = [calls(Call("look", {}, f"c{number}")) for number in range(5)]
    model = StrictFakeModel(*again, says("I see."))
    agent = Agent("clerk", tools=Free(), guards=("repeats",))
    await agent.conversation(model).send("Look!")
    assert len(model.asked) < 6
    with pytest.raises(UnknownName):
        Agent("clerk", guards=("mastiff",)).conversation(model)


async def test_a_saved_conversation_with_an_agent_goes_on(tmp_path: Path):
    path, desk = tmp_path / "talk.json", Desk()
    agent = Agent("clerk", instructions="Be brief.", tools=desk)
    await agent.conversation(StrictFakeModel(calls(ADA)), journal=path).send("Tell Ada.")
    assert (await agent.load(path, StrictFakeModel(says("Sent."))).decide("c1", Approved())).text == "Sent."


@pytest.mark.req("R100")
@pytest.mark.req("R96")
async def test_an_agent_is_a_tool_of_another():
    desk = Free()
    clerk = Agent("clerk", "Does things.", tools=desk)
    inner = StrictFakeModel(calls(ADA), says("Ada knows."))
    outer = StrictFakeModel(calls(ASK), says("Done."))
    conversation = Conversation(outer, clerk.as_toolset(inner), id="talk", subject="ada")
    events = [event async for event in conversation.stream("Have Ada told.")]
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ['clerk: send {"to": "Ada"}']
    assert outer.asked[1].messages[-1].content == "Ada knows."
    assert inner.asked[0].messages == (Message.user("Tell Ada."),)
    (context,) = desk.contexts
    assert (context.conversation, context.subject, context.depth) == ("talk/a1", "ada", 2)


async def test_an_agent_has_side_effects_if_its_tools_have():
    for tool, expected in ((Tool("look"), False), (Tool("send", side_effects=True), True)):
        (offered,) = await Agent("clerk", "Does things.", tools=Free(tool)).as_toolset(StrictFakeModel()).tools()
        assert (offered.name, offered.description, offered.side_effects) == ("clerk", "Does things.", expected)
        assert list(offered.parameters["properties"]) == ["task"]


async def test_agents_that_ask_one_another_come_to_an_end():
    class Passing:
        """Always asks somebody else."""

        def __init__(self) -> None:
            self.asked = 0

        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            self.asked += 1
            for event in calls(ASK) if request.messages[-1].role == "user" else says("They could not."):
                yield event

    class Mirror:
        """The agent's tools: itself."""

        async def tools(self) -> Sequence[Tool]:
            return await Agent("clerk").as_toolset(model).tools()

        def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | ConfirmationNeeded | Result]:
            return agent.as_toolset(model).call(call, context)

    model = Passing()
    agent = Agent("clerk", tools=Mirror(), limits=Limits(depth=3))
    assert (await agent.conversation(model).send("Go.")).text == "They could not."
    assert model.asked == 6


async def test_an_agent_that_says_nothing_has_failed():
    conversation = Conversation(
        StrictFakeModel(calls(ASK), says("Hm.")), Agent("clerk").as_toolset(StrictFakeModel([Text(""), Stopped("stop")]))
    )
    await conversation.send("Go.")
    assert conversation.messages[2].content == "internal_error: clerk gave no answer"


async def test_without_a_folder_nobody_can_be_asked_inside():
    desk = Desk()
    inner = StrictFakeModel(calls(ADA), says("I may not."))
    conversation = Conversation(StrictFakeModel(calls(ASK), says("No.")), Agent("clerk", tools=desk).as_toolset(inner))
    assert (await conversation.send("Tell Ada.")).text == "No."
    assert inner.asked[1].messages[-1].content == f"denied: {NOBODY_TO_ASK}"
    assert desk.done == []


async def test_an_agent_that_wants_what_nobody_allows_again_and_again_comes_to_an_end():
    inner = StrictFakeModel(*[calls(ADA)] * 40)
    clerk = Agent("clerk", tools=Desk(), limits=Limits(iterations=3))
    conversation = Conversation(StrictFakeModel(calls(ASK), says("No.")), clerk.as_toolset(inner))
    assert (await conversation.send("Tell Ada.")).text == "No."
    assert conversation.messages[2].content == "internal_error: clerk gave no answer"
    assert len(inner.asked) == 4


@pytest.mark.req("R94")
@pytest.mark.parametrize("restart", [False, True])
async def test_with_a_folder_an_agent_asks_through_its_caller(tmp_path: Path, restart: bool):
    desk, path, folder = Desk(), tmp_path / "talk.json", tmp_path / "work"
    clerk = Agent("clerk", tools=desk)
    inner = StrictFakeModel(calls(ADA, SEE), says("Ada knows."))
    conversation = Conversation(StrictFakeModel(calls(ASK), says("Done.")), clerk.as_toolset(inner, folder=folder), journal=path)
    reply = await conversation.send("Have Ada told.")
    (question,) = reply.pending
    assert (question.call, question.reason) == (ASK, 'clerk wants to call send with {"to": "Ada"}: it has side effects')
    if restart:
        toolset = clerk.as_toolset(StrictFakeModel(says("Ada knows.")), folder=folder)
        conversation = Conversation.load(path, StrictFakeModel(says("Done.")), toolset, journal=path)
    assert (await conversation.decide("a1", Approved())).text == "Done."
    assert desk.done == ["look", "send Ada"]
    assert conversation.messages[2].content == "Ada knows."
    assert list(folder.iterdir()) == []


async def test_a_word_on_the_agents_call_is_none_on_the_calls_it_makes(tmp_path: Path):
    desk = Desk()
    toolset = Agent("clerk", tools=desk).as_toolset(StrictFakeModel(calls(ADA)), folder=tmp_path)
    for _ in range(2):  # as if the program had been killed before the question was kept
        context = Context(conversation="talk", decisions={"a1": Approved()})
        (*_, last) = [item async for item in toolset.call(ASK, context)]
        assert isinstance(last, ConfirmationNeeded)
    assert desk.done == []


async def test_changed_arguments_are_not_those_of_the_calls_an_agent_makes(tmp_path: Path):
    desk = Desk()
    inner = StrictFakeModel(calls(ADA), says("As you like."))
    conversation = Conversation(
        StrictFakeModel(calls(ASK), says("Done.")), Agent("clerk", tools=desk).as_toolset(inner, folder=tmp_path)
    )
    await conversation.send("Have Ada told.")
    await conversation.decide("a1", Approved({"task": "Tell Bob."}))
    assert desk.done == []
    assert "Tell Bob." in inner.asked[1].messages[-1].content


async def test_a_no_reaches_the_agent(tmp_path: Path):
    inner = StrictFakeModel(calls(ADA), says("I may not."))
    conversation = Conversation(
        StrictFakeModel(calls(ASK), says("No.")), Agent("clerk", tools=Desk()).as_toolset(inner, folder=tmp_path)
    )
    await conversation.send("Have Ada told.")
    events = [event async for event in conversation.stream_resume({"a1": Denied("not today")})]
    assert [event.call for event in events if isinstance(event, ToolStarted)] == [ASK]
    assert inner.asked[1].messages[-1].content == "denied: not today"
