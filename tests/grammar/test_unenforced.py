"""Nothing is loosened silently: what a grammar cannot enforce is listed, refused or left out."""

from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.values import Tool
from callsmith.formats import format_named
from callsmith.formats.write import write
from tests.grammar.checking import INTEGER, STRING, call, obj, required, stuck
from tests.work import count_calls

pytestmark = pytest.mark.weights

BOUNDED = obj(
    {
        "list": {"type": "array", "items": INTEGER, "uniqueItems": True},
        "text": {"type": "string", "pattern": "^[a-c]+$", "maxLength": 5},
        "number": {"type": "integer", "minimum": 3, "maximum": 7},
        "both": {"oneOf": [STRING, {"type": "integer"}]},  # which exclude each other, so that either will do
        "several": {"oneOf": [{"type": "array", "items": STRING}, {"type": "array", "items": STRING, "maxItems": 3}]},
        "other": {"type": "string", "not": {"const": "x"}, "description": "said only", "default": "y"},
    },
    "list",
    "text",
    "number",
)
JSON_LEAVES = {("#/properties/list", "uniqueItems"), ("#/properties/several", "oneOf"), ("#/properties/other", "not")}
TEXT_LEAVES = JSON_LEAVES | {("#/properties/text", "pattern"), ("#/properties/text", "maxLength")}


@pytest.mark.parametrize(
    ("name", "unenforced"),
    [
        ("hermes", JSON_LEAVES),
        ("qwen3-coder", TEXT_LEAVES),
        ("kimi-k3", TEXT_LEAVES),
        ("minimax-m3", TEXT_LEAVES),
        ("pythonic", TEXT_LEAVES),
        ("gemma4", TEXT_LEAVES),
    ],
)
def test_what_is_not_enforced_is_listed_and_nothing_else_is_loosened(name: str, unenforced: set[tuple[str, str]]) -> None:
    format, tool = format_named(name), Tool("f", "", BOUNDED)
    grammar = required(format, [tool])
    assert set(grammar.unenforced) == unenforced

    def refused(**arguments: Any) -> bool:
        values = {"list": [1], "text": "abc", "number": 5} | arguments
        return stuck(grammar, write(format, [call(format, "f", values)])) is not None

    assert not refused()
    for path, keyword, broken in [
        ("list", "uniqueItems", [1, 1]),
        ("text", "pattern", "xyz"),
        ("text", "maxLength", "abcabc"),
        ("number", "minimum", 1),
        ("number", "maximum", 8),
        ("other", "not", "x"),
    ]:
        assert refused(**{path: broken}) == ((f"#/properties/{path}", keyword) not in unenforced)
    assert refused(list=["a"])
    assert refused(number="five")
    assert refused(more=1)


def test_what_stands_beside_alternatives_counts_for_each_of_them() -> None:
    either = obj({"a": INTEGER, "b": INTEGER})
    del either["required"]
    either["anyOf"] = [{"required": ["a"]}, {"required": ["b"]}]
    tool = Tool("f", "", obj({"o": either}, "o"))
    for name in ("hermes", "qwen3-coder", "minimax-m3", "pythonic", "gemma4"):
        format = format_named(name)
        grammar = required(format, [tool])
        for inner, fits in [({"a": 1}, True), ({"b": 2}, True), ({"a": 1, "b": 2}, True), ({}, False)]:
            text = write(format, [call(format, "f", {"o": inner})])
            assert (stuck(grammar, text) is None) == fits, text


def test_an_enum_whose_values_plain_text_cannot_tell_apart_keeps_those_it_can() -> None:
    format = format_named("qwen3-coder")
    tool = Tool("f", "", obj({"e": {"enum": ["5", 6, "x"]}}, "e"))
    grammar = required(format, [tool])
    for value, fits in [("5", False), (6, True), ("x", True)]:
        assert (stuck(grammar, write(format, [call(format, "f", {"e": value})])) is None) == fits


def test_a_key_the_format_cannot_write_is_refused() -> None:
    with pytest.raises(UnsupportedSchema, match="cannot write the key"):
        required(format_named("gemma4"), [Tool("f", "", obj({"a:b": STRING}))])


def test_the_cost_of_a_grammar_grows_with_the_tools_and_not_faster() -> None:
    def cost(count: int) -> int:
        names = [f"{count}_{number}" for number in range(count)]  # which nothing has been remembered of
        tools = [Tool(f"f{name}", "", obj({f"a{name}": STRING, f"b{name}": INTEGER})) for name in names]
        return count_calls(lambda: required(format_named("pythonic"), tools))

    cost(1)
    assert cost(400) < cost(50) * 8 * 1.5
