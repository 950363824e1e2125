"""Mistral. Up to Nemo and Large 2, an array with ids; from Small 3.2 on, a name and its arguments.

    [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "a1b2c3d4e"}]
    [TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{}

The markers are the same, so each of the two formats also reads the other.
"""

from callsmith.formats.algebra import ARGS, ID, NAME, Calls, Format, Thinks, obj, opt

NINE = "[a-zA-Z0-9]{9}"
THINKS = Thinks("[THINK]", "[/THINK]")
ARRAY = Calls(
    obj(("name", NAME), ("arguments", ARGS), ("id", ID)),
    open=("[TOOL_CALLS]", opt(" [")), between=", ", close=("]",),
)  # fmt: skip
BARE = Calls(obj(("name", NAME), ("arguments", ARGS)), open=("[",), between=", ", close=("]",))
NAMED = Calls("[TOOL_CALLS]", NAME, opt("[CALL_ID]", ID), opt("[ARGS]"), ARGS)

MISTRAL = Format(name="mistral", parts=(THINKS, ARRAY, NAMED, BARE), ids=NINE, drop=("</s>", "[/TOOL_CALLS]"))
MISTRAL_ARGS = Format(
    name="mistral-args",
    parts=(THINKS, NAMED, ARRAY, BARE),
    aliases=("ministral", "devstral"),
    ids=NINE,
    drop=("</s>", "[/TOOL_CALLS]"),
)
