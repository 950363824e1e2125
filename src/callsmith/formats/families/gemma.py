"""Gemma 4: a relaxed dict, its strings between special tokens.

<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>
"""

from callsmith.formats.layout import ARGS, NAME, Calls, Format, Notation, Thinks, any_

GEMMA4 = Format(
    name="gemma4",
    parts=(
        Thinks((any_("<|channel>thought\n", "<|channel>"),), "<channel|>"),
        Calls(
            "<|tool_call>", "call:", NAME, ARGS, "<tool_call|>",
            values=Notation(quotes=('<|"|>',), bare_keys=True, escapes=False, item_separator=",", key_separator=":"),
        ),
    ),
)  # fmt: skip
