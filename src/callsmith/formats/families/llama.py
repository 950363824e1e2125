"""Llama 3: one bare JSON object, sometimes behind a tag, in a list, or as its arguments in an element of the tool's name.

{"name": "get_weather", "parameters": {"city": "Paris"}}
<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "get_time", "parameters": {}}
"""

from callsmith.formats.algebra import ARGS, NAME, Calls, Format, any_, obj, opt

ENVELOPE = obj(("name", NAME), ("parameters", ARGS))

FORMAT = Format(
    name="llama3-json",
    aliases=("llama3", "llama4-json", "llama32"),
    parts=(
        Calls(opt("<|python_tag|>", write=False), ENVELOPE, between="; "),
        Calls(ENVELOPE, open=("[",), between=", ", close=("]",)),
        Calls("<function=", NAME, ">", ARGS, "</function>"),
        Calls(any_("```json\n", "```"), ENVELOPE, "\n```"),
    ),
    drop=("<|start_header_id|>assistant<|end_header_id|>",),
)
