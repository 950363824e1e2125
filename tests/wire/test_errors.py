"""What clients may know of exceptions."""

import pytest

from callsmith.core.errors import UsageError
from callsmith.wire.errors import _LONGEST, describe_error


@pytest.mark.parametrize(("length", "is_whole"), [(_LONGEST, True), (_LONGEST + 1, False)])
def test_messages_and_names_of_fields_are_whole_up_to_a_length(length: int, is_whole: bool) -> None:
    text = "x" * length
    assert (describe_error(UsageError(text)).message == text) == is_whole
    described = describe_error(UsageError("wrong", field=text))
    assert (described.param == text) == is_whole
    assert len(described.param or "") <= _LONGEST + len("…")
