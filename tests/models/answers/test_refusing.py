"""Users who say that they want no tools."""

import pytest

from callsmith.models.answers.grounding import refuses_calls


@pytest.mark.parametrize(
    "words",
    [
        "Don't use any tools.",
        "please answer without using tools",
        "Do not call your functions",
        "No tool calls!",
        "don’t use a tool",
    ],
)
def test_who_says_so_gets_no_calls(words: str):
    assert refuses_calls(f"How heavy is hive 5? {words}")


@pytest.mark.parametrize(
    "words",
    [
        "Use your tools.",
        "Don't use Python.",
        "Write it without functions.",
        "Which tools are there?",
        "Can I do it without tools?",
        "",
    ],
)
def test_who_speaks_of_tools_otherwise_may_get_them(words: str):
    assert not refuses_calls(f"How heavy is hive 5? {words}")
