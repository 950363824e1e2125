"""Setups: what they change of a model and of a request."""

from functools import partial

import pytest

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.values import Message, Sampling, Tool
from callsmith.engines.scripted import Scripted
from callsmith.evals.run.ask import ask
from callsmith.evals.run.setup import NAMED, Setup, offered_tools, read_setups, set_up
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models import open_model
from callsmith.models.local import LocalModel, Traits
from callsmith.models.opening import Options, with_tool_prompt

TOOL = Tool("add", parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


def model(*replies: str) -> LocalModel:
    traits = Traits(also=(format_named("json"),), parallel=False)
    return LocalModel(Scripted(replies, repeat=True), format_named("hermes"), Template(CHATML), traits)


async def calls(text: str, setup: str) -> list[str]:
    set_up_model = set_up(model(text), NAMED[setup])
    answer = await ask(set_up_model, NAMED[setup].request([Message.user("1?")], [TOOL], Sampling(max_tokens=500)))
    return [call.text for call in answer.calls]


async def test_without_repairs_a_call_must_be_valid_as_it_stands():
    right = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    broken = "<tool_call>\n{'name': 'add', 'arguments': {'a': '1',}}\n"
    other_format = '{"name": "add", "arguments": {"a": 1}}'
    assert await calls(right, "free") == await calls(right, "free-repaired") == ['{"a": 1}']
    assert await calls(broken, "free") == []
    assert await calls(broken, "free-repaired") == ['{"a": 1}']
    assert await calls(other_format, "free") == []
    assert await calls(other_format, "free-repaired") == ['{"a": 1}']


@pytest.mark.parametrize(("setup", "is_held"), [("free", False), ("free-repaired", False), ("guarded", True), ("required", True)])
async def test_setups_of_one_model_share_its_engine_and_differ_in_the_grammar(setup: str, is_held: bool):
    opened = model("Hello")
    set_up_model = set_up(opened, NAMED[setup])
    await ask(set_up_model, NAMED[setup].request([Message.user("1?")], [TOOL], Sampling()))
    assert isinstance(opened.engine, Scripted)
    assert (opened.engine.asked[-1].grammar is not None) is is_held


async def test_the_default_leaves_the_model_as_it_is():
    opened = model("Hello")
    assert set_up(opened, NAMED["default"]) is opened
    request = NAMED["default"].request([Message.user("1?")], [TOOL], Sampling())
    assert (request.policy, request.parallel) == (None, None)


async def test_another_server_is_told_by_strict_tools_and_its_answers_are_taken_as_they_come():
    remote = open_model("http://127.0.0.1:9/v1#m")
    try:
        free = set_up(remote, NAMED["free"])
        assert not free.quirks.repairs and not free.quirks.checks  # type: ignore[attr-defined]
        assert [tool.strict for tool in offered_tools(remote, NAMED["guarded"], [TOOL])] == [True]
        assert offered_tools(remote, NAMED["free"], [TOOL]) == (TOOL,)
    finally:
        await remote.close()


def test_setups_are_named_or_described():
    assert read_setups(["free", "mine=guarded,parallel:no"]) == [
        NAMED["free"],
        Setup("mine", "auto", constrained=True, repairs=True, parallel=False, guards=False, prompt="template"),
    ]
    assert read_setups(["mine=prompt:json-array,bias:-1.5"]) == [Setup("mine", prompt="json-array", bias=-1.5)]
    for wrong in ("fre", "mine=speed:yes", "mine=choice:yes", "mine=repairs:maybe", "mine=prompt:nonsense"):
        with pytest.raises(UnknownName):
            read_setups([wrong])
    for texts in (["free", "free=guarded"], ["mine=bias:much"]):
        with pytest.raises(UsageError):
            read_setups(texts)


async def test_tools_are_put_in_another_way_to_the_same_weights():
    opened = open_model("scripted:Hello")
    assert isinstance(opened, LocalModel)
    setup = Setup("mine", prompt="json-array", bias=5.0)
    set_up_model = set_up(opened, setup, partial(with_tool_prompt, opened, "scripted:Hello", Options()))
    assert isinstance(set_up_model, LocalModel)
    assert (set_up_model.engine, set_up_model.traits.tool_prompt.name, set_up_model.format.name) == (
        opened.engine,
        "json-array",
        "fenced-array",
    )
    assert opened.traits.tool_prompt.is_template
    assert setup.request([Message.user("1?")], [TOOL], Sampling()).call_bias == 5.0
    with pytest.raises(UsageError, match="runs here"):
        set_up(opened, setup)


def test_a_setup_is_described_as_before_unless_it_names_a_prompt_or_a_bias():
    assert list(NAMED["free"].describe()) == ["choice", "constrained", "repairs", "parallel", "guards"]
    described = Setup("mine", prompt="json-array", bias=5.0).describe()
    assert (described["prompt"], described["bias"], len(described["words"])) == ("json-array", 5.0, 12)
