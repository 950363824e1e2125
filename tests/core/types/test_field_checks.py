"""Public values: what does not fit is refused when they are built, in words, and what fits is not looked at twice."""

import copy
import inspect
import pickle
from collections import UserDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from callsmith import (
    Agent,
    Approved,
    Call,
    Choice,
    Confirmed,
    Context,
    Conversation,
    Denied,
    Functions,
    Limits,
    Message,
    Output,
    Policy,
    Reader,
    Request,
    Result,
    Sampling,
    Tool,
    UsageError,
    define,
    format_named,
    open_model,
    run_sync,
    tool,
)
from callsmith.core.approval import Rule
from callsmith.core.events import ToolProgress
from callsmith.core.types import field_checks
from callsmith.formats.algebra import Format
from tests.fakes import FakeModel, calls, says

ANY: Any = None  # what a type checker would refuse is what is tested here
HI = Message.user("hi")
MODEL = FakeModel(says("hi"))


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


WRONG: dict[str, Callable[[Any], object]] = {
    "Choice.mode: expected one of 'auto', 'none', 'required', got the str 'requird'; did you mean 'required'?": (
        lambda _: Choice(_ or "requird")
    ),
    "Choice.only('get_weather') requires the tool of that name": lambda _: Choice(_ or "get_weather"),
    "Choice.names: expected a tuple of str, got": lambda _: Choice.only(_ or add),
    "Sampling.temperature: expected a number or None, got the str 'hot'": lambda _: Sampling(temperature=_ or "hot"),
    "Sampling.top_k: expected an int or None, got the bool True": lambda _: Sampling(top_k=_ or True),
    "Sampling.stop: expected a tuple of str, got the str 'END'": lambda _: Sampling(stop=_ or "END"),
    "Request.messages: expected a tuple of Message, got the str 'hello'; Message.user('…')": lambda _: Request(_ or "hello"),
    "Request.messages: expected a tuple of Message, got the tuple": lambda _: Request((HI, _ or "hello", HI)),
    "Request.sampling: expected a Sampling, got the dict": lambda _: Request((HI,), sampling=_ or {"temperature": 1}),
    "Request.tools: expected a tuple of Tool, got the list": lambda _: Request((HI,), tools=_ or [add]),
    "Message.role: expected one of 'system', 'user', 'assistant', 'tool', got the str 'usr'; did you mean 'user'?": (
        lambda _: Message(_ or "usr", "hi")
    ),
    "Message.content: expected a str, got None": lambda _: Message.user(_),
    "Message.calls: expected a tuple of Call": lambda _: Message.assistant(calls=_ or ["add"]),
    "result: expected a Result, got the str '3'": lambda _: Message.tool(_ or "3"),
    "Tool.name: expected a str, got the int 5": lambda _: Tool(_ or 5),
    "Tool.parameters: expected a mapping, got the str": lambda _: Tool("add", "", _ or "object"),
    "Call.arguments: expected a mapping, got the list": lambda _: Call("add", _ or [1, 2]),
    "Result.call_id: expected a str, got the int 1": lambda _: Result(_ or 1, "add", 3),
    "Output.schema: expected a mapping or None, got the str 'Person'": lambda _: Output(_ or "Person"),
    "Output.choices: expected a tuple of str, got the str 'yes'": lambda _: Output(choices=_ or "yes"),
    "Limits.iterations: expected an int, got the str '5'": lambda _: Limits(iterations=_ or "5"),
    "Context.decisions: expected a mapping, got the dict": lambda _: Context(decisions=_ or {"c1": True}),
    "Context.granted: expected a frozenset of str, got the str 'add'": lambda _: Context(granted=_ or "add"),
    "Policy.side_effects: expected one of 'auto', 'ask', 'deny', got the str 'aks'; did you mean 'ask'?": (
        lambda _: Policy(side_effects=_ or "aks")
    ),
    "Policy.also: expected a tuple of Policy, got": lambda _: Policy(also=_ or ("ask",)),
    "Rule.when: expected a function or None, got the str": lambda _: Rule("ask", when=_ or "a > 1"),
    "Approved.arguments: expected a mapping or None, got the str": lambda _: Approved(_ or "yes"),
    "Denied.message: expected a str, got the int 5": lambda _: Denied(_ or 5),
    "Agent.tools: expected a Toolset or a sequence of Callable or Function or Tool or Definition or None, got the function": (
        lambda _: Agent("adder", tools=_ or add)
    ),
    "Agent.policy: expected one of 'auto', 'required_first_hop', 'required_always' or None, got the str 'always'": (
        lambda _: Agent("adder", policy=_ or "always")
    ),
    "Format.parts: expected a tuple of": lambda _: Format("mine", _ or "<call>"),
    "model: expected a Model, got the str 'qwen2.5-coder-1.5b'; open_model('…') opens one": (
        lambda _: run_sync(_ or "qwen2.5-coder-1.5b", None, "hi")
    ),
    "toolset: expected a Toolset or a sequence of Callable or Function or Tool or Definition or None, got the function": (
        lambda _: run_sync(MODEL, _ or add, "hi")
    ),
    "or a sequence of Callable or Function or Tool or Definition or None, got the list [add]; [get_weather] will do": (
        lambda _: run_sync(MODEL, _ or ["add"], "hi")
    ),
    "request: expected a Request or a str, got the list": lambda _: run_sync(MODEL, None, _ or [HI]),
    "limits: expected a Limits, got the int 5": lambda _: run_sync(MODEL, None, "hi", limits=_ or 5),
    "context: expected a Context, got the str 'me'": lambda _: run_sync(MODEL, None, "hi", context=_ or "me"),
    "unknown setting 'chioce'; did you mean 'choice'?": lambda _: Conversation(MODEL, chioce=Choice()),
    "choice: expected a Choice, got the str 'required'": lambda _: Conversation(MODEL, choice=_ or "required"),
    "messages: expected a tuple of Message, got the str 'hi'": lambda _: Conversation(MODEL, messages=_ or "hi"),
    "instructions: expected a str, got the int 5": lambda _: Conversation(MODEL, instructions=_ or 5),
    "toolset: expected a Toolset, got the function": lambda _: Confirmed(_ or add),
    "policy: expected a Policy, got the str 'ask'": lambda _: Confirmed(Functions(add), _ or "ask"),
    "function: expected a function or a Function, got the list": lambda _: Functions(_ or [add]),
    "function: expected a function, got the int 5": lambda _: tool(_ or 5),
    "unknown option of a tool 'timout'; did you mean 'timeout'?": lambda _: define("add").option(timout=5),
    "name: expected a str, got the int 5": lambda _: format_named(_ or 5),
    "spec: expected a str, got the int 5": lambda _: open_model(_ or 5),
    "format: expected a Format, got the str 'hermes'; format_named('hermes') finds one": lambda _: Reader(_ or "hermes"),
    "tools: expected a tuple of Tool, got the tuple ('add',)": lambda _: Reader(format_named("hermes"), [_ or "add"]),
}


