"""MiniMax. M2 writes `invoke` elements; M3 nested elements, every tag behind a marker of its own.

<minimax:tool_call>
<invoke name="get_weather">
<parameter name="city">Paris</parameter>
</invoke>
</minimax:tool_call>

]<]minimax[>[<tool_call>
]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Paris]<]minimax[>[</city>]<]minimax[>[</invoke>
]<]minimax[>[</tool_call>
"""

from callsmith.formats.algebra import KEY, NAME, RAW, VALUE, Calls, Format, Nested, Thinks, any_, each

MARK = "]<]minimax[>["

M2 = Format(
    name="minimax-m2",
    parts=(
        Thinks("<think>\n", "\n</think>\n\n", ended_by_calls=True),
        Calls(
            any_('<invoke name="', "<invoke name='", "<invoke name="), NAME, any_('">\n', '"/>', '" />', "'>", "'/>", ">"),
            each(
                any_('<parameter name="', "<parameter name='", "<parameter name="), KEY, any_('">', "'>", ">"), VALUE,
                "</parameter>\n",
            ),
            "</invoke>\n",
            open=("<minimax:tool_call>\n",), close=("</minimax:tool_call>",), values=RAW,
        ),
    ),
    drop=("[e~[",),
)  # fmt: skip
M3 = Format(
    name="minimax-m3",
    parts=(
        Thinks("<mm:think>", "</mm:think>"),
        Calls(
            f'{MARK}<invoke name="', NAME, '">', each(f"{MARK}<", KEY, ">", VALUE, f"{MARK}</", KEY, ">"), f"{MARK}</invoke>\n",
            open=(f"{MARK}<tool_call>\n",), close=(f"{MARK}</tool_call>",), values=Nested(prefix=MARK),
        ),
    ),
)  # fmt: skip
