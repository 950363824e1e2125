"""What a rendering may spend."""

import pytest

from callsmith.formats.prompt import meter


def test_all_that_is_left_may_be_spent_and_no_more() -> None:
    for position in (0, 1):
        meter.begin(0)
        rest = meter.left()[position]
        meter.spend(*((rest, 0) if position == 0 else (0, rest)))
        assert meter.left()[position] == 0
        with pytest.raises(meter.TooManySteps):
            meter.spend(*((1, 0) if position == 0 else (0, 1)))
