"""Kimi K3 (XTML): elements of special tokens, each argument with its type.

<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris
<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
"""

from callsmith.formats.layout import INDEX, KEY, NAME, TYPE, VALUE, Calls, Format, Raw, Says, Thinks, each, opt

TYPES = ("string", "number", "boolean", "null", "array", "object")

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
            values=Raw(flags=tuple((kind, kind) for kind in TYPES), trim=False, entities=True),
        ),
    ),
    drop=("<|close|>message<|sep|>", "<|end_of_msg|>"),
)  # fmt: skip
