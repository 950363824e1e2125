"""DeepSeek V3.2 and V4: DSML, elements whose parameters say whether they are strings.

<｜DSML｜function_calls>
<｜DSML｜invoke name="get_weather">
<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>
"""

from callsmith.formats.layout import KEY, NAME, TYPE, VALUE, Calls, Format, Raw, Thinks, any_, each, opt

D = "｜DSML｜"
THINKS = Thinks("<think>", "</think>\n\n", ended_by_calls=True)


def _dsml(*sections: str) -> Calls:
    return Calls(
        f'<{D}invoke name="', NAME, any_('">\n', '"/>'),
        each(f'<{D}parameter name="', KEY, opt('" string="', TYPE), '">', VALUE, f"</{D}parameter>\n"), f"</{D}invoke>\n",
        open=(any_(*(f"<{D}{name}>\n" for name in sections)),), close=(any_(*(f"</{D}{name}>" for name in sections)),),
        values=Raw(flags=(("true", "string"), ("false", "json")), trim=False),
    )  # fmt: skip


V32 = Format(name="deepseek-v32", parts=(THINKS, _dsml("function_calls", "tool_calls")), aliases=("deepseekv32", "deepseek-v3.2"))
V4 = Format(name="deepseek-v4", parts=(THINKS, _dsml("tool_calls", "function_calls")), aliases=("deepseekv4",))
