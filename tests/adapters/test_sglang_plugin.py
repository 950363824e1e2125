"""The entry point for SGLang, as far as it can be tried without it."""

import pytest

from callsmith.adapters.sglang.plugin import refuse_other_tool_parser
from callsmith.core.errors import UsageError


@pytest.mark.parametrize(
    "line",
    [
        "--reasoning-parser callsmith --tool-call-parser qwen25",
        "--tool-call-parser=qwen25 --reasoning-parser=callsmith",
    ],
)
def test_our_reasoning_parser_goes_with_no_tool_parser_but_ours(line: str) -> None:
    with pytest.raises(UsageError, match="cannot be combined with --tool-call-parser qwen25"):
        refuse_other_tool_parser(["sglang", *line.split()])


@pytest.mark.parametrize(
    "line",
    [
        "--reasoning-parser callsmith --tool-call-parser callsmith",
        "--reasoning-parser qwen3 --tool-call-parser callsmith",
        "--reasoning-parser callsmith",
        "--model x --reasoning-parser",
    ],
)
def test_other_combinations_are_taken(line: str) -> None:
    refuse_other_tool_parser(["sglang", *line.split()])