@pytest.mark.parametrize(("complaint", "build"), WRONG.items(), ids=list(WRONG))
def test_a_wrong_value_is_refused_at_once_and_told_what_was_expected(complaint: str, build: Callable[[Any], object]):
    with pytest.raises(UsageError) as caught:
        build(ANY)
    assert complaint.replace("[add]", "['add']") in str(caught.value)


def test_the_error_names_the_field():
    with pytest.raises(UsageError) as caught:
        Sampling(max_tokens=ANY or "many")
    assert caught.value.field == "max_tokens"


def test_a_list_becomes_a_tuple_and_a_set_a_frozenset():
    request = Request(ANY or [HI], tools=ANY or [Tool("add")])
    assert request == Request((HI,), (Tool("add"),))
    assert type(request.messages) is type(request.tools) is tuple
    assert Context(granted=ANY or {"add"}).granted == frozenset({"add"})


def test_what_is_a_subclass_or_a_mapping_of_another_kind_is_fine():
    class Name(str):
        __slots__ = ()

    arguments = UserDict({"a": 1})
    assert Call(Name("add"), arguments, text="{}").arguments is arguments
    assert Sampling(temperature=1).temperature == 1
    assert Policy(also=(Policy(),)).also == (Policy(),)


def test_what_fits_is_not_examined(monkeypatch: pytest.MonkeyPatch):
    """The checks must cost next to nothing where values are built by the thousand."""
    examined: list[object] = []
    monkeypatch.setattr(field_checks, "_hints", lambda kind: examined.append(kind) or {})
    call = Call("add", {"a": 1}, "c1")
    message = Message.assistant("wait", calls=(call, call))
    request = Request((HI, message), (Tool("add", timeout=1),), Choice("required", ("add",)), None, Sampling(0.5, stop=("END",)))
    replace(request, messages=(*request.messages, Message.tool(Result("c1", "add", 3))))
    Context(subject="me", granted=frozenset({"add"}))
    Limits(seconds=1), Approved({"a": 2}), Denied("no"), Policy((Rule("ask", when=bool),))
    assert examined == []


def test_checked_values_can_be_copied_pickled_and_described_like_others():
    request = Request((HI,), sampling=Sampling(seed=1))
    assert copy.deepcopy(request) == pickle.loads(pickle.dumps(request)) == request
    assert list(inspect.signature(Choice).parameters) == ["mode", "names"]
    assert inspect.signature(Choice).parameters["mode"].default == "auto"
    assert Call("add").arguments is not Call("add").arguments


def test_the_quick_replace_does_what_that_of_the_standard_library_does():
    request = Request((HI,), sampling=Sampling(seed=1))
    for value, changes in (
        (request, {"choice": Choice("required")}),
        (request, {}),
        (ToolProgress("c", waits=True), {"text": "x"}),
    ):
        assert field_checks.replace(value, **changes) == replace(value, **changes)
    with pytest.raises(UsageError, match=r"Request\.messages"):
        field_checks.replace(request, messages=5)
    with pytest.raises(TypeError, match="nonsense"):
        field_checks.replace(request, nonsense=5)


async def test_a_decision_is_one_of_two_things():
    acting = tool(side_effects=True)(add)
    asking = FakeModel(calls(Call("add", {"a": 1, "b": 2}, "c1")), says("done"))
    conversation = Conversation(asking, Confirmed(Functions(acting)))
    await conversation.send("Add.")
    with pytest.raises(UsageError, match="decision: expected an Approved or a Denied, got the bool True"):
        await conversation.decide("c1", ANY or True)
    assert (await conversation.decide("c1", Approved())).text == "done"
