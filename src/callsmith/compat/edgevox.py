"""The names of EdgeVox's "Tool calling".

    agent = LLMAgent(name="kitchen", tools=[get_time, set_light], tool_choice_policy="required_first_hop")
    reply = await agent.conversation(model).send("Light on, please.")

The three grammars are GBNF, and mean what EdgeVox's ADR-003 (docs/adr/003-grammar-constrained-decoding.md of its code) says:
exactly one call of one of the tools, `{"name": …, "arguments": …}`; exactly one call of that tool; or, at the top level, such a
call or a reply in words. A reply does not begin with a brace, so that what does is a valid call.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from callsmith.core.values import Choice, ChoicePolicy, Json, Output, Tool
from callsmith.formats import format_named
from callsmith.formats.inference.find_calls import find_calls
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.targets.gbnf import to_gbnf
from callsmith.runtime.conversation.agent import Agent
from callsmith.runtime.deferred import GivenTools
from callsmith.runtime.guards.guards import default_guards
from callsmith.wire.fields import Fields
from callsmith.wire.tools import read_tools

default_slm_hooks = default_guards
_JSON = format_named("json")
_REPLY = Output(pattern=r"([^\s{][\s\S]*)?")


def LLMAgent(
    name: str = "agent",
    description: str = "",
    instructions: str = "",
    tools: GivenTools | None = None,
    *,
    tool_choice_policy: ChoicePolicy = "auto",
    hooks: Iterable[str] = (),
) -> Agent:
    return Agent(name, description, instructions, tools, tool_choice_policy, tuple(hooks))


def parse_tool_calls_from_content(
    content: str, tools: Iterable[Tool | Mapping[str, Any]] = ()
) -> tuple[list[dict[str, Json]], str, bool]:
    """The calls in a text, the text without them and without reasoning, and whether there are any."""
    parsed = find_calls(content, _tools(tools))
    calls = [{"id": call.id, "function": {"name": call.name, "arguments": call.text}} for call in parsed.calls]
    return calls, parsed.content, parsed.fallback


def tool_call_grammar(tools: Iterable[Tool | Mapping[str, Any]]) -> str:
    return _gbnf(tools, Choice("required"))


def single_tool_grammar(tool: Tool | Mapping[str, Any]) -> str:
    return _gbnf([tool], Choice("required"))


def reply_or_tool_grammar(tools: Iterable[Tool | Mapping[str, Any]]) -> str:
    return _gbnf(tools, Choice("auto"), _REPLY)


def _gbnf(tools: Iterable[Tool | Mapping[str, Any]], choice: Choice, output: Output | None = None) -> str:
    grammar = grammar_for(_JSON, _tools(tools), choice, parallel=False, output=output)
    assert grammar is not None  # there is a call or an output
    return to_gbnf(grammar).text


def _tools(definitions: Iterable[Tool | Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Tools of ours, or as OpenAI's API has them (`Functions.openai_schemas`)."""
    read = (
        (item,) if isinstance(item, Tool) else read_tools([Fields(item.get("function", item))], "parameters")
        for item in definitions
    )
    return tuple(tool for tools in read for tool in tools)
