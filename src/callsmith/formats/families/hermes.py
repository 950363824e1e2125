"""Hermes: Qwen 2.5 and 3, QwQ, Hermes 2 and 3, SmolLM3, MiniCPM-V, and many fine-tunes.

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

`qwen25` takes it at its word: without these newlines it is no call.

LongCat writes `<longcat_tool_call>`; ERNIE 4.5 frames its answers in `<response>`.
"""

from callsmith.formats.algebra import ARGS, NAME, Calls, Format, Says, Thinks, obj

THINKS = Thinks("<think>\n", "\n</think>\n\n")
ENVELOPE = obj(("name", NAME), ("arguments", ARGS))
CALLS = Calls("<tool_call>\n", ENVELOPE, "\n</tool_call>", between="\n")

HERMES = Format(
    name="hermes",
    aliases=("qwen", "qwen2.5", "qwen3", "trinity", "smollm3", "minicpm-v", "bielik", "reka-edge"),
    parts=(THINKS, CALLS),
)
QWEN25 = Format(name="qwen25", parts=(THINKS, Calls("<tool_call>\n", ENVELOPE, "\n</tool_call>", between="\n", exact=True)))
GRANITE4 = Format(name="granite4", parts=(CALLS,))
LONGCAT = Format(
    name="longcat",
    parts=(
        THINKS,
        Thinks("<longcat_think>", "</longcat_think>"),
        Calls("<longcat_tool_call>", ENVELOPE, "</longcat_tool_call>", between="\n"),
        CALLS,
    ),
)
ERNIE45 = Format(name="ernie45", parts=(THINKS, Says("<response>\n", "\n</response>\n"), CALLS), aliases=("ernie-4.5",))
