"""A format and a preset for models that nobody else knows."""

from callsmith.formats.algebra import ARGS, NAME, Calls, Format, obj
from callsmith.models.presets import Preset

# A call is written as: <do>{"tool": "get_time", "with": {}}</do>
FORMAT = Format(name="kitchen", parts=(Calls("<do>", obj(("tool", NAME), ("with", ARGS)), "</do>", between="\n"),))
PRESETS = (Preset("kitchen-models", ("*kitchen-model*",), formats=(FORMAT,), policy="required_first_hop", guards=("small",)),)
