"""Gemma 4 and FunctionGemma: a relaxed dict, its strings between special tokens.

<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>
<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>
"""

from callsmith.formats.algebra import ARGS, NAME, Calls, Format, Notation, Thinks, opt


def _make_notation(quote: str) -> Notation:
    return Notation(quotes=(quote,), bare_keys=True, escapes=False, item_separator=",", key_separator=":")


GEMMA4 = Format(
    name="gemma4",
    aliases=("gemma",),
    parts=(
        Thinks(("<|channel>", opt("thought\n")), "<channel|>"),
        Calls("<|tool_call>", "call:", NAME, ARGS, "<tool_call|>", values=_make_notation('<|"|>')),
        Calls("<|tool_call>", NAME, ARGS, "<tool_call|>", values=_make_notation('<|"|>')),
    ),
    drop=(
        "<turn|>",
        "<|tool_response>",
        "thought\n",
    ),  # the last is all that servers which strip tokens leave of an empty thought
)
FUNCTIONGEMMA = Format(
    name="functiongemma",
    parts=(Calls("<start_function_call>", "call:", NAME, ARGS, "<end_function_call>", values=_make_notation("<escape>")),),
    drop=("<start_function_response>",),
)
