"""Pythonic: Python calls in a list (Llama 3.2 and 4, ToolACE, LFM2), or one a line (OLMo 3).

[get_weather(city='Paris', days=3), get_time()]
<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>
"""

from callsmith.formats.algebra import ARGS, KEY, NAME, PYTHON, VALUE, Calls, Format, Nodes, Thinks, each, obj, opt

TURNS = ("<|eot|>", "<|eom|>")  # Llama 4's ends of a turn
CALL = (NAME, "(", each(KEY, "=", VALUE, between=", "), ")")


def _python(open: Nodes, close: Nodes, between: str = ", ") -> Calls:
    return Calls(*CALL, open=open, between=between, close=close, values=PYTHON)


PYTHONIC = Format(
    name="pythonic",
    parts=(_python((opt("<|python_start|>", write=False), "["), ("]", opt("<|python_end|>", write=False))),),
    drop=TURNS,
)
LLAMA4_PYTHONIC = Format(
    name="llama4-pythonic",
    parts=(
        _python((opt("<|python_start|>"), "["), ("]", opt("<|python_end|>"))),
        _python(("<|python_start|>",), ("<|python_end|>",)),
    ),
    drop=TURNS,
)
LFM2 = Format(
    name="lfm2",
    parts=(
        Thinks("<think>\n", "\n</think>\n\n"),
        _python(("<|tool_call_start|>", "["), ("]", "<|tool_call_end|>")),
        _python(("<|tool_call_start|>",), ("<|tool_call_end|>",)),
        Calls(
            obj(("name", NAME), ("arguments", ARGS)),
            open=("<|tool_call_start|>", opt("[")), between=", ", close=(opt("]"), "<|tool_call_end|>"),
        ),
    ),
)  # fmt: skip
OLMO3 = Format(
    name="olmo3",
    parts=(
        Thinks("<think>\n", "\n</think>\n\n"),
        _python(("<function_calls>\n",), ("\n</function_calls>",), "\n"),
        _python(("<function_calls>\n", "["), ("]", "\n</function_calls>")),
    ),
)
