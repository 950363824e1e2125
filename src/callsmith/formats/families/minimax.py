"""MiniMax M3: nested elements, every tag behind a marker of its own.

]<]minimax[>[<tool_call>
]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Paris]<]minimax[>[</city>]<]minimax[>[</invoke>
]<]minimax[>[</tool_call>
"""

from callsmith.formats.layout import KEY, NAME, VALUE, Calls, Format, Nested, Thinks, each

MARK = "]<]minimax[>["

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
