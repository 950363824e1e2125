"""Pythonic: a list of Python calls (Llama 3.2 and 4, ToolACE).

[get_weather(city='Paris', days=3), get_time()]
"""

from callsmith.formats.layout import KEY, NAME, PYTHON, VALUE, Calls, Format, each

FORMAT = Format(
    name="pythonic",
    parts=(
        Calls(
            NAME, "(", each(KEY, "=", VALUE, between=", "), ")",
            open=("[",), between=", ", close=("]",), values=PYTHON,
        ),
    ),
)  # fmt: skip
