"""Text of others in a terminal and in Markdown."""

import json
from xml.etree import ElementTree

import pytest

from callsmith.core.types.escaped_text import in_markdown, show_hidden


@pytest.mark.parametrize(
    ("text", "shown"),
    [("qwen2.5-coder", "qwen2.5-coder"), ("<b>", "`<b>`"), ("a|b", r"`a\|b`"), ("`x`", r"`\u0060x\u0060`"), ("*x*", "`*x*`")],
)
def test_what_means_something_in_markdown_is_shown_as_code(text: str, shown: str) -> None:
    assert in_markdown(text) == shown


@pytest.mark.parametrize("char", ["\x00", "\x0b", "\x1b", "\x85", "\ud800", "\ufffe", "\uffff"])
def test_what_is_shown_can_be_in_every_document(char: str) -> None:
    element = ElementTree.Element("testcase", {"name": show_hidden(char)})
    element.text = show_hidden(char)
    parsed = ElementTree.fromstring(ElementTree.tostring(element, encoding="unicode"))
    assert json.loads(f'"{parsed.text}"') == json.loads(f'"{parsed.get("name")}"') == char
