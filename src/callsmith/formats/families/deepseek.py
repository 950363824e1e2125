"""DeepSeek. V3 and R1 fence the arguments, V3.1 does not; V3.2 and V4 write DSML, whose parameters carry a flag for strings.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

<｜DSML｜function_calls>
<｜DSML｜invoke name="get_weather">
<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>
"""

from callsmith.formats.algebra import ARGS, KEY, NAME, TYPE, VALUE, Calls, Format, Nodes, Raw, Thinks, any_, each, opt

THINKS = Thinks("<think>\n", "\n</think>\n\n", ended_by_calls=True)
D = "｜DSML｜"


def _make_calls(body: Nodes, between: str) -> Calls:
    return Calls(
        "<｜tool▁call▁begin｜>", *body, "<｜tool▁call▁end｜>",
        open=("<｜tool▁calls▁begin｜>",), between=between, close=("<｜tool▁calls▁end｜>",),
    )  # fmt: skip


FENCED = _make_calls(("function<｜tool▁sep｜>", NAME, "\n```json\n", ARGS, "\n```"), "\n")
FUNCTION = opt("function<｜tool▁sep｜>", write=False)
PLAIN = _make_calls((FUNCTION, NAME, "<｜tool▁sep｜>", ARGS), "")
LOOSE = _make_calls((FUNCTION, NAME, opt("<｜tool▁sep｜>"), ARGS), "")


def _dsml(*sections: str) -> Calls:
    return Calls(
        f'<{D}invoke name="', NAME, any_('">\n', '"/>', '" />'),
        each(f'<{D}parameter name="', KEY, opt('" string="', TYPE), '">', VALUE, f"</{D}parameter>\n"), f"</{D}invoke>\n",
        open=(any_(*(f"<{D}{name}>\n" for name in sections)),), close=(any_(*(f"</{D}{name}>" for name in sections)),),
        values=Raw(flags=(("true", "string"), ("false", "json"))),
    )  # fmt: skip


V3 = Format(name="deepseek-v3", parts=(THINKS, FENCED, LOOSE), aliases=("deepseekv3", "deepseek-r1"))
V31 = Format(name="deepseek-v31", parts=(THINKS, PLAIN, LOOSE), aliases=("deepseekv31", "deepseek-v3.1"))
V32 = Format(name="deepseek-v32", parts=(THINKS, _dsml("function_calls", "tool_calls")), aliases=("deepseekv32", "deepseek-v3.2"))
V4 = Format(name="deepseek-v4", parts=(THINKS, _dsml("tool_calls", "function_calls")), aliases=("deepseekv4",))
