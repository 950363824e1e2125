"""Apertus: an array of objects whose only key is the tool's name.

<|tools_prefix|>[{"get_weather": {"city": "Paris"}}, {"get_time": {}}]<|tools_suffix|>
"""

from callsmith.formats.algebra import ARGS, NAME, Calls, Format, Thinks, obj

FORMAT = Format(
    name="apertus",
    aliases=("apertus2509",),
    parts=(
        Thinks("<|inner_prefix|>", "<|inner_suffix|>", ended_by_calls=True),
        Calls(obj((NAME, ARGS)), open=("<|tools_prefix|>", "["), between=", ", close=("]", "<|tools_suffix|>")),
    ),
    drop=("<|assistant_end|>",),
)
