"""Muse Glimmer: every message names its recipient; a call is a message to the tool.

    <|start|>assistant to=self<|message|>Need the weather.<|eom|>
    <|start|>assistant to=get_weather<|message|><atem:function_calls>
    <atem:invoke name="get_weather">
    <atem:parameter name="city">Paris</atem:parameter>
    </atem:invoke>
    </atem:function_calls><|eom|>

The prompt ends in `<|start|>assistant`.
"""

from callsmith.formats.algebra import KEY, NAME, RAW, SKIP, VALUE, Calls, Format, Says, Thinks, any_, each, opt

START = opt("<|start|>assistant")
END = any_("<|eom|>", "<|eot|>")

FORMAT = Format(
    name="muse-glimmer",
    aliases=("muse",),
    parts=(
        Thinks((START, " to=self", "<|message|>"), (END,)),
        Says((START, " to=user", "<|message|>"), (END,), ended_by_calls=False),
        Calls(
            START, " to=", NAME, "<|message|>", "<atem:function_calls>\n", '<atem:invoke name="', NAME, '">\n',
            each('<atem:parameter name="', KEY, '">', VALUE, "</atem:parameter>\n"),
            "</atem:invoke>\n", "</atem:function_calls>", END,
            values=RAW,
        ),
        Says((START, opt(" to=", SKIP), "<|message|>"), (END,)),
    ),
)  # fmt: skip
