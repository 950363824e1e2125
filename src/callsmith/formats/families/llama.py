"""Llama 3: one bare JSON object, sometimes behind a tag.

{"name": "get_weather", "parameters": {"city": "Paris"}}
<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "get_time", "parameters": {}}
"""

from callsmith.formats.layout import ARGS, NAME, Calls, Format, obj, opt

FORMAT = Format(
    name="llama3-json",
    aliases=("llama3", "llama4-json", "llama32"),
    parts=(Calls(opt("<|python_tag|>", write=False), obj(("name", NAME), ("parameters", ARGS)), between="; "),),
)
