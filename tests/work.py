"""How much work a piece of code does, counted and not timed: function calls are the same however busy the machine is."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_calls(work: Callable[[], Any]) -> int:
    """How many functions are called, in Python and built in, while this runs."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls
