"""Families that write `invoke` elements with `parameter` elements in them.

<invoke name="get_weather">
<parameter name="city">Paris</parameter>
</invoke>
"""

from callsmith.formats.algebra import ARGS, KEY, NAME, RAW, VALUE, Calls, Format, OneOf, Raw, Thinks, any_, each, obj, opt

DOTS = Format(
    name="dots",
    parts=(
        Thinks("<think>", "</think>"),
        Calls(
            '<invoke name="', NAME, any_('">', '"/>', '" />'),
            each('<parameter name="', KEY, '">', VALUE, "</parameter>"), "</invoke>",
            open=("<dots_function_call>",), close=("</dots_function_call>",), values=RAW,
        ),
        Calls(
            obj(("name", NAME), ("arguments", ARGS)),
            open=("<dots_function_call>", opt("[")), between=", ", close=(opt("]"), "</dots_function_call>"),
        ),
    ),
)  # fmt: skip
STEP3 = Format(
    name="step3",
    parts=(
        Thinks("<think>\n", "\n</think>\n"),
        Calls(
            "<｜tool_call_begin｜>", opt("function<｜tool_sep｜>"), '<steptml:invoke name="', NAME, any_('">', '"/>', '" />'),
            each('<steptml:parameter name="', KEY, '">', VALUE, "</steptml:parameter>"),
            "</steptml:invoke>", "<｜tool_call_end｜>",
            open=("<｜tool_calls_begin｜>",), between="\n", close=("<｜tool_calls_end｜>",), values=RAW,
        ),
    ),
)  # fmt: skip


def _make_tag(tag: str) -> OneOf:
    """MiniCPM's tags: either quote, and the space as it is, as its tokenizer's byte, or lost."""
    return any_(*(f"<{tag}{space}name={quote}" for space in (" ", "Ġ", "") for quote in "\"'"))


MINICPM5 = Format(
    name="minicpm5",
    parts=(
        Thinks("<think>\n", "\n</think>\n\n", ended_by_calls=True),
        Calls(
            _make_tag("function"), NAME, any_('">', '"/>', '" />', "'>", "'/>", "' />"),
            each(_make_tag("param"), KEY, any_('">', "'>"), VALUE, "</param>"), "</function>",
            between="\n", values=Raw(cdata=True),
        ),
    ),
)  # fmt: skip
