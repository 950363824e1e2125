"""Hermes: Qwen 2.5 and 3, QwQ, Hermes 2 and 3, and many fine-tunes.

<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>
"""

from callsmith.formats.layout import ARGS, NAME, Calls, Format, Thinks, obj

FORMAT = Format(
    name="hermes",
    aliases=("qwen", "qwen25", "qwen2.5", "qwen3", "trinity"),
    parts=(
        Thinks("<think>\n", "\n</think>\n\n"),
        Calls("<tool_call>\n", obj(("name", NAME), ("arguments", ARGS)), "\n</tool_call>", between="\n"),
    ),
)
