"""What is said to a person of a tool that is no longer the one they were asked about."""

from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.values import Tool
from callsmith.tools.wrap.confirming import describe_change

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}
OTHER = {"type": "object", "properties": {"to": {"type": "integer"}}}
TOOL = Tool("send", "Sends it.", SCHEMA)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": "desk"}, "it came from here and now comes from desk"),
        ({"original": "post"}, "it was send there and is now post"),
        ({"description": "Pays."}, "its description was 'Sends it.' and is now 'Pays.'"),
        ({"side_effects": not TOOL.side_effects}, "what it says of its side effects has changed"),
        ({"idempotent": not TOOL.idempotent}, "what it says of its side effects has changed"),
        ({"parameters": OTHER}, 'its parameters have changed:\n-   "type": "string"\n+   "type": "integer"'),
        ({"output": SCHEMA}, "its output has changed:\n-null\n+{"),
    ],
)
def test_what_has_changed_is_said(change: dict[str, Any], words: str) -> None:
    assert describe_change(TOOL, replace(TOOL, **change)).startswith(words)


def test_nothing_is_said_of_a_tool_that_is_the_same_and_everything_of_one_that_is_not() -> None:
    assert describe_change(TOOL, replace(TOOL)) == ""
    changed = describe_change(TOOL, replace(TOOL, source="desk", description="Pays."))
    assert changed == "it came from here and now comes from desk; its description was 'Sends it.' and is now 'Pays.'"


def test_long_texts_are_cut_and_large_schemas_only_counted() -> None:
    assert "x… (301 characters)" in describe_change(TOOL, replace(TOOL, description="x" * 301))
    assert "…" not in describe_change(TOOL, replace(TOOL, description="x" * 300))
    large = {"type": "object", "properties": {f"p{number}": {} for number in range(2000)}}
    assert "characters before" in describe_change(TOOL, replace(TOOL, parameters=large))
    wide = {"type": "object", "properties": {f"p{number}": {} for number in range(40)}}
    assert "more lines)" in describe_change(TOOL, replace(TOOL, parameters=wide))
