"""Formats of no family: for models that were not trained on one, and what models write without one.

<tool_call>
<name>get_weather</name>
<arguments>{"city": "Paris"}</arguments>
</tool_call>
"""

from callsmith.formats.algebra import ARGS, KEY, NAME, PYTHON, VALUE, Calls, Format, Quotes, any_, each, obj

ENVELOPE = obj(("name", NAME), ("arguments", ARGS))

GENERIC_XML = Format(
    name="generic-xml",
    parts=(
        Calls(
            "<tool_call>\n", "<name>", NAME, "</name>\n", "<arguments>", ARGS, "</arguments>\n", "</tool_call>",
            between="\n",
        ),
    ),
)  # fmt: skip
FENCED_JSON = Format(name="fenced-json", parts=(Calls(any_("```json\n", "```"), ENVELOPE, "\n```", between="\n"),))
FENCED_ARRAY = Format(
    name="fenced-array",
    parts=(Calls(ENVELOPE, open=(any_("```json\n", "```"), "["), between=", ", close=("]", "\n```")),),
)
FENCED_PYTHON = Format(
    name="fenced-python",
    parts=(
        Calls(
            NAME, "(", each(KEY, "=", VALUE, between=", "), ")",
            open=(any_("```python\n", "```py\n", "```"),), between="\n", close=("\n```",), values=PYTHON,
        ),
    ),
)  # fmt: skip
PLAIN_CALL = Format(  # `get_weather(city='Paris')` in the text, recognized by the name of a tool, except in quoted code
    name="plain-call",
    parts=(
        Quotes("```", "```"),
        Quotes("`", "`", one_line=True),
        Calls(NAME, "(", each(KEY, "=", VALUE, between=", "), ")", between="\n", values=PYTHON),
    ),
)
JSON_OBJECT = Format(name="json", parts=(Calls(ENVELOPE, between="\n"),), aliases=("bare-json",))
