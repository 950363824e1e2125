"""Text of others in a terminal and in Markdown."""

import pytest

from callsmith.core.types.escaped_text import in_markdown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("qwen2.5-coder", "qwen2.5-coder"), ("<b>", "`<b>`"), ("a|b", r"`a\|b`"), ("`x`", r"`\u0060x\u0060`"), ("*x*", "`*x*`")],
)
def test_what_means_something_in_markdown_is_shown_as_code(text: str, shown: str) -> None:
    assert in_markdown(text) == shown
