"""Kimi. K2 writes an id that contains the name; K3 (XTML) elements of special tokens, each argument with its type.

<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}
<|tool_call_end|><|tool_calls_section_end|>

<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris
<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
"""

from callsmith.formats.algebra import (
    ARGS,
    INDEX,
    KEY,
    NAME,
    TYPE,
    VALUE,
    Calls,
    Format,
    Raw,
    Says,
    Thinks,
    any_,
    each,
    ident,
    opt,
)

TYPES = ("string", "number", "boolean", "null", "array", "object")

K2 = Format(
    name="kimi-k2",
    parts=(
        Thinks("<think>", "</think>", ended_by_calls=True),
        Calls(
            "<|tool_call_begin|>", ident(opt("functions."), NAME, opt(":", INDEX)), "<|tool_call_argument_begin|>", ARGS,
            "<|tool_call_end|>",
            open=(any_("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),),
            close=(any_("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),),
        ),
    ),
)  # fmt: skip
K3 = Format(
    name="kimi-k3",
    parts=(
        Thinks("<|open|>think<|sep|>", "<|close|>think<|sep|>", ended_by_calls=True),
        Says("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        Calls(
            '<|open|>call tool="', NAME, opt('" index="', INDEX), '"<|sep|>',
            each('<|open|>argument key="', KEY, opt('" type="', TYPE), '"<|sep|>', VALUE, "<|close|>argument<|sep|>"),
            "<|close|>call<|sep|>",
            open=("<|open|>tools<|sep|>",), close=("<|close|>tools<|sep|>",), index=1,
            values=Raw(flags=tuple((kind, kind) for kind in TYPES), entities=True),
        ),
    ),
    drop=("<|close|>message<|sep|>", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>"),
)  # fmt: skip
