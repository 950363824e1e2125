"""GLM 4.5 to 5: keys and values in elements of their own. Ling 3, Poolside Laguna and Tencent Hy3 write much the same.

<tool_call>get_weather
<arg_key>city</arg_key>
<arg_value>Paris</arg_value>
</tool_call>
"""

from callsmith.formats.algebra import KEY, NAME, RAW, VALUE, Calls, Format, OneOf, Thinks, any_, each, opt

THINKS = Thinks("<think>", "</think>\n", ended_by_calls=True)


def _calls(newline: str) -> Calls:
    return Calls(
        "<tool_call>", NAME, newline,
        each("<arg_key>", KEY, f"</arg_key>{newline}", "<arg_value>", VALUE, f"</arg_value>{newline}"),
        "</tool_call>",
        between=newline, values=RAW,
    )  # fmt: skip


TURNS = ("<|observation|>", "<|user|>")  # headers of the next turn, with which the model ends its own
GLM45 = Format(name="glm45", parts=(THINKS, _calls("\n")), aliases=("glm", "glm46", "glm4-moe"), drop=TURNS)
GLM47 = Format(name="glm47", parts=(THINKS, _calls("")), aliases=("ling3", "glm5"), drop=TURNS)
POOLSIDE = Format(name="poolside-v1", parts=(THINKS, _calls("\n")), drop=("<assistant>", "</assistant>"), aliases=("laguna",))


def _tag(name: str, after: str = "") -> OneOf:
    """Hy3 as published on a hub puts a suffix on every tag."""
    return any_(f"<{name}>{after}", f"<{name}:opensource>{after}")


HY_V3 = Format(
    name="hy-v3",
    aliases=("hunyuan", "hy3"),
    parts=(
        Thinks((_tag("think"),), (_tag("/think"),), ended_by_calls=True),
        Calls(
            _tag("tool_call"), NAME, opt(_tag("tool_sep", "\n")),
            each(_tag("arg_key"), KEY, _tag("/arg_key", "\n"), _tag("arg_value"), VALUE, _tag("/arg_value", "\n")),
            _tag("/tool_call"),
            open=(_tag("tool_calls", "\n"),), between="\n", close=("\n", _tag("/tool_calls")), values=RAW,
        ),
    ),
)  # fmt: skip
