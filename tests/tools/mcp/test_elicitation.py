"""What a server asks back: a person, or our model; in both eras, and refused where nobody is there."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.errors import Unavailable
from callsmith.core.events import Stopped, Text, ToolProgress
from callsmith.core.values import Call, Request
from callsmith.tools.mcp import ElicitationRequest, McpHost
from callsmith.tools.mcp.elicitation import ClientFeatures, ElicitationReply
from tests.fakes import FakeModel, calls, everything, finished, says
from tests.tools.mcp.trying import call, noted, plain

eras = pytest.mark.parametrize("modern", [False, True], ids=["older", "newer"])


class Person:
    """Somebody who gives the same reply to everything, and remembers what was asked."""

    def __init__(self, reply: ElicitationReply) -> None:
        self.reply = reply
        self.asked: list[ElicitationRequest] = []

    async def ask(self, question: ElicitationRequest) -> ElicitationReply:
        self.asked.append(question)
        return self.reply


class Broken:
    """A model that cannot be reached."""

    async def stream(self, request: Request):
        raise Unavailable("the model is away")
        yield Stopped("stop")


@eras
async def test_a_person_is_asked_and_what_they_leave_out_is_filled_in(modern: bool):
    person = Person(ElicitationReply("accept", {"name": "Ada"}))
    async with McpHost([plain(options={"modern": modern})], features=ClientFeatures(person.ask)) as host:
        result = await call(host, "elicit")
    assert json.loads(result.text) == {"action": "accept", "content": {"name": "Ada", "size": 7}}
    (question,) = person.asked
    assert (question.server, question.message, question.call) == ("plain", "Who?", Call("elicit", {}, "c1"))
    assert question.schema is not None and "name" in question.schema["properties"]  # type: ignore[operator]


@eras
async def test_a_call_that_waits_for_a_person_does_not_time_out(modern: bool):
    async def slow(question: ElicitationRequest) -> ElicitationReply:
        await asyncio.sleep(2)
        return ElicitationReply("accept", {"name": "Ada"})

    server = plain(options={"modern": modern}, timeout=1.0)
    async with McpHost([server], features=ClientFeatures(slow)) as host:
        await host.tools()
        events = await everything(FakeModel(calls(Call("elicit", {}, "1")), says("so")), host)
    assert [result.ok for result in finished(events)] == [True]
    assert ToolProgress("1", "plain waits for an answer", waits=True) in events


@eras
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_say_no(modern: bool, action: Any):
    async with McpHost(
        [plain(options={"modern": modern})], features=ClientFeatures(Person(ElicitationReply(action)).ask)
    ) as host:
        assert json.loads((await call(host, "elicit")).text) == {"action": action}


@eras
async def test_an_answer_that_does_not_fit_is_asked_for_again_and_not_sent(modern: bool):
    replies, messages = [ElicitationReply("accept", {"size": "large"}), ElicitationReply("accept", {"size": 3})], list[str]()

    async def ask(question: ElicitationRequest) -> ElicitationReply:
        messages.append(question.message)
        return replies[len(messages) - 1]

    async with McpHost([plain(options={"modern": modern})], features=ClientFeatures(ask)) as host:
        assert json.loads((await call(host, "elicit")).text) == {"action": "accept", "content": {"size": 3}}
    assert messages[0] == "Who?"
    assert messages[1].startswith("Who? (The answer did not fit: ")
    assert "size" in messages[1]


async def test_a_person_whose_answers_never_fit_is_not_asked_for_ever():
    person = Person(ElicitationReply("accept", {"size": "large"}))
    async with McpHost([plain()], features=ClientFeatures(person.ask)) as host:
        assert json.loads((await call(host, "elicit")).text) == {"action": "cancel"}
    assert len(person.asked) == 3


@eras
async def test_where_nobody_is_there_the_question_is_refused(modern: bool):
    async with McpHost([plain(options={"modern": modern})]) as host:
        result = await call(host, "elicit")
        assert (result.ok, result.code) == (False, "tool_error")
        assert "not supported" in result.text
        assert (await call(host, "echo", text="x")).ok


@eras
async def test_a_person_who_cannot_be_asked_is_a_failed_call_and_the_server_goes_on(modern: bool):
    async def ask(question: ElicitationRequest) -> ElicitationReply:
        raise OSError("the terminal is gone")

    async with McpHost([plain(options={"modern": modern})], features=ClientFeatures(ask)) as host:
        result = await call(host, "elicit")
        assert not result.ok
        assert (await call(host, "echo", text="x")).ok


@eras
async def test_our_model_writes_for_a_server_that_may_ask_it(modern: bool):
    model = FakeModel(says("something"))
    async with McpHost([plain(options={"modern": modern}, sampling=True)], features=ClientFeatures(model=model)) as host:
        assert (await call(host, "sample")).content == "something"
    (request,) = model.asked
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "Be brief."),
        ("user", "Say something."),
    ]
    assert (request.sampling.max_tokens, request.tools) == (50, ())


@eras
@pytest.mark.parametrize("model", [None, FakeModel(says("something"))], ids=["no model", "not configured"])
async def test_sampling_is_refused_unless_it_is_configured(modern: bool, model: Any):
    async with McpHost([plain(options={"modern": modern}, sampling=model is None)], features=ClientFeatures(model=model)) as host:
        result = await call(host, "sample")
        assert (result.ok, result.code) == (False, "tool_error")


@eras
async def test_a_model_that_fails_is_told_to_the_server(modern: bool):
    async with McpHost([plain(options={"modern": modern}, sampling=True)], features=ClientFeatures(model=Broken())) as host:
        result = await call(host, "sample")
        assert not result.ok
        assert "the model is away" in result.text


async def test_an_answer_that_was_cut_off_is_told_as_one():
    import mcp_types as types

    from callsmith.tools.mcp.sampling import sample

    message = types.SamplingMessage(role="user", content=types.TextContent(text="x"))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=1_000_000)
    model = FakeModel([Text("so"), Stopped("length")])
    result = await sample(model, params)
    assert isinstance(result, types.CreateMessageResult)
    assert (result.stop_reason, model.asked[0].sampling.max_tokens) == ("maxTokens", 2_000)


@pytest.mark.parametrize(
    ("features", "sampling", "offered"),
    [
        (ClientFeatures(), True, set()),
        (ClientFeatures(Person(ElicitationReply("decline")).ask), False, {"elicitation"}),
        (ClientFeatures(model=FakeModel(says("x"))), False, set()),
        (ClientFeatures(model=FakeModel(says("x"))), True, {"sampling"}),
    ],
)
async def test_a_server_is_offered_only_what_somebody_answers(
    tmp_path: Path, features: ClientFeatures, sampling: bool, offered: set[str]
):
    notes = tmp_path / "notes"
    async with McpHost([plain(options={"notes": str(notes)}, sampling=sampling)], features=features) as host:
        await host.tools()
    (capabilities,) = [json.loads(line.removeprefix("client ")) for line in noted(notes) if line.startswith("client")]
    assert set(capabilities) == offered
