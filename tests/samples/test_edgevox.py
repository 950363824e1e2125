"""The samples of EdgeVox's page on tool calling."""

from typing import Any

import pytest

from callsmith import Functions
from callsmith.compat.edgevox import (
    LLMAgent,
    default_slm_hooks,
    parse_tool_calls_from_content,
    reply_or_tool_grammar,
    single_tool_grammar,
    tool_call_grammar,
)
from tests.capabilities.chatting import called, scripted_model
from tests.grammar.targets.llama_grammar import LlamaGrammar, missing

ran: list[tuple[str, Any]] = []


def get_time() -> str:
    """The time."""
    return "noon"


def set_light(room: str, on: bool) -> str:
    """Switch a light."""
    ran.append((room, on))
    return "done"


def set_temp(degrees: float) -> str:
    """Set the temperature."""
    return "done"


@pytest.mark.req("R34")
async def test_the_kitchen_agent() -> None:
    agent = LLMAgent(
        name="kitchen",
        description="Home-kitchen assistant",
        instructions="Help in the kitchen.",
        tools=[get_time, set_light, set_temp],
        tool_choice_policy="required_first_hop",  # forces structured first-hop call
        hooks=default_slm_hooks(),  # safety net
    )

    ran.clear()
    engine, model = scripted_model(called(("set_light", {"room": "kitchen", "on": True})), "The light is on.")
    assert (await agent.conversation(model).send("Light on, please.")).text == "The light is on."
    assert ran == [("kitchen", True)]
    assert [asked.grammar is not None for asked in engine.asked] == [True, False]


@pytest.mark.req("R33")
async def test_an_agent_is_left_alone_unless_it_says_otherwise() -> None:
    engine, model = scripted_model("It is noon.")
    assert (await LLMAgent(tools=[get_time]).conversation(model).send("What time is it?")).text == "It is noon."
    assert [asked.grammar for asked in engine.asked] == [None]


@pytest.mark.req("R53")
def test_think_block_handling() -> None:
    raw = '<think>Let me check.\n<tool_call>{"name":"get_time","arguments":{}}</tool_call>\n</think>One moment.'
    calls, cleaned, fallback = parse_tool_calls_from_content(raw)
    assert [{**call, "id": "..."} for call in calls] == [{"id": "...", "function": {"name": "get_time", "arguments": "{}"}}]
    assert calls[0]["id"]
    assert cleaned == "One moment."
    assert fallback is True


CALL = '{"name": "set_light", "arguments": {"room": "kitchen", "on": true}}'
TIME = '{"name": "get_time", "arguments": {}}'
WRONG = (
    '{"name": "set_lihgt", "arguments": {"room": "kitchen", "on": true}}',  # no such tool
    '{"name": "set_light", "arguments": {"room": "kitchen", "on": true}',  # not closed
    '{"name": "set_light", "arguments": {"room": "kitchen", "on": "yes"}}',  # not a boolean
    '{"name": "set_light", "arguments": {"room": "kitchen"}}',  # not all that is required
    CALL + CALL,  # exactly one
)
TOOLS = Functions(get_time, set_light).openai_schemas()


asked_of_llama_cpp = pytest.mark.skipif(missing() != "", reason=missing())


def accepted(grammar: str, *texts: str) -> list[bool]:
    """Which of the texts llama.cpp takes as a whole under this grammar."""
    return [LlamaGrammar(grammar).accepts(text) for text in texts]


@asked_of_llama_cpp
@pytest.mark.req("R77")
def test_the_grammar_of_a_required_call_is_exactly_one_call_of_one_of_the_tools() -> None:
    grammar = tool_call_grammar(TOOLS)
    assert accepted(grammar, CALL, TIME, "It is noon.", "", *WRONG) == [True, True, *[False] * 7]


@asked_of_llama_cpp
@pytest.mark.req("R77")
def test_the_grammar_of_a_single_tool_is_exactly_one_call_of_that_one() -> None:
    grammar = single_tool_grammar(TOOLS[1])
    assert accepted(grammar, CALL, TIME, "It is noon.", *WRONG) == [True, *[False] * 7]


@asked_of_llama_cpp
@pytest.mark.req("R77")
def test_the_grammar_of_a_reply_or_a_call_is_one_or_the_other() -> None:
    grammar = reply_or_tool_grammar(TOOLS)
    replies = ("It is noon.", 'Say {"name": "x"}, and it is done.', "Zwölf Uhr\n\n- mittags")
    assert accepted(grammar, CALL, TIME, *replies, *WRONG) == [*[True] * 5, *[False] * 5]
