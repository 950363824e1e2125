"""Schemas nested deeper than Python can follow: a client's mistake, whatever they are for and however they nest."""

from collections.abc import Callable
from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.values import Choice, Output, Tool
from callsmith.formats import format_named
from callsmith.grammar.nodes import Grammar
from callsmith.models.grammars import Grammars


def references(depth: int) -> Any:
    links = {f"d{n}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(depth)}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": links | {f"d{depth}": {"type": "string"}}}


def nested(depth: int, around: Callable[[Any], Any]) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = around(schema)
    return {"type": "object", "properties": {"a": schema}}


SCHEMAS: dict[str, Callable[[int], Any]] = {
    "references": references,
    "objects": lambda depth: nested(depth, lambda inner: {"type": "object", "properties": {"a": inner}, "required": ["a"]}),
    "arrays": lambda depth: nested(depth, lambda inner: {"type": "array", "items": inner}),
    "unions": lambda depth: nested(depth, lambda inner: {"anyOf": [inner, {"type": "integer"}]}),
    "intersections": lambda depth: nested(depth, lambda inner: {"allOf": [inner]}),
}


@pytest.mark.parametrize("format", ["hermes", "qwen3-coder", "pythonic"])
@pytest.mark.parametrize("make", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("depth", [100, 250, 400, 2000])
def test_no_depth_is_more_than_a_usage_error(format: str, make: Callable[[int], Any], depth: int):
    grammars = Grammars(format_named(format))
    for tools, output in (((Tool("t", "", make(depth)),), None), ((), Output(schema=make(depth)))):
        try:
            grammar = grammars.get(tools, Choice("required" if tools else "auto"), output=output)
        except UsageError:
            continue
        assert isinstance(grammar, Grammar)
