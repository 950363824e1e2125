"""What cannot be written in a format is refused."""

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.values import Call
from callsmith.formats import format_named
from callsmith.formats.write import write


def test_a_value_that_contains_its_own_closer_is_refused() -> None:
    format = format_named("qwen3-coder")
    assert "<parameter=text>" in write(format, [Call("note", {"text": "</function>"})])
    with pytest.raises(UsageError, match="which ends it in this format"):
        write(format, [Call("note", {"text": "a\n</parameter>\nb"})])
