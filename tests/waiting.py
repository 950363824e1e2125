"""Waiting for something to be so, and no longer than that."""

import asyncio
from collections.abc import Callable
from typing import Any


async def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until something is so, and say what it is."""
    async with asyncio.timeout(seconds):
        while not (value := true()):
            await asyncio.sleep(0.01)
    return value
