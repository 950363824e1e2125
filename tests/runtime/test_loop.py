"""The run loop: rounds of calls, limits, deadlines, and every call answered exactly once."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from pydantic import BaseModel, field_validator

from callsmith.core.errors import ModelError, UnknownName, UsageError
from callsmith.core.events import Notice, Stopped, Text, Thought, ToolProgress, ToolStarted, TurnEnded, Unreadable
from callsmith.core.ports import Context
from callsmith.core.values import Call, Choice, Message, Output, Request, Result, Tool, Usage
from callsmith.runtime.conversation.conversation import Conversation
from callsmith.runtime.execute import Limits
from callsmith.runtime.loop import LIMIT_TEXT, find_earlier, run
from callsmith.runtime.sync import collect, run_sync
from tests.fakes import ASKED, FakeModel, Handlers, calls, ended, everything, finished, hello, says
from tests.virtual_time import now, virtual_time


@pytest.mark.req("R23")
async def test_an_answer_without_calls_ends_the_run():
    model = FakeModel([Thought("hm"), *says("hi")])
    events = await everything(model, Handlers(hello=hello))
    assert events == [
        Thought("hm"),
        Text("hi"),
        Stopped("stop", Usage(20, 3)),
        TurnEnded((Message.assistant("hi", reasoning="hm"),), "stop", Usage(20, 3)),
    ]
    assert [tool.name for tool in model.asked[0].tools] == ["hello"]


@pytest.mark.req("R61")
@pytest.mark.req("R90")
@pytest.mark.req("R84")
@pytest.mark.req("R85")
@pytest.mark.req("R117")
async def test_calls_are_run_and_their_results_told_until_the_model_answers():
    first, second = Call("hello", {"to": "Ada"}, "c1"), Call("hello", {"to": "Bob"}, "c2")
    model = FakeModel(calls(first, text="wait"), calls(second), says("done"))
    turn = ended(await everything(model, Handlers(hello=hello)))
    assert turn.messages == (
        Message.assistant("wait", calls=[first]),
        Message("tool", "hello Ada", call_id="c1", name="hello"),
        Message.assistant(calls=[second]),
        Message("tool", "hello Bob", call_id="c2", name="hello"),
        Message.assistant("done"),
    )
    assert turn.usage == Usage(40, 13, 4, 2)
    assert turn.reason == "stop"
    assert model.asked[2].messages == (*ASKED.messages, *turn.messages[:4])
    assert model.closed == 3


@pytest.mark.req("R183")
@pytest.mark.req("R95")
@pytest.mark.req("R86")
@virtual_time
async def test_calls_of_a_round_run_at_most_four_at_a_time_and_are_told_in_order():
    running = peak = 0

    async def work(call: Call) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.02 - 0.002 * call.arguments["n"])  # later ones are faster
        running -= 1
        return call.arguments["n"]

    tool_calls = [Call("work", {"n": n}, f"c{n}") for n in range(9)]
    events = await everything(FakeModel(calls(*tool_calls), says("done")), Handlers(work=work))
    assert peak == 4
    assert [message.content for message in ended(events).messages[1:-1]] == [str(n) for n in range(9)]
    assert sorted(result.content for result in finished(events)) == list(range(9))
    assert sum(isinstance(event, ToolStarted) for event in events) == 9


async def test_calls_that_share_an_id_still_get_a_result_each():
    tool_calls = [Call("hello", {"to": "Ada"}, "same"), Call("hello", {"to": "Bob"}, "same")]
    turn = ended(await everything(FakeModel(calls(*tool_calls), says("done")), Handlers(hello=hello)))
    assert [message.content for message in turn.messages[1:3]] == ["hello Ada", "hello Bob"]


async def test_a_result_bears_the_id_and_name_of_its_call_whatever_the_toolset_says():
    events = await everything(FakeModel(calls(Call("hello", {}, "c1")), says("done")), Handlers(hello=hello))
    assert finished(events) == [Result("c1", "hello", "hello")]


@pytest.mark.req("R8")
@pytest.mark.req("R165")
async def test_an_unknown_tool_is_answered_with_the_names_of_those_that_exist():
    events = await everything(FakeModel(calls(Call("helo", {}, "c1")), says("sorry")), Handlers(hello=hello))
    (result,) = finished(events)
    assert (result.ok, result.code) == (False, "bad_request")
    assert "there is no tool 'helo'. Did you mean 'hello'? The tools are: hello" in result.text
    assert not any(isinstance(event, ToolStarted) for event in events)


@pytest.mark.req("R14")
@pytest.mark.req("R99")
@pytest.mark.req("R166")
async def test_invalid_arguments_are_told_so_that_the_model_can_correct_itself():
    tool = Tool("hello", parameters={"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]})
    model = FakeModel(calls(Call("hello", {"to": 5}, "c1")), calls(Call("hello", {"to": "Ada"}, "c2")), says("done"))
    events = await everything(model, Handlers(tool, hello=hello))
    wrong, right = finished(events)
    assert wrong == Result("c1", "hello", 'invalid_arguments: at /to: 5 is not of type "string"', ok=False, code="bad_request")
    assert right.content == "hello Ada"


async def test_a_tool_whose_schema_is_none_is_not_run_and_the_run_goes_on():
    tool = Tool("hello", parameters={"type": "nonsense"})
    (result,) = finished(await everything(FakeModel(calls(Call("hello", {}, "c1")), says("ok")), Handlers(tool, hello=hello)))
    assert (result.ok, result.code) == (False, "internal_error")


@pytest.mark.req("R167")
@pytest.mark.req("R160")
@virtual_time
async def test_a_tool_that_takes_too_long_is_answered_with_a_timeout():
    async def slow(call: Call) -> None:
        await asyncio.sleep(30)

    model = FakeModel(calls(Call("slow", {}, "c1"), Call("patient", {}, "c2")), says("done"))
    toolset = Handlers(Tool("slow"), Tool("patient", timeout=0.1), slow=slow, patient=slow)
    results = finished(await everything(model, toolset, limits=Limits(seconds=0.05)))
    assert [(result.call_id, result.code) for result in results] == [("c1", "timeout"), ("c2", "timeout")]
    assert "0.05 s" in results[0].text
    assert "0.1 s" in results[1].text  # a tool's own time counts before that of the run


@pytest.mark.req("R167")
@virtual_time
async def test_a_tool_that_ignores_its_cancellation_cannot_hold_up_the_run():
    async def stubborn(call: Call) -> None:
        until = now() + 120
        while now() < until:
            try:
                await asyncio.sleep(0.5)
            except asyncio.CancelledError:
                continue

    began = now()
    model = FakeModel(calls(Call("stubborn", {}, "c1")), says("done"))
    (result,) = finished(await everything(model, Handlers(stubborn=stubborn), limits=Limits(seconds=0.05)))
    assert result.code == "timeout"
    assert now() - began < 10


@pytest.mark.req("R168")
@pytest.mark.parametrize("error", [ValueError("disk full"), SystemExit("disk full"), asyncio.CancelledError(), KeyError()])
async def test_whatever_a_tool_raises_becomes_its_result(error: BaseException):
    async def broken(call: Call) -> None:
        raise error

    events = await everything(FakeModel(calls(Call("broken", {}, "c1")), says("done")), Handlers(broken=broken))
    (result,) = finished(events)
    assert (result.ok, result.code) == (False, "internal_error")
    if error.args:
        assert "disk full" in result.text
    assert ended(events).messages[-1].content == "done"


async def test_a_toolset_that_forgets_its_result_is_answered_for():
    class Forgetful(Handlers):
        async def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | Result]:
            yield ToolProgress("", text="working")

    events = await everything(FakeModel(calls(Call("hello", {}, "c1")), says("done")), Forgetful(hello=hello))
    assert [event for event in events if isinstance(event, ToolProgress)] == [ToolProgress("c1", text="working")]
    (result,) = finished(events)
    assert result.code == "internal_error"


@pytest.mark.req("R92")
@pytest.mark.req("R169")
async def test_at_the_limit_pending_calls_are_answered_and_the_model_must_finish():
    call = Call("hello", {}, "c1")
    model = FakeModel(calls(call), calls(call), calls(call, Call("hello", {}, "c2")), says("finally"))
    events = await everything(model, Handlers(hello=hello), limits=Limits(iterations=2))
    turn = ended(events)
    assert [request.choice.mode for request in model.asked] == ["auto", "auto", "auto", "none"]
    assert [(message.call_id, message.content) for message in turn.messages[-3:-1]] == [("c1_3", LIMIT_TEXT), ("c2", LIMIT_TEXT)]
    assert turn.messages[-1] == Message.assistant("finally")
    assert any(isinstance(event, Notice) for event in events)
    assert [result.code for result in finished(events)] == ["", "", "limit_reached", "limit_reached"]


@pytest.mark.req("R87")
async def test_the_limit_is_six_rounds_unless_said_otherwise():
    model = FakeModel(calls(Call("hello", {}, "c1")))
    events = await everything(model, Handlers(hello=hello))
    assert sum(result.ok for result in finished(events)) == 6
    assert (Limits().iterations, Limits().seconds) == (6, 30)
    assert len(model.asked) == 8


@pytest.mark.req("R24")
async def test_a_model_that_calls_although_told_not_to_leaves_no_call_without_a_result():
    model = FakeModel(calls(Call("hello", {}, "c1"), text="hm"))
    events = await everything(model, Handlers(hello=hello), Request(ASKED.messages, choice=Choice("none")))
    assert ended(events) == TurnEnded((Message.assistant("hm"),), "stop", Usage(10, 5, 2, 1))
    assert finished(events) == []


@pytest.mark.req("R25")
@pytest.mark.req("R34")
@pytest.mark.parametrize(
    ("choice", "after"),
    [
        (Choice("required"), Choice()),
        (Choice.only("hello"), Choice()),
        (Choice("required", ("hello", "other")), Choice("auto", ("hello", "other"))),
        (Choice("auto", ("hello",)), Choice("auto", ("hello",))),
    ],
)
async def test_a_forced_call_is_forced_once(choice: Choice, after: Choice):
    model = FakeModel(calls(Call("hello", {}, "c1")), says("done"))
    await everything(model, Handlers(hello=hello, other=hello), Request(ASKED.messages, choice=choice))
    assert [request.choice for request in model.asked] == [choice, after]


async def test_a_choice_of_what_does_not_exist_is_the_callers_mistake():
    with pytest.raises(UnknownName):
        await everything(FakeModel(says("")), Handlers(hello=hello), Request(ASKED.messages, choice=Choice.only("hullo")))
    with pytest.raises(UsageError):
        await everything(FakeModel(says("")), Handlers(), Request(ASKED.messages, choice=Choice("required")))


async def test_the_tools_of_the_request_come_before_those_of_the_toolset():
    model = FakeModel(says("hi"))
    await everything(model, Handlers(hello=hello, other=hello), Request(ASKED.messages, tools=(Tool("hello"),)))
    assert [tool.name for tool in model.asked[0].tools] == ["hello"]


async def test_whatever_a_request_says_of_a_tool_calls_are_held_to_the_toolsets_own_word():
    strict = Tool("hello", parameters={"type": "object", "required": ["to"]})
    model = FakeModel(calls(Call("hello", {}, "c1")), says("hi"))
    events = await everything(model, Handlers(strict, hello=hello), Request(ASKED.messages, tools=(Tool("hello"),)))
    assert model.asked[0].tools == (Tool("hello"),)
    assert [result.code for result in finished(events)] == ["bad_request"]


async def test_a_history_that_ends_in_unanswered_calls_is_taken_up_there():
    tool_calls = [Call("hello", {"to": "Ada"}, "c1"), Call("hello", {"to": "Bob"}, "c2")]
    history = (*ASKED.messages, Message.assistant(calls=tool_calls), Message.tool(Result("c1", "hello", "hello Ada")))
    model = FakeModel(says("done"))
    turn = ended(await everything(model, Handlers(hello=hello), Request(history)))
    assert turn.messages == (Message("tool", "hello Bob", call_id="c2", name="hello"), Message.assistant("done"))
    assert model.asked[0].messages == (*history, turn.messages[0])


async def test_what_could_not_be_read_as_a_call_stays_part_of_what_was_said():
    model = FakeModel([Text("a "), Unreadable("<tool_call>{", "cut off"), Stopped("length")])
    turn = ended(await everything(model, Handlers(hello=hello)))
    assert turn == TurnEnded((Message.assistant("a <tool_call>{"),), "length")


async def test_closing_a_run_stops_the_model():
    model = FakeModel([Text("a"), Text("b"), Stopped("stop")])
    events = run(model, Handlers(hello=hello), ASKED)
    await anext(aiter(events))
    await events.aclose()  # type: ignore[attr-defined]
    assert model.closed == 1


@virtual_time
async def test_cancelling_a_run_cancels_its_tools_at_once():
    began, stopped = asyncio.Event(), asyncio.Event()

    async def slow(call: Call) -> None:
        began.set()
        try:
            await asyncio.sleep(30)
        finally:
            stopped.set()

    task = asyncio.create_task(everything(FakeModel(calls(Call("slow", {}, "c1"))), Handlers(slow=slow)))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    assert stopped.is_set()


def test_a_plain_program_comes_in_through_the_sync_door():
    turn = run_sync(FakeModel(calls(Call("hello", {}, "c1")), says("done")), Handlers(hello=hello), ASKED)
    assert turn.messages[-1].content == "done"
    assert collect(FakeModel(says("hi")).stream(ASKED)) == says("hi")


async def test_the_sync_door_says_where_to_go_when_a_loop_is_running():
    with pytest.raises(UsageError, match="async for"):
        run_sync(FakeModel(says("hi")), Handlers(hello=hello), ASKED)


def test_the_loop_knows_no_backend():
    runtime = [name for name in sys.modules if name.startswith("callsmith.runtime")]
    for name in runtime:
        for value in vars(sys.modules[name]).values():
            module = getattr(value, "__module__", None) or ""
            functions = module in ("callsmith.tools.define", "callsmith.tools.functions")  # what a list may hold
            assert functions or not module.startswith("callsmith.") or module.split(".")[1] in ("core", "files", "runtime")


@virtual_time
async def test_what_a_tool_answers_after_it_was_given_up_is_not_heard():
    async def stubborn(call: Call) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
        return "late"

    async def slow(call: Call) -> str:
        await asyncio.sleep(0.3)  # the round goes on until the late answer has come
        return "in time"

    model = FakeModel(calls(Call("stubborn", {}, "c1"), Call("slow", {}, "c2")), says("done"))
    toolset = Handlers(Tool("stubborn", timeout=0.05), Tool("slow"), stubborn=stubborn, slow=slow)
    events = await everything(model, toolset)
    assert [(result.call_id, result.code) for result in finished(events)] == [("c1", "timeout"), ("c2", "")]
    assert [message.call_id for message in model.asked[1].messages if message.role == "tool"] == ["c1", "c2"]
    assert "late" not in str(events)


def test_a_text_is_a_request_of_one_message_and_the_end_has_the_answer_as_text():
    model = FakeModel(calls(Call("hello", {"to": "Ada"}, "c1"), text="wait"), says("done"))
    turn = run_sync(model, Handlers(hello=hello), "Say hello to Ada.")
    assert model.asked[0].messages == (Message.user("Say hello to Ada."),)
    assert turn.text == turn.value == "done"
    assert run_sync(FakeModel(says("hi")), None, "Hi").text == "hi"
    assert TurnEnded((), "stop").text == ""


@dataclass(frozen=True)
class Person:
    name: str
    born: int


class Book(BaseModel):
    title: str
    authors: list[Person] = []

    @field_validator("title")
    @classmethod
    def _has_words(cls, title: str) -> str:
        if not title.strip():
            raise ValueError("a title has words")
        return title


def _answered(text: str, output: Output) -> TurnEnded:
    return run_sync(FakeModel(says(text)), None, Request((Message.user("Who?"),), output=output))


def test_the_value_of_a_run_is_of_the_type_that_was_asked_for():
    ada = Person("Ada", 1815)
    assert _answered('{"name": "Ada", "born": 1815}', Output(Person)).value == ada
    book = '{"title": "Notes", "authors": [{"name": "Ada", "born": 1815}]}'
    assert _answered(book, Output(Book)).value == Book(title="Notes", authors=[ada])
    assert _answered("[1, 2]", Output(list[int])).value == [1, 2]
    assert _answered('{"name": "Ada"}', Output.json_object()).value == {"name": "Ada"}
    assert _answered("yes", Output(choices=("yes", "no"))).value == "yes"


def test_a_type_becomes_a_schema_that_constrains_the_answer():
    wanted = replace(Output(Person), strict=True)
    assert wanted.schema is not None
    assert (set(wanted.schema["properties"]), wanted.schema["required"]) == ({"name", "born"}, ["name", "born"])
    assert (wanted.value_type, wanted.strict) == (Person, True)
    with pytest.raises(UsageError, match="no JSON Schema"):
        Output(FakeModel)


@pytest.mark.parametrize(
    ("text", "output", "why"),
    [
        ('{"name": "Ada"}', Output(Person), "not a valid Person: at /born: Field required"),
        ('{"title": " "}', Output(Book), "not a valid Book: at /title: Value error, a title has words"),
        ("{", Output.json_object(), "not a valid JSON"),
    ],
)
def test_an_answer_that_is_not_of_the_type_is_an_error_when_the_value_is_read(text: str, output: Output, why: str):
    turn = _answered(text, output)
    assert turn.text == text
    with pytest.raises(ModelError, match=why):
        _ = turn.value


def test_a_run_that_ended_before_its_answer_has_no_value():
    cut = FakeModel([Text('{"name": "A'), Stopped("length")])
    turn = run_sync(cut, None, Request((Message.user("Who?"),), output=Output(Person)))
    with pytest.raises(ModelError, match="the run ended with 'length'"):
        _ = turn.value


def test_a_conversation_gives_values_of_a_type_too():
    conversation = Conversation(FakeModel(says('{"name": "Ada", "born": 1815}')), output=Output(Person))
    assert conversation.send_sync("Who?").value == Person("Ada", 1815)


def test_an_identical_call_is_one_of_the_same_turn_that_went_well():
    made = Call("pay", {"to": "Ann", "sum": 1}, "c1")
    paid = (Message.user("Pay."), Message.assistant(calls=[made]), Message.tool(Result("c1", "pay", "paid")))
    same = Call("pay", {"sum": 1, "to": "Ann"}, "c2")
    assert find_earlier(paid, same) == "paid"
    for other in (Call("pay", {"to": "Ann", "sum": True}), Call("pay", {"to": "Ann", "sum": 1.0}), Call("give", same.arguments)):
        assert find_earlier(paid, other) is None
    failed = (Message.assistant(calls=[same]), Message.tool(Result("c2", "pay", "timeout: gone")))
    again = (Message.assistant(calls=[same]), Message.tool(Result("c2", "pay", "paid twice")))
    assert (find_earlier((*paid, *failed), same), find_earlier((*paid, *again), same)) == ("paid", "paid twice")
    assert find_earlier((*paid, Message.user("Again.")), same) is None
    twice = (Message.assistant(calls=[Call("ask", {}, "c1")]), Message.tool(Result("c1", "ask", "hm")))
    assert find_earlier((*paid, *twice), same) == "paid", "an id that two calls share"
