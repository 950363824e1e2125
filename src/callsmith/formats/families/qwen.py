"""Qwen3-Coder and its heirs: Qwen 3.5 and later, Nemotron 3, Step 3.5, MiMo V2. Seed-OSS writes the same in its own tags.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

A call may begin without `</think>`, and without `<tool_call>`. Some put names between quotes, or fall back to Hermes' JSON.
"""

from callsmith.formats.algebra import KEY, NAME, RAW, VALUE, Calls, Format, Thinks, any_, each, opt
from callsmith.formats.families.hermes import CALLS as HERMES

QWEN3_CODER = Format(
    name="qwen3-coder",
    aliases=("qwen3-xml", "qwen3.5", "mimo", "nemotron-v3", "step3p5", "step3.5"),
    parts=(
        Thinks("<think>\n", "\n</think>\n\n", ended_by_calls=True),
        Calls(
            opt("<tool_call>\n"), any_("<function=", '<function="', '<function name="'), NAME,
            any_(">\n", '">\n', "/>", " />", '"/>', '" />'),
            each(
                any_("<parameter=", '<parameter="', '<parameter name="'), KEY, any_(">\n", '">\n'), VALUE, "\n</parameter>\n",
            ),
            "</function>", opt("\n</tool_call>"),
            between="\n", values=RAW,
        ),
        HERMES,
    ),
)  # fmt: skip
SEED_OSS = Format(
    name="seed-oss",
    parts=(
        Thinks("<seed:think>\n", "\n</seed:think>\n", ended_by_calls=True),
        Calls(
            opt("<seed:tool_call>\n"), "<function=", NAME, any_(">\n", "/>", " />"),
            each("<parameter=", KEY, ">", VALUE, "</parameter>\n"),
            "</function>", opt("\n</seed:tool_call>"),
            between="\n", values=RAW,
        ),
    ),
    drop=("<seed:eos>",),
)  # fmt: skip
