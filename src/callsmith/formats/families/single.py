"""Families that put a marker before each JSON object.

<function_call> {"name": "get_weather", "arguments": {"city": "Paris"}}
<|action_start|><|plugin|>{"name": "get_weather", "parameters": {"city": "Paris"}}<|action_end|>
"""

from callsmith.formats.algebra import ARGS, ID, NAME, Calls, Format, Says, Thinks, obj, opt

NAMED = obj(("name", NAME), ("arguments", ARGS))

GRANITE_20B_FC = Format(name="granite-20b-fc", parts=(Calls("<function_call> ", NAMED, between="\n"),))
INTERNLM = Format(
    name="internlm",
    aliases=("interns1", "internlm2"),
    parts=(
        Thinks("<think>", "</think>"),
        Calls("<|action_start|>", opt("<|plugin|>"), obj(("name", NAME), ("parameters", ARGS)), "<|action_end|>"),
    ),
)
EMPTY_MESSAGE = opt("assistant<|role_sep|>\n", "<|message_sep|>\n\n", write=False)
GIGACHAT3 = Format(
    name="gigachat3",
    parts=(
        Calls("<|message_sep|>\n\n", EMPTY_MESSAGE, "function call<|role_sep|>\n", NAMED, most=1),
        Calls("<|function_call|>", NAMED, most=1),
        Calls("function call", opt("<|role_sep|>\n"), NAMED, most=1),
    ),
    drop=("</s>", "<|message_sep|>", "assistant<|role_sep|>"),
)
GIGACHAT31 = Format(name="gigachat31", parts=(Calls("<|function_call|>", NAMED, most=1),), drop=("</s>",))
FUNCTIONARY_V31 = Format(name="functionary-v31", parts=(Calls("<function=", NAME, ">", ARGS, "</function>"),))
SOLAR_OPEN = Format(
    name="solar-open",
    aliases=("solar",),
    parts=(
        Thinks("<|think|>", "<|end|>"),
        Says("<|content|>", "<|end|>"),
        Calls(
            "<|tool_call:begin|>", ID, "<|tool_call:name|>", NAME, "<|tool_call:args|>", ARGS, "<|tool_call:end|>",
            open=("<|tool_calls|>",), close=("<|calls|>",),
        ),
    ),
    drop=("<|begin|>assistant",),
)  # fmt: skip
