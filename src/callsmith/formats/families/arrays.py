"""Families that write one JSON array of calls, each family between its own markers.

<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "get_time", "arguments": {}}]</TOOLCALL>
"""

from callsmith.formats.algebra import ARGS, ID, NAME, Calls, Format, Nodes, Obj, Says, Thinks, any_, obj, opt

NAMED = obj(("name", NAME), ("arguments", ARGS))
THINKS = Thinks("<think>\n", "\n</think>\n\n")


def _array(open: Nodes, close: Nodes, envelope: Obj = NAMED, between: str = ", ") -> Calls:
    return Calls(envelope, open=open, between=between, close=close)


TAGGED = _array(("<tool_calls>", "["), ("]", "</tool_calls>"))

JAMBA = Format(name="jamba", parts=(_array(("<tool_calls>", "[\n    "), ("\n]", "</tool_calls>"), between=",\n    "),))
HUNYUAN_A13B = Format(name="hunyuan-a13b", parts=(THINKS, Says("<answer>\n", "\n</answer>"), TAGGED))
APRIEL = Format(
    name="apriel",
    parts=(Thinks("Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n"), TAGGED),
    drop=("[END FINAL RESPONSE]", "<|end|>"),
)
NEMOTRON_V2 = Format(name="nemotron-v2", parts=(THINKS, _array(("<TOOLCALL>", "["), ("]", "</TOOLCALL>"))))
GRANITE = Format(
    name="granite",
    aliases=("granite3", "granite-3"),
    parts=(
        Thinks("<think>", "</think>"),
        Says("<response>", "</response>"),
        _array(
            (any_("<|tool_call|>", "<tool_call>"), opt("[")), (opt("]"), opt(any_("</tool_call>", "<|/tool_call|>"), write=False))
        ),
        _array(("[",), ("]",)),
    ),
)
PHI4_MINI = Format(
    name="phi4-mini",
    aliases=("phi4-mini-json", "firefunction", "firefunction-v2"),
    parts=(
        _array((any_("functools", " functools"), "["), ("]",)),
        _array(("<|tool_call|>", opt("[")), (opt("]"), opt("<|/tool_call|>"))),
    ),
    drop=("<|end|>",),
)
XLAM = Format(
    name="xlam",
    parts=(
        THINKS,
        _array(("[",), ("]",)),
        _array((any_("<tool_call>", "[TOOL_CALLS]", "```json\n", "```"), opt("[")), (opt("]"), opt(any_("</tool_call>", "```")))),
    ),
)
JSON_ARRAY = Format(name="json-array", parts=(_array(("[",), ("]",), obj(("name", NAME), ("parameters", ARGS))),))
MINIMAX_M1 = Format(name="minimax-m1", parts=(THINKS, _array(("<tool_calls>\n",), ("\n</tool_calls>",), between="\n"), TAGGED))
COHERE_COMMAND_R = Format(
    name="cohere-command-r",
    aliases=("command-r",),
    parts=(_array(("Action:\n", "```json\n", "["), ("]", "\n```"), obj(("tool_name", NAME), ("parameters", ARGS))),),
)
COHERE_COMMAND = Format(
    name="cohere-command3",
    aliases=("cohere-command4", "command-r7b", "command-a", "cohere2moe"),
    parts=(
        Thinks("<|START_THINKING|>", "<|END_THINKING|>"),
        Says("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        Says("<|START_TEXT|>", "<|END_TEXT|>"),
        _array(
            ("<|START_ACTION|>", "[\n    "), ("\n]", "<|END_ACTION|>"),
            obj(("tool_call_id", ID), ("tool_name", NAME), ("parameters", ARGS)), ",\n    ",
        ),
    ),
    ids="[0-9]{1,3}",
)  # fmt: skip
