"""The starter tools: a clock, a calculator and a unit converter. They run here, reach nothing and change nothing."""

from dataclasses import replace

from callsmith.tools.functions import Function, Functions
from callsmith.tools.starter.calculator import calculate
from callsmith.tools.starter.clock import current_time
from callsmith.tools.starter.units import convert_units

STARTER_TOOLS = (current_time, calculate, convert_units)
SOURCE = "starter"

__all__ = ["SOURCE", "STARTER_TOOLS", "calculate", "convert_units", "current_time", "starter_toolset"]


def starter_toolset() -> Functions:
    """The starter tools as a toolset. They say where they come from, so that nobody takes them for tools that were given."""
    functions = (Function.of(function) for function in STARTER_TOOLS)
    return Functions(*(replace(function, tool=replace(function.tool, source=SOURCE)) for function in functions))
