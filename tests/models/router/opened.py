"""A model that is opened and closed as often as a router wants, and remembers it."""

import asyncio
import threading
from collections.abc import Sequence

from callsmith.core.events import ModelEvent, Stopped, Text
from callsmith.core.ports import ModelInfo
from tests.fakes import FakeModel

HELLO: Sequence[ModelEvent | Exception | float] = [Text("Hello"), Stopped("stop")]


class Opened(FakeModel):
    """A model that is open until it is closed; asking it then is an error."""

    def __init__(self, *answers: Sequence[ModelEvent | Exception | float]) -> None:
        super().__init__(*(answers or (HELLO,)))
        self.is_closed = False
        self.cut_off = 0  # answers that were being given when it was closed
        self.closing = 0.0  # seconds that closing takes

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(name="opened", format="hermes", context=100)

    async def close(self) -> None:
        self.cut_off += self.open
        await asyncio.sleep(self.closing)
        self.is_closed = True


class Opener:
    """Opens such models in the router's thread, when `allowed` is set; with `fails`, raises the first of them instead."""

    def __init__(self, *answers: Sequence[ModelEvent | Exception | float]) -> None:
        self.answers = answers
        self.opened: list[Opened] = []
        self.fails: list[Exception] = []
        self.calls = 0
        self.allowed = threading.Event()
        self.allowed.set()

    def __call__(self) -> Opened:
        self.calls += 1
        assert self.allowed.wait(30)
        if self.fails:
            raise self.fails.pop(0)
        self.opened.append(model := Opened(*self.answers))
        return model
